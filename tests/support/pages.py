"""Results of every experiment as files, and a parser for the page that shows them."""

import io
import sys
from html.parser import HTMLParser
from unittest import mock

import matplotlib.image
import numpy as np

from experiments.averaged_seeds import experiment as seeds_experiment
from experiments.averaged_seeds import report as seeds_report
from experiments.benchmarks import peers
from experiments.cleaning_compared import experiment as compared_experiment
from experiments.cleaning_compared import report as compared_report
from experiments.common.results import write_results, write_text
from experiments.complexity import experiment as complexity_experiment
from experiments.complexity import report as complexity_report
from experiments.complexity.slopes import SlopeConfig
from experiments.complexity.tasks import METHODS
from experiments.crossover import experiment as crossover_experiment
from experiments.crossover import report as crossover_report
from experiments.data_hyper_cleaning import experiment as cleaning_experiment
from experiments.data_hyper_cleaning import report as cleaning_report
from experiments.discounts import experiment as discounts_experiment
from experiments.discounts import report as discounts_report
from experiments.error_against_cost import report as error_report
from experiments.error_against_cost import tasks as error_tasks
from experiments.keras_real_time import experiment as keras_experiment
from experiments.keras_real_time import report as keras_report
from experiments.keras_tasks import experiment as keras_tasks_experiment
from experiments.keras_tasks import report as keras_tasks_report
from experiments.label_cleaning import experiment as labels_experiment
from experiments.label_cleaning import report as labels_report
from experiments.learned_schedule import experiment as schedule_experiment
from experiments.learned_schedule import report as schedule_report
from experiments.learning_to_learn import experiment as learning_experiment
from experiments.learning_to_learn import report as learning_report
from experiments.long_training import experiment as long_experiment
from experiments.long_training import methods as long_methods
from experiments.long_training import report as long_report
from experiments.online_weights import experiment as online_experiment
from experiments.online_weights import report as online_report
from experiments.phone_classification import config as phone_config
from experiments.phone_classification import report as phone_report
from experiments.real_time_digits import experiment as digits_experiment
from experiments.report import page
from experiments.speech_settings import experiment as speech_experiment
from experiments.task_difficulty import experiment as difficulty_experiment
from experiments.task_interactions import experiment as tasks_experiment
from experiments.task_interactions import report as tasks_report
from experiments.warm_cleaning import experiment as warm_experiment
from experiments.warm_cleaning import report as warm_report

VOID = {"meta", "img", "wbr"}


class Page(HTMLParser):
    """The elements of a page, with their attributes and text; its tags have to balance."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "text": "", **dict(attributes)}
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag):
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop()["tag"] == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        for element in self._open:
            element["text"] += data

    def all(self, *tags, **attributes):
        """The elements with one of these tags and all of these attributes."""
        return [e for e in self.elements if e["tag"] in tags and all(e.get(k) == v for k, v in attributes.items())]

    def article(self, place):
        """The text under the heading of a directory."""
        (article,) = self.articles(place)
        return article

    def articles(self, place):
        """The texts under all headings of a directory."""
        return [e["text"] for e in self.all("article") if e["text"].strip().startswith(place + "\n")]

    @property
    def notes(self):
        """What the page says is missing or broken."""
        return [e["text"] for e in self.all("p") if e.get("class") == "note"]


def png(height=2, width=3):
    """A tiny image."""
    file = io.BytesIO()
    matplotlib.image.imsave(file, np.random.default_rng(0).random((height, width, 3)), format="png")
    return file.getvalue()


def fill(directory, name, config, rows, timing, texts=(), figures=()):
    """A directory as an experiment leaves it."""
    write_results(directory / "results.json", name, config, rows, timing)
    for name, text in dict(texts).items():
        write_text(directory / name, text)
    for name in figures:
        for suffix in ("png", "pdf"):
            (directory / f"{name}.{suffix}").write_bytes(png())


def cleaning(directory, method="DH-1000"):
    """Data hyper-cleaning."""
    accuracies = {"accuracy": 0.9042, "accuracy_weighted": 0.9047}
    rows = [{"method": method, "seed": 0, **accuracies, "f1": 0.948, "TP": 2395, "FP": 157, "discarded": 2552}]
    texts = {"table_1.md": cleaning_report.table_1(rows)}
    fill(
        directory,
        "data_hyper_cleaning",
        cleaning_experiment.Config(),
        rows,
        {"whole run": 125.0},
        texts,
        ["figure_2", "discarded_first"],
    )


def tasks(directory):
    """Task interactions."""
    row = {"data": "cifar10, 5 per class", "method": "HMTL-S", "validation_accuracy": 0.8, "accuracy": 0.7, "C/sum": 1e-3}
    rows = [{**row, "seed": seed, "accuracy_refit": 0.75 + seed / 100} for seed in range(5)]
    rows += [{**row, "method": "Jawanpuria p=4/3"} for row in rows]
    texts = {"table_2.md": tasks_report.table(rows, ["HMTL-S"])}
    texts["edges_HMTL-S.md"] = "| HMTL-S: mean C_jk | mean over splits |\n|---|---|\n| across | 7.39e-06 |\n"
    config = tasks_experiment.Config(seeds=tuple(range(5)))
    figures = ["figure_3", "heat_map_HMTL-S", "heat_map_Jawanpuria_p=4_3"]
    fill(directory, "task_interactions", config, rows, {"whole run": 2.0}, texts, figures)


def phones(directory):
    """Phone classification."""
    curve = [{"seconds": s, "steps": 20 * s, "validation accuracy": 0.3} for s in (1, 2, 3)]
    row = {"method": "RTHO-NT", "fold": 0, "seed": 0, "accuracy": 0.3, "last_accuracy": 0.31, "validation_accuracy": 0.32}
    records = [{**row, "steps": 60, "curve": curve}, {**row, "method": "RTHO", "steps": 60, "curve": curve}]
    config = phone_config.Config()
    texts = {"table_3.md": phone_report.table_3(records), "comparisons.md": phone_report.comparisons(records)}
    texts["table_5.md"] = phone_report.table_5(records, config)
    rows = [{name: value for name, value in record.items() if name != "curve"} for record in records]
    fill(directory, "phone_classification", config, rows, {"whole run": 150.0}, texts, ["figure_4", "figure_4_RTHO"])


def costs(directory):
    """Complexity: measurements and slopes."""
    rows = []
    for panel in ("seconds", "memory"):
        for method in METHODS:
            row = {
                "panel": panel,
                "method": method,
                "hypers": 22,
                "hidden": 171,
                "steps": 50,
                "truncate": 10,
                "seconds": 1.5,
            }
            missing = "not run: needs about 9.0 GB" if method == "reverse" else None
            rows.append({**row, "weights": 165_361, "peak_bytes": 10**9, "extrapolated": False, "missing": missing})
    fill(
        directory,
        "complexity",
        complexity_experiment.Config(),
        rows,
        {},
        {"table.md": complexity_report.table(rows)},
        ["figure_a"],
    )
    law = {"method": "forward", "against": "T", "values": [100, 1600], "seconds": [1.0, 16.0], "slope": 1.0}
    slopes = [{**law, "least": 0.95, "most": 1.05}]
    write_results(directory / "slopes.json", "complexity", SlopeConfig(), slopes, {"whole run": 9.0})


def errors(directory):
    """Error against cost."""
    row = {"problem": "cleaning", "method": "reverse", "steps": 25, "iterations": None, "along": "T", "framework": "rfho2"}
    rows = [{**row, "error": 0.37, "seconds": 0.25, "peak_bytes": 10**7, "missing": None}]
    texts = {"table.md": error_report.table("cleaning", rows), "honesty.md": error_report.honesty([])}
    fill(
        directory,
        "error_against_cost",
        error_tasks.Config(),
        rows,
        {},
        texts,
        ["error_against_seconds", "error_against_memory"],
    )


def warm(directory):
    """Warm hyper-cleaning."""
    row = {"E in the run": 0.4, "E trained again": 0.375, "F1": 0.9, "test accuracy": 0.9, "unsettled": 0.01, "seconds": 5.0}
    rows = [{"method": method, "l2": 1e-3, "seed": 0, **row} for method in warm_experiment.METHODS]
    config = warm_experiment.Config()
    fill(directory, "warm_cleaning", config, rows, {}, warm_report.tables(config, rows, directory), ["objective"])


def learning(directory):
    """Learning to learn."""
    row = {"shots": 5, "adapted_by": learning_experiment.LEARNED, "rates": [0.0057], "less_than_pretrained": [2.0, 0.1]}
    rows = [{**row, "error": [3.1, 0.242], "half_interval": [0.2, 0.02], "ratio_to_pretrained": 0.108}]
    config = learning_experiment.Config(steps=1)
    fill(directory, "learning_to_learn", config, rows, {}, learning_report.tables(config, rows, directory), ["adaptation"])


def seeds(directory):
    """Tuned on one seed or on several."""
    config = seeds_experiment.Config()
    row = {"repetition": 0, "own_seeds": 0.61, "validation": 0.6264, "worst": 0.67, "failed": 0, "test": 0.62}
    row |= {"tuned_on": seeds_experiment.average_name(config), "trainings": 320, "test_accuracy": 0.8}
    rows = [{**row, "hypers": kind} for kind in seeds_experiment.KINDS]
    fill(directory, "averaged_seeds", config, rows, {}, seeds_report.tables(config, rows, directory), ["fresh_seeds"])


def online(directory):
    """A weight for each example, in one training."""
    row = {"method": online_experiment.ONLINE, "seed": 0, "validation error": 0.35, "best validation error": 0.34}
    rows = [{**row, "test accuracy": 0.899, "best test accuracy": 0.9, "F1": 0.921, "F1 of zeros": 0.9}]
    texts = {"table.md": online_report.table(rows), "calibration.md": "| step | setting |\n|---|---|\n| 1 | chosen |\n"}
    fill(directory, "online_weights", online_experiment.Config(), rows, {}, texts, ["online_weights"])


def discounts(directory):
    """Discounts."""
    row = {"problem": "digits", "seed": 0, "discount": 1.0, "carry": True, "final": 0.2491, "best": 0.2, "test": 0.9}
    texts = {"table.md": discounts_report.table([row]), "changes.md": "| setting | digits |\n|---|---|\n| 1 | +0.0 |\n"}
    fill(directory, "discounts", discounts_experiment.Config(), [row], {}, texts, ["discounts"])


def keras_tasks(directory):
    """Ten Keras tasks."""
    row = {"task": "wine", "optimizer": "SGD", "seed": 0, "rate": 0.01, "validation": 0.3, "seconds": 2.0}
    methods = {"rate x 1": 90.74, "cosine": 88.0, "plateau": 91.0}
    methods |= {f"tuner x {start:g}": 97.22 for start in keras_tasks_experiment.STARTS}
    rows = [{**row, "method": method, "test": score} for method, score in methods.items()]
    texts = {"scores.md": keras_tasks_report.scores(rows), "differences.md": keras_tasks_report.differences(rows)}
    fill(directory, "keras_tasks", keras_tasks_experiment.Config(), rows, {}, texts, ["rates"])


def labels(directory):
    """Wrong labels."""
    row = {"data": "digits", "model": "CNN", "noise": "uniform", "share": 0.2, "trusted": 50, "seed": 0, "seconds": 1.0}
    rows = [{**row, "method": "cleanlab", "f1": 0.875}, {**row, "method": "refits", "f1": 0.901}]
    fill(directory, "label_cleaning", labels_experiment.Config(), rows, {}, {"table.md": labels_report.table(rows)})


def difficulty(directory):
    """Task interactions at the paper's level of difficulty."""
    rows = [{"strength": 16.0, "method": "STL", "accuracy": 0.6689, "accuracy_refit": 0.7}]
    texts = {"tables.md": "| features | STL |\n|---|---|\n| 16 principal components | 66.89 |\n"}
    fill(directory, "task_difficulty", difficulty_experiment.Config(), rows, {}, texts, ["gains"])


def speech(directory):
    """Settings of real time on speech."""
    rows = [{"frames": 24_000, "way": "RTHO", "last_accuracy": 0.3}]
    texts = {"tables.md": "| way | test % |\n|---|---|\n| RTHO | 30.31 |\n"}
    fill(directory, "speech_settings", speech_experiment.Config(), rows, {}, texts, ["grid", "sizes"])


def compared(directory):
    """Hyper-cleaning, and what users do instead."""
    row = {"scenario": "half wrong", "trusted": 50, "budget": 0, "seed": 0, "seconds": 1.0, "correct": 0.9}
    rows = [{**row, "method": "data hyper-cleaning", "f1": 0.941, "accuracy": 0.9}]
    fill(
        directory,
        "cleaning_compared",
        compared_experiment.Config(),
        rows,
        {},
        {"table.md": compared_report.table(rows, "f1")},
        ["f1"],
    )


def schedules(directory):
    """Learned schedules."""
    row = {"problem": "digits", "split": 0, "seconds": 1.0, "validation": [0.1], "test_loss": [0.123], "test": [0.97]}
    rows = [{**row, "method": method} for method in ("cosine", "learned, smoothed")]
    fill(
        directory,
        "learned_schedule",
        schedule_experiment.Config(),
        rows,
        {},
        {"table.md": schedule_report.table(rows)},
        ["schedules"],
    )


def crossover(directory):
    """Hypergradients and a search."""
    row = {"family": "schedule", "n": 3, "seed": 0, "plain": 0.5, "compiling": 5.0, "trainings": 9, "accuracy": 0.875}
    row |= {"reading": "without compiling", "budget": 100}
    rows = [row | {"method": method} for method in ("TPE", "hypergradients")]
    table, ahead = crossover_report.accuracies(rows), crossover_report.differences(rows)
    texts = {"table.md": table, "with_compiling.md": table, "trainings.md": crossover_report.trainings(rows)}
    texts |= dict.fromkeys(("ahead.md", "ahead_in_loss.md", "ahead_with_compiling.md"), ahead)
    fill(directory, "crossover", crossover_experiment.Config(), rows, {}, texts, ["crossover", "crossover_short"])


def long_training(directory):
    """A schedule and real time."""
    row = {"problem": "teacher", "seed": 0, "budget": 1, "steps": 40, "validation": 0.5, "test": 87.5}
    counted = [row | {"counted": way} for way in long_methods.COUNTS]
    rows = [one | {"method": method} for method in ("cosine, best of 5", "real time") for one in counted]
    texts = long_report.tables(long_experiment.Config(), rows, directory)
    fill(directory, "long_training", long_experiment.Config(), rows, {}, texts, ["long_training"])


def others(root):
    """The experiments that write one table or figure, or only print."""
    settings = [{"setting": "steps", "value": 10, "f1": [0.0, 0.95, 0.9]}]
    fill(root / "settings", "hyper_cleaning_settings", cleaning_experiment.Config(), settings, {}, figures=["settings"])
    row = {"iteration": 0, "lr": 0.125, "mu": 0.26, "l2": 5.9e-4, "hypergradient/lr": 0.1}
    row |= {f"{part} accuracy": 0.9265 for part in ("training", "validation", "test")}
    fill(root / "digits", "real_time_digits", digits_experiment.Config(), [row], {"seconds": 44.0}, figures=["curves"])
    row = {"seed": 0, "number_of_hypers": 1, "method": "real time, 10 times too large", "test": 0.96}
    texts = {
        "table.md": keras_report.table(
            [{**row, "seconds": 20.0, "ratio": 0.2}, {**row, "method": "random search", "seconds": 99.0, "ratio": 1.0}]
        )
    }
    fill(root / "keras", "keras_real_time", keras_experiment.Config(), [row], {"seconds": [20.0]}, texts, ["learning_rates"])
    record = peers.Record(("mlp_forward",), peers={"jax": "0.10.2"})
    outcomes = {"rfho2": peers.Outcome(0.0, 2.0), "JAX, jacfwd": peers.Outcome(1e-8, 4.0)}
    peers.write(root / "peers" / "results.json", record, {"mlp_forward": outcomes})
    (root / "benchmark.txt").write_text("jit    plain training           2.17 ms a step    1.00 x\n")
    (root / "plan_benchmark.txt").write_text("seconds     memory\n\n| network | seconds |\n|---|---|\n| reverse | 3.60 |\n")


def write_everything(root):
    """Something of each experiment, most of it under names that a user might choose."""
    named = {"a": cleaning, "b/cifar10_5_per_class": tasks, "c": phones, "d": costs, "e": errors, "f": warm}
    named |= {"g": learning, "h": seeds, "i": online, "j": discounts, "k": keras_tasks, "l": labels}
    named |= {"m": difficulty, "n": speech, "o": compared, "p": schedules, "q": crossover, "r": long_training}
    for place, make in named.items():
        with mock.patch.object(sys, "argv", [f"/somewhere/experiments/{make.__name__}.py", "--preset=quick"]):
            make(root / place)
    others(root)
    for internal in ("a/runs/DH-1000-seed-0/checkpoints", "c/tensorboard"):
        (root / internal).mkdir(parents=True)


def shown(root):
    """The page of a directory."""
    output = root / "report.html"
    page.write(root, output)
    return Page(output.read_text(encoding="ascii"))

"""The experiments that the page of results knows, and how to show what each wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from experiments.averaged_seeds import report as averaged_seeds
from experiments.benchmarks import peers
from experiments.cleaning_compared import report as cleaning_compared
from experiments.common.study import Caption, Study
from experiments.complexity import slopes
from experiments.crossover import report as crossover
from experiments.discounts import report as discounts
from experiments.keras_real_time import report as keras_real_time
from experiments.keras_tasks import report as keras_tasks
from experiments.label_cleaning import report as label_cleaning
from experiments.learned_schedule import report as learned_schedule
from experiments.learning_to_learn import report as learning_to_learn
from experiments.long_training import report as long_training
from experiments.online_weights import report as online_weights
from experiments.speech_settings import report as speech_settings
from experiments.task_difficulty import report as task_difficulty
from experiments.warm_cleaning import report as warm_cleaning

Content = dict[str, Any]


class Experiment(NamedTuple):
    """How to show the results of a binary.

    Attributes:
      name: the name of the module.
      title, what: the heading of its chapter, and a sentence about it.
      captions: of tables and figures, by the names of their files, in their order.
      table, caption: a table of its results, for a binary that writes none, and the caption of that table.
      file: the file that has its results.
      flags: the flags of the suggested command.
    """

    name: str
    title: str
    what: str
    captions: Mapping[str, Caption] = {}
    table: Callable[[Content], str] | None = None
    caption: str = ""
    file: str = "results.json"
    flags: str = ""


def _of(study: Study) -> Experiment:
    return Experiment(study.name, study.title, study.about, study.captions, flags=" --preset=quick")


def settings_table(content: Content) -> str:
    """F1 of each setting, at the end of its run and the best one."""
    lines = ["| setting | value | F1 at the end | F1 at best |", "|---|---|---|---|"]
    rows = content["results"]
    return "\n".join(lines + [f"| {r['setting']} | {r['value']:g} | {r['f1'][-1]:.4f} | {max(r['f1']):.4f} |" for r in rows])


def digits_table(content: Content) -> str:
    """Accuracies and hypers at the end of the training in real time."""
    last, config = content["results"][-1], content["config"]
    accuracies = [f"{100 * last[f'{part} accuracy']:.2f}" for part in ("training", "validation", "test")]
    hypers = [f"{last['lr']:.4f}", f"{last['mu']:.3f}", f"{last['l2']:.2e}"]
    titles = ["after steps", "training %", "validation %", "test %", "learning rate", "momentum factor", "L2 weight"]
    cells = [f"{config['hyper_iterations'] * config['hyper_batch']:,}", *accuracies, *hypers]
    return f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|\n| {' | '.join(cells)} |\n"


def peers_table(content: Content) -> str:
    """The tables that the binary prints."""
    tables = []
    for case, costs in content["timing"].items():
        outcomes = {name: peers.Outcome(0.0, cost["seconds"], cost["peak_bytes"]) for name, cost in costs.items()}
        tables.append(peers.report(case, outcomes) + "\n")
    return "\n".join(tables)


EXPERIMENTS = (
    Experiment(
        "data_hyper_cleaning", "Data hyper-cleaning (paper, 5.1)",
        "Half of the training digits have a wrong label. One weight per digit, tuned on clean ones, tells which.",
        {
            "table_1.md": Caption(
                "Table 1: test accuracy, and F1 of the discarded digits; means over seeds ± half the range"
            ),
            "figure_2.png": Caption("Figure 2: accuracies, and digits discarded, corrupted and clean, by hyper-iterations"),
            "discarded_first.png": Caption("The digits that were discarded first, with their given and their true label"),
        },
        flags=" --preset=quick",
    ),
    Experiment(
        "hyper_cleaning_settings", "Settings of data hyper-cleaning",
        "How F1 depends on inner steps, learning rates and the number of hyper-iterations.",
        {"settings.png": Caption("F1 along each run; one setting is varied at a time, the thick line is the default")},
        settings_table, "F1 of the discarded digits for each setting, the others at their defaults",
    ),
    _of(task_difficulty.STUDY),
    Experiment(
        "task_interactions", "Learning task interactions (paper, 5.2)",
        "Few examples of each class: a matrix C, tuned on a few others, tells which classes should be alike.",
        {
            "table_2.md": Caption("Table 2: accuracy ± standard deviation; paired differences ± half a 95 % interval"),
            "table_4.md": Caption("Table 4: the same for output kernel learning", always=False),
            "edges_*.md": Caption("{}: interactions inside and across animals and vehicles", always=False),
            "figure_3.png": Caption("Figure 3: interactions learned by HMTL-S, as edges between the classes", always=False),
            "graph_*.png": Caption("{}: the interactions learned, as edges between the classes", always=False),
            "heat_map_*.png": Caption("{}: the matrix C, mean over the splits", always=False),
        },
        flags=" --preset=quick",
    ),
    _of(speech_settings.STUDY),
    Experiment(
        "phone_classification", "Phone classification in real time (paper, 5.3)",
        "Learning rate, momentum and the weight of a secondary task are tuned during a single training.",
        {
            "table_3.md": Caption("Table 3: accuracy on frames of the test speakers, of the best and of the last state"),
            "comparisons.md": Caption("Paired differences of test accuracy, ± half a 95 % interval; each fold counts once"),
            "table_5.md": Caption("Table 5: best validation accuracy within fractions of the budget, and test accuracy"),
            "figure_4.png": Caption(
                "Figure 4: RTHO-NT: accuracies, validation error and hyperparameters as it trains", always=False
            ),
            "figure_4_*.png": Caption("{}: accuracies, validation error and hyperparameters as it trains", always=False),
        },
    ),
    Experiment(
        "real_time_digits", "Real time on digits",
        "Learning rate, momentum and L2 weight start at 0 and are tuned while a network learns digits.",
        {"curves.png": Caption("Accuracies, validation error and hyperparameters against training steps")},
        digits_table, "At the end of the training",
    ),
    _of(crossover.STUDY),
    _of(keras_real_time.STUDY),
    _of(keras_tasks.STUDY),
    _of(cleaning_compared.STUDY),
    _of(label_cleaning.STUDY),
    _of(learned_schedule.STUDY),
    _of(long_training.STUDY),
    Experiment(
        "complexity", "What a hypergradient costs (paper, Appendix A)",
        "Seconds against the number of hypers, memory against the number of weights.",
        {
            "table.md": Caption("Seconds and peak memory of one hypergradient; the paper used other hardware"),
            "figure_a.png": Caption("Seconds against hypers, and peak memory against weights"),
        },
        flags=" --preset=quick",
    ),
    Experiment(
        "complexity", "How costs grow", "Seconds against steps and hypers, compared with theory.",
        table=lambda content: slopes.table(content["results"]), caption="Log-log slopes of seconds",
        file="slopes.json", flags=" --slopes",
    ),
    _of(warm_cleaning.STUDY),
    _of(learning_to_learn.STUDY),
    _of(averaged_seeds.STUDY),
    _of(online_weights.STUDY),
    _of(discounts.STUDY),
    Experiment(
        "error_against_cost", "Error against cost",
        "How near each method comes to the hypergradient at the solution, in which time and memory, beside other libraries.",
        {
            "table.md": Caption("Relative error, seconds and memory; linear solvers alone; what was aimed at"),
            "error_against_seconds.png": Caption("Relative error against seconds"),
            "error_against_memory.png": Caption("Relative error against memory"),
            "honesty.md": Caption("What libraries return without a word, and what rfho2 says"),
        },
        flags=" --preset=quick",
    ),
    Experiment(
        "peer_benchmark", "Compared with JAX and PyTorch",
        "The same computation in each framework: seconds and peak memory.",
        table=peers_table, caption="Seconds and peak memory; a ratio below 1 favours rfho2",
    ),
    *(
        Experiment(name, title, what, file=f"{name}.txt")
        for name, title, what in (
            ("benchmark", "Costs relative to plain training", "Reverse and forward mode, projections, memory."),
            ("plan_benchmark", "What the planner predicts", "Seconds and memory, predicted and measured."),
            ("phone_benchmark", "Real time at the paper's size", "Seconds and memory with 15.68 million weights."),
        )
    ),
)  # fmt: skip
OTHER = Experiment("other", "Other results", "Results of experiments that this page does not know, shown unchanged.")

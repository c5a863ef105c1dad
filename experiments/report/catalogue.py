"""The experiments that the page of results knows: how to tell what each wrote, and how to show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from experiments.benchmarks import peers as peer_benchmark
from experiments.complexity import report as complexity_report

Content = dict[str, Any]


class Piece(NamedTuple):
    """A file of an experiment: its name, where * is a method; a caption, where {} is; whether every run writes it."""

    name: str
    caption: str
    always: bool = True


class Experiment(NamedTuple):
    """How to tell the results of a binary, and how to show them.

    Attributes:
      name: of the module.
      key: that only rows of its results have.
      pieces: tables and figures in their order.
      table: a table of its results, where the binary writes none, and its caption.
      file: that has its results.
      flags: of the command that is suggested.
    """

    name: str
    title: str
    what: str
    key: str = ""
    pieces: tuple[Piece, ...] = ()
    table: Callable[[Content], str] | None = None
    caption: str = ""
    file: str = "results.json"
    flags: str = ""


def settings_table(content: Content) -> str:
    """F1 of each setting, at the end of its run and at best."""
    lines = ["| setting | value | F1 at the end | F1 at best |", "|---|---|---|---|"]
    rows = content["results"]
    return "\n".join(lines + [f"| {r['setting']} | {r['value']:g} | {r['f1'][-1]:.4f} | {max(r['f1']):.4f} |" for r in rows])


def digits_table(content: Content) -> str:
    """Where the training in real time ended."""
    last, config = content["results"][-1], content["config"]
    accuracies = [f"{100 * last[f'{part} accuracy']:.2f}" for part in ("training", "validation", "test")]
    hypers = [f"{last['lr']:.4f}", f"{last['mu']:.3f}", f"{last['l2']:.2e}"]
    titles = ["after steps", "training %", "validation %", "test %", "learning rate", "momentum factor", "L2 weight"]
    cells = [f"{config['hyper_iterations'] * config['hyper_batch']:,}", *accuracies, *hypers]
    return f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|\n| {' | '.join(cells)} |\n"


def peers_table(content: Content) -> str:
    """As the binary prints it."""
    tables = []
    for case, costs in content["timing"].items():
        outcomes = {n: peer_benchmark.Outcome(0.0, cost["seconds"], cost["peak_bytes"]) for n, cost in costs.items()}
        tables.append(peer_benchmark.report(case, outcomes) + "\n")
    return "\n".join(tables)


EXPERIMENTS = (
    Experiment(
        "data_hyper_cleaning", "Data hyper-cleaning (paper, 5.1)",
        "Half of the training digits carry a wrong label. A weight for each digit, tuned on clean ones, tells which.",
        "accuracy_weighted",
        (
            Piece("table_1.md", "Table 1: test accuracy, and F1 of the discarded digits; means over seeds ± half the range"),
            Piece("figure_2.png", "Figure 2: accuracies, and digits discarded, corrupted and clean, by hyper-iterations"),
            Piece("discarded_first.png", "The digits that were discarded first, with the label given and the true one"),
        ),
        flags=" --preset=quick",
    ),
    Experiment(
        "hyper_cleaning_settings", "Settings of data hyper-cleaning",
        "What inner steps, learning rates and the number of hyper-iterations do to F1.",
        "setting",
        (Piece("settings.png", "F1 along each run; one setting is varied at a time, the thick line is the default"),),
        settings_table, "F1 of the discarded digits for each setting, the others at their defaults",
    ),
    Experiment(
        "task_interactions", "Learning task interactions (paper, 5.2)",
        "Few examples of each class: a matrix C, tuned on a few others, says which classes are to be alike.",
        "accuracy_refit",
        (
            Piece("table_2.md", "Table 2: accuracy ± standard deviation; paired differences ± half a 95 % interval"),
            Piece("table_4.md", "Table 4: the same for output kernel learning", False),
            Piece("edges_*.md", "{}: interactions inside and across animals and vehicles", False),
            Piece("figure_3.png", "Figure 3: interactions learned by HMTL-S, as edges between the classes", False),
            Piece("graph_*.png", "{}: the interactions learned, as edges between the classes", False),
            Piece("heat_map_*.png", "{}: the matrix C, mean over the splits", False),
        ),
        flags=" --preset=quick",
    ),
    Experiment(
        "phone_classification", "Phone classification in real time (paper, 5.3)",
        "Learning rate, momentum and the weight of a secondary task are tuned while the network trains, once.",
        "last_accuracy",
        (
            Piece("table_3.md", "Table 3: accuracy on frames of the test speakers, of the best and of the last state"),
            Piece("comparisons.md", "Paired differences of test accuracy, ± half a 95 % interval; each fold counts once"),
            Piece("table_5.md", "Table 5: best validation accuracy within parts of the budget, and test accuracy"),
            Piece("figure_4.png", "Figure 4: RTHO-NT: accuracies, validation error and hyperparameters as it trains", False),
            Piece("figure_4_*.png", "{}: accuracies, validation error and hyperparameters as it trains", False),
        ),
    ),
    Experiment(
        "real_time_digits", "Real time on digits",
        "Learning rate, momentum and L2 weight start at 0 and are tuned while a network learns digits.",
        "hypergradient/lr",
        (Piece("curves.png", "Accuracies, validation error and hyperparameters against training steps"),),
        digits_table, "Where it ended",
    ),
    Experiment(
        "keras_real_time", "A Keras model in real time",
        "A CNN is trained once from a bad learning rate, beside the best of many random trials.",
        "number_of_hypers",
        (
            Piece("table.md", "Test accuracy and seconds of everything; means over seeds"),
            Piece("learning_rates.png", "Learning rate and validation loss while the CNN trains"),
        ),
        flags=" --preset=quick",
    ),
    Experiment(
        "complexity", "What a hypergradient costs (paper, Appendix A)",
        "Seconds against the number of hypers, memory against the number of weights.",
        "panel",
        (
            Piece("table.md", "Seconds and peak memory of one hypergradient; the paper's are of other hardware"),
            Piece("figure_a.png", "Seconds against hypers, and peak memory against weights"),
        ),
        flags=" --preset=quick",
    ),
    Experiment(
        "complexity", "How costs grow", "Seconds against steps and hypers, beside what theory says.", "slope",
        table=lambda content: complexity_report.slope_table(content["results"]), caption="Log-log slopes of seconds",
        file="slopes.json", flags=" --slopes",
    ),
    Experiment(
        "peer_benchmark", "Beside JAX and PyTorch", "The same computation by others: seconds and peak memory.", "contestant",
        table=peers_table, caption="Seconds and peak memory; a ratio below 1 is in favour of rfho2",
    ),
    *(
        Experiment(name, title, what, file=f"{name}.txt")
        for name, title, what in (
            ("benchmark", "Costs beside plain training", "Reverse and forward mode, projections, memory."),
            ("plan_benchmark", "What the planner predicts", "Seconds and memory, predicted and measured."),
            ("phone_benchmark", "Real time at the paper's size", "Seconds and memory with 15.68 million weights."),
        )
    ),
)  # fmt: skip
OTHER = Experiment("other", "Other results", "Not of an experiment that this page knows: as they are.")

"""Tables and figures of the phone classification experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from experiments.common import statistics
from experiments.common.figures import add_grids, save_figure, slug
from experiments.common.results import write_text
from experiments.phone_classification.config import PhoneTraining
from experiments.phone_classification.stopping import History

PAPER = {"Vanilla": (59.81, 12), "RS": (60.36, 300), "SMBO": (60.91, 300), "RTHO": (61.97, 164), "RTHO-NT": (61.38, 289)}
FRACTIONS = (1 / 6, 1 / 3, 1.0)  # of the budget: 50, 100 and 300 minutes in the paper
PAPER_ON_THE_WAY = {
    "RS": (60.64, 60.86, 61.23), "SMBO": (60.83, 60.83, 61.39),
    "RTHO": (59.45, 61.21, 62.88), "RTHO-NT": (56.51, 60.91, 62.11),
}  # fmt: skip

STATES = {"best": "accuracy", "last": "last_accuracy"}
COMPARISONS = [  # a method and its state, minus a baseline and its state
    ("RTHO", "last", "Vanilla", "best"),
    ("RTHO", "last", "Vanilla, no stopping", "best"),
    ("RTHO", "last", "RS", "best"),
    ("RTHO", "last", "SMBO", "best"),
    ("RTHO-NT", "last", "Vanilla", "best"),
    ("RTHO-NT", "last", "Vanilla, no stopping", "best"),
    ("RTHO-NT", "last", "Vanilla, no stopping", "last"),
    ("RTHO-NT", "last", "RS", "best"),
    ("RTHO", "best", "RTHO", "last"),
    ("RTHO-NT", "best", "RTHO-NT", "last"),
]
LABELS = {
    "training accuracy": "training", "validation accuracy": "validation", "value": "on a random subset",
    "eta": "learning rate $\\eta$", "mu": "momentum factor $\\mu$", "rho": "$\\rho$",
}  # fmt: skip

Record = dict[str, Any]


def write(output: Path, records: list[Record], training: PhoneTraining) -> str:
    """Writes tables and figures; returns what to print."""
    texts = {
        "table_3.md": table_3(records),
        "comparisons.md": comparisons(records),
        "table_5.md": table_5(records, training),
    }
    for name, text in texts.items():
        write_text(output / name, text)
    shown = [r for r in records if r["method"] in ("RTHO-NT", "RTHO") and r["curve"]]
    for method in dict.fromkeys(r["method"] for r in shown):
        first = next(r for r in shown if r["method"] == method)
        title = f"{method}, fold {first['fold']}, seed {first['seed']}"
        name = "figure_4" if method == "RTHO-NT" else f"figure_4_{slug(method)}"
        figure_4(first["curve"], title, training.hyper_batch, output / name)
    return "\n".join(texts.values()) + f"\nWritten to {output}."


def table_3(records: list[Record]) -> str:
    """Accuracy on the test speakers, of the state of best validation accuracy and of the last one, and the paper's."""
    titles = ["method", "runs", "best state %", "last state %", "validation %", "steps", "minutes"]
    titles += ["paper: accuracy %", "paper: minutes"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for method in dict.fromkeys(r["method"] for r in records):
        rows = [r for r in records if r["method"] == method]
        means = [100 * np.mean([r[key] for r in rows]) for key in ("accuracy", "last_accuracy", "validation_accuracy")]
        cells = [method, str(len(rows)), *(f"{mean:.2f}" for mean in means), f"{np.mean([r['steps'] for r in rows]):.0f}"]
        cells += [f"{np.mean([minutes(r['curve']) for r in rows]):.1f}", *map(str, PAPER.get(method, ("-", "-")))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def minutes(curve: History) -> float:
    """The minutes that a run took; its first hyper-batch, which may have compiled, counts as the median of the others."""
    each = np.diff([0.0, *(row["seconds"] for row in curve)])
    return float(each[1:].sum() + np.median(each[1:])) / 60 if len(each) > 1 else float(each.sum()) / 60


def comparisons(records: list[Record]) -> str:
    """Paired differences of test accuracy between methods, with 95 % intervals."""
    lines = ["| state of | minus state of | points | pairs |", "|---|---|---|---|"]
    for method, state, baseline, baseline_state in COMPARISONS:
        pairs = _pairs(records, method, baseline)
        if pairs:
            points = difference(pairs, STATES[state], STATES[baseline_state])
            lines.append(f"| {method}, {state} | {baseline}, {baseline_state} | {points} | {len(pairs)} |")
    return "\n".join(lines) + "\n"


def _pairs(records: list[Record], method: str, baseline: str) -> list[tuple[Record, Record]]:
    """Records of both with the same fold and seed."""
    baselines = {(r["fold"], r["seed"]): r for r in records if r["method"] == baseline}
    tried = [(r, baselines.get((r["fold"], r["seed"]))) for r in records if r["method"] == method]
    return [(record, partner) for record, partner in tried if partner is not None]


def difference(pairs: Sequence[tuple[Record, Record]], key: str, baseline_key: str) -> statistics.Difference:
    """The accuracy of the first of each pair minus that of the second.

    Seeds of one fold share their speakers and are not independent of each other: each fold counts once, with its mean.
    """
    folds = sorted({record["fold"] for record, _ in pairs})
    by_fold = [[(a[key], b[baseline_key]) for a, b in pairs if a["fold"] == fold] for fold in folds]
    accuracies, baselines = np.array([np.mean(values, axis=0) for values in by_fold]).T
    return statistics.difference(accuracies, baselines)


def table_5(records: list[Record], training: PhoneTraining) -> str:
    """The best validation accuracy within fractions of the budget, and the final test accuracy."""
    unit, total = ("steps", float(training.steps)) if training.minutes is None else ("seconds", 60 * training.minutes)
    fractions, papers = (f"{f:.0%} of the budget" for f in FRACTIONS), (f"paper: {m} min" for m in (50, 100, 300))
    titles = ["method", *fractions, "test %", *papers]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for method in dict.fromkeys(r["method"] for r in records):
        rows = [r for r in records if r["method"] == method]
        plain = unit == "steps" and not method.startswith("RTHO")
        whole = total * (training.plain_factor if plain else 1)
        means = [100 * np.mean([best_until(r["curve"], unit, f * whole) for r in rows]) for f in FRACTIONS]
        test = 100 * np.mean([r["accuracy"] for r in rows])
        paper = PAPER_ON_THE_WAY.get(method, ("-", "-", "-"))
        lines.append(f"| {' | '.join([method, *(f'{m:.2f}' for m in [*means, test]), *map(str, paper)])} |")
    return "\n".join(lines) + "\n"


def best_until(curve: History, unit: str, end: float) -> float:
    """The best validation accuracy up to `end`."""
    return max((row["validation accuracy"] for row in curve if row[unit] <= end), default=0.0)


def figure_4(curve: History, title: str, hyper_batch: int, path: Path) -> None:
    """The paper's four panels: accuracies, validation error, eta and mu, rho, against hyper-batches."""
    x = np.arange(1, len(curve) + 1)
    figure, axes = plt.subplots(2, 2, figsize=(10, 6.5), sharex=True, layout="constrained")

    def lines(axis: plt.Axes, names: Sequence[str], scale: float = 1.0) -> None:
        for name in names:
            axis.plot(x, [scale * row[name] for row in curve], label=LABELS[name])
        axis.legend()

    lines(axes[0, 0], ("training accuracy", "validation accuracy"), 100)
    lines(axes[0, 1], ("value",))
    lines(axes[1, 0], ("eta", "mu"))
    lines(axes[1, 1], ("rho",))
    axes[0, 0].set(title="Frame accuracy", ylabel="%")
    axes[0, 1].set(title="Validation error", ylabel="cross-entropy")
    axes[1, 0].set(title="Optimiser's hyperparameters", xlabel=f"hyper-batches of {hyper_batch} steps")
    axes[1, 1].set(title="Weight of the secondary task", xlabel=f"hyper-batches of {hyper_batch} steps")
    add_grids(axes.flat)
    figure.suptitle(title)
    save_figure(figure, path)

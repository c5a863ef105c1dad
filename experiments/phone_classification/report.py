"""Tables and figures of the phone classification experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from experiments.common import binary as common
from experiments.phone_classification.methods import History, Training

PAPER = {"Vanilla": (59.81, 12), "RS": (60.36, 300), "SMBO": (60.91, 300), "RTHO": (61.97, 164), "RTHO-NT": (61.38, 289)}
FRACTIONS = (1 / 6, 1 / 3, 1.0)  # of the budget: 50, 100 and 300 minutes in the paper
PAPER_ON_THE_WAY = {
    "RS": (60.64, 60.86, 61.23), "SMBO": (60.83, 60.83, 61.39),
    "RTHO": (59.45, 61.21, 62.88), "RTHO-NT": (56.51, 60.91, 62.11),
}  # fmt: skip

STATES = {"best": "accuracy", "last": "last_accuracy"}
COMPARISONS = [  # method and its state, minus another and its state
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


def write(output: Path, records: list[Record], training: Training) -> str:
    """Writes tables and figures; returns what to print."""
    texts = {
        "table_3.md": table_3(records),
        "comparisons.md": comparisons(records),
        "table_5.md": table_5(records, training),
    }
    for name, text in texts.items():
        common.write_text(output / name, text)
    shown = [r for r in records if r["method"] in ("RTHO-NT", "RTHO") and r["curve"]]
    for method in dict.fromkeys(r["method"] for r in shown):
        first = next(r for r in shown if r["method"] == method)
        title = f"{method}, fold {first['fold']}, seed {first['seed']}"
        name = "figure_4" if method == "RTHO-NT" else f"figure_4_{common.slug(method)}"
        figure_4(first["curve"], title, training.hyper_batch, output / name)
    return "\n".join(texts.values()) + f"\nWritten to {output}."


def table_3(records: list[Record]) -> str:
    """Accuracy on the test speakers, of the state of best validation accuracy and of the last one, beside the paper's."""
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
    """That a run took, its first hyper-batch, which may have compiled, counted as the median of the others."""
    each = np.diff([0.0, *(row["seconds"] for row in curve)])
    return float(each[1:].sum() + np.median(each[1:])) / 60 if len(each) > 1 else float(each.sum()) / 60


def comparisons(records: list[Record]) -> str:
    """What the experiment is about, as paired differences of test accuracy with 95 % intervals."""
    lines = ["| state of | minus state of | points | pairs |", "|---|---|---|---|"]
    for method, state, other, state_of_other in COMPARISONS:
        pairs = _pairs(records, method, other)
        if pairs:
            found = difference(pairs, STATES[state], STATES[state_of_other])
            lines.append(f"| {method}, {state} | {other}, {state_of_other} | {found} | {len(pairs)} |")
    return "\n".join(lines) + "\n"


def _pairs(records: list[Record], method: str, other: str) -> list[tuple[Record, Record]]:
    """Records of both with the same fold and seed."""
    others = {(r["fold"], r["seed"]): r for r in records if r["method"] == other}
    return [(r, others[r["fold"], r["seed"]]) for r in records if r["method"] == method and (r["fold"], r["seed"]) in others]


def difference(pairs: Sequence[tuple[Record, Record]], key: str, key_of_other: str) -> common.Difference:
    """The first's accuracy minus the other's.

    Seeds of one fold share their speakers and are not independent of each other: each fold counts once, with its mean.
    """
    folds = sorted({record["fold"] for record, _ in pairs})
    means = [[(a[key], b[key_of_other]) for a, b in pairs if a["fold"] == fold] for fold in folds]
    ours, others = np.array([np.mean(mean, axis=0) for mean in means]).T
    return common.difference(ours, others)


def table_5(records: list[Record], training: Training) -> str:
    """The best validation accuracy found within fractions of the budget, and the final test accuracy."""
    unit, total = ("steps", float(training.steps)) if training.minutes is None else ("seconds", 60 * training.minutes)
    titles = [
        "method",
        *(f"{f:.0%} of the budget" for f in FRACTIONS),
        "test %",
        *(f"paper: {m} min" for m in (50, 100, 300)),
    ]
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
    """The best validation accuracy up to there."""
    return max((row["validation accuracy"] for row in curve if row[unit] <= end), default=0.0)


def figure_4(curve: History, title: str, hyper_batch: int, path: Path) -> None:
    """The paper's four panels: accuracies, validation error, eta and mu, rho, against hyper-batches."""
    x = np.arange(1, len(curve) + 1)
    figure, axes = plt.subplots(2, 2, figsize=(10, 6.5), sharex=True, layout="constrained")

    def lines(axis: plt.Axes, names: Sequence[str], scale: float = 1.0) -> None:
        for name in names:
            axis.plot(x, [scale * row[name] for row in curve], label=LABELS[name])
        axis.legend()
        axis.grid(alpha=0.3)

    lines(axes[0, 0], ("training accuracy", "validation accuracy"), 100)
    lines(axes[0, 1], ("value",))
    lines(axes[1, 0], ("eta", "mu"))
    lines(axes[1, 1], ("rho",))
    axes[0, 0].set(title="Frame accuracy", ylabel="%")
    axes[0, 1].set(title="Validation error", ylabel="cross-entropy")
    axes[1, 0].set(title="Optimiser's hyperparameters", xlabel=f"hyper-batches of {hyper_batch} steps")
    axes[1, 1].set(title="Weight of the secondary task", xlabel=f"hyper-batches of {hyper_batch} steps")
    figure.suptitle(title)
    common.save_figure(figure, path)

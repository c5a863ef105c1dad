"""Tables and figures of the phone classification experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from experiments import common
from experiments.phone_methods import History, Training

PAPER = {"Vanilla": (59.81, 12), "RS": (60.36, 300), "SMBO": (60.91, 300), "RTHO": (61.97, 164), "RTHO-NT": (61.38, 289)}
FRACTIONS = (1 / 6, 1 / 3, 1.0)  # of the budget: 50, 100 and 300 minutes in the paper
PAPER_ON_THE_WAY = {
    "RS": (60.64, 60.86, 61.23), "SMBO": (60.83, 60.83, 61.39),
    "RTHO": (59.45, 61.21, 62.88), "RTHO-NT": (56.51, 60.91, 62.11),
}  # fmt: skip

Record = dict[str, Any]


def write(output: Path, records: list[Record], training: Training) -> str:
    """Writes tables and figures; returns what to print."""
    texts = {"table_3.md": table_3(records), "table_5.md": table_5(records, training)}
    for name, text in texts.items():
        common.write_text(output / name, text)
    shown = [r for r in records if r["method"] in ("RTHO-NT", "RTHO")]
    for method in dict.fromkeys(r["method"] for r in shown):
        first = next(r for r in shown if r["method"] == method)
        name = "figure_4" if method == "RTHO-NT" else f"figure_4_{common.slug(method)}"
        figure_4(
            first["curve"], f"{method}, fold {first['fold']}, seed {first['seed']}", training.hyper_batch, output / name
        )
    return "\n".join(texts.values()) + f"\nWritten to {output}."


def table_3(records: list[Record]) -> str:
    """Accuracy on the test speakers and minutes, beside the paper's; differences to Vanilla are paired."""
    methods = list(dict.fromkeys(r["method"] for r in records))
    runs = len({(r["fold"], r["seed"]) for r in records})
    titles = [
        f"method ({runs} run{'s' if runs > 1 else ''})",
        "accuracy %",
        "minus Vanilla",
        "at the end %",
        "minus Vanilla",
    ]
    titles += ["validation %", "steps", "minutes", "paper: accuracy %", "paper: minutes"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for method in methods:
        rows = [r for r in records if r["method"] == method]
        cells = [method]
        for key in ("accuracy", "last_accuracy"):
            minus = "-" if "Vanilla" not in methods or method == "Vanilla" else str(difference(records, method, key))
            cells += [f"{100 * np.mean([r[key] for r in rows]):.2f}", minus]
        minutes = np.mean([r["curve"][-1]["seconds"] / 60 if r["curve"] else 0.0 for r in rows])
        cells += [
            f"{100 * np.mean([r['validation_accuracy'] for r in rows]):.2f}",
            f"{np.mean([r['steps'] for r in rows]):.0f}",
        ]
        cells += [f"{minutes:.1f}", *(str(x) for x in PAPER.get(method, ("-", "-")))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def difference(records: list[Record], method: str, key: str) -> common.Difference:
    """The method's accuracy by `key` minus that of early-stopped Vanilla, over folds, each a mean over its seeds.

    Seeds of one fold share their speakers and are not independent of each other: the interval counts folds.
    """

    def by_fold(name: str, key: str) -> np.ndarray:
        rows = [r for r in records if r["method"] == name]
        return np.array([np.mean([r[key] for r in rows if r["fold"] == f]) for f in sorted({r["fold"] for r in rows})])

    return common.difference(by_fold(method, key), by_fold("Vanilla", "accuracy"))


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
        rows = [r for r in records if r["method"] == method and r["curve"]]
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


LABELS = {
    "training accuracy": "training", "validation accuracy": "validation", "value": "on a random subset",
    "eta": "learning rate $\\eta$", "mu": "momentum factor $\\mu$", "rho": "$\\rho$",
}  # fmt: skip

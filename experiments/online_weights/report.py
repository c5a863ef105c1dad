"""Tables and figure of the weights learned online."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.common.figures import add_grids
from experiments.common.pool import Row
from experiments.common.study import Caption, Study
from experiments.common.tables import Table, distinct, spread, where, without
from experiments.online_weights.experiment import BINS, DOUBTED, ONES, ONLINE, ORACLE, PRESETS, Config, compute, units

COLUMNS = {
    "validation error": (1, 3),
    "best validation error": (1, 3),
    "test accuracy": (100, 2),
    "best test accuracy": (100, 2),
    "F1": (1, 4),
    "F1 of zeros": (1, 4),
}
TITLES = (
    "weights", "validation error", "at best", "test accuracy %", "at best", f"F1, weight < {DOUBTED:g}", "F1, weight = 0",
)  # fmt: skip


def tables(config: Config, results: Sequence[Row], output: Path) -> dict[str, str]:
    """How the settings were chosen, and the comparison."""
    return {"calibration.md": calibration_table(results), "table.md": table(compared(results))}


def compared(results: Sequence[Row]) -> list[Row]:
    """The rows of all comparisons, one for each seed and method."""
    return [row for seed in where(results, step=3) for row in seed["compared"]]


def table(rows: Sequence[Row]) -> str:
    """One line per method: means over the seeds ± half the range."""
    made = Table(*TITLES)
    for method in distinct(rows, "method"):
        cells = []
        for name, (scale, places) in COLUMNS.items():
            values = [row[name] for row in where(rows, method=method) if name in row]
            cells.append(spread(scale * np.array(values), places) if values else "-")
        made.add(method, *cells)
    return str(made)


def calibration_table(results: Sequence[Row]) -> str:
    """The validation error of each setting that was tried, in the order of the protocol."""
    made, chosen = Table("step", "setting", "validation error"), where(results, step=3)[0]
    for row in results:
        if row["step"] < 3:
            keys = ["learning rate"] if row["step"] == 1 else ["hyper-batch", "hyper-rate"]
            name = ", ".join(f"{key} {row[key]:g}" for key in keys)
            mark = ", chosen" if all(row[key] == chosen[key] for key in keys) else ""
            made.add(row["step"], name + mark, f"{row['validation error']:.3f}")
    return str(made)


def figures(config: Config, results: Sequence[Row]) -> dict[str, plt.Figure]:
    """Validation errors, mean weights and F1 against epochs, and the last weights, all of the first seed."""
    rows = {row["method"]: row for row in where(compared(results), seed=config.seeds[0])}
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13.5, 4.2), layout="constrained")

    def draw(axis: plt.Axes, method: str, key: str, **style: str) -> None:
        values = rows[method]["history"][key]
        axis.plot(config.epochs * (1 + np.arange(len(values))) / len(values), values, **style)

    for method, colour in {ONLINE: "tab:blue", ONES: "tab:red", ORACLE: "tab:green"}.items():
        draw(left, method, "value", color=colour, label=method)
    left.set(title="Error on the validation digits", xlabel="epochs", ylabel="cross-entropy", yscale="log")
    for name, colour in {"mean weight, right": "tab:green", "mean weight, wrong": "tab:red"}.items():
        draw(middle, ONLINE, name, color=colour, label=f"{name} labels")
    draw(middle, ONLINE, "F1", color="black", linestyle="--", label=f"F1, weight < {DOUBTED:g}")
    middle.set(title="Weights learned online", xlabel="epochs", ylim=(0, 1.02))
    style = {"color": ["tab:green", "tab:red"], "label": ["right labels", "wrong labels"]}
    right.hist([(BINS[1:] + BINS[:-1]) / 2] * 2, BINS, weights=rows[ONLINE]["weights"], **style)
    right.set(title="After the training", xlabel="weight", ylabel="digits")
    add_grids((left, middle, right))
    for axis in (left, middle, right):
        axis.legend()
    return {"online_weights": figure}


STUDY = Study(
    "online_weights",
    "A weight for each example, in one training",
    "Half of the training digits have a wrong label. Their weights are learned while the network trains.",
    Config, PRESETS, units, compute, tables, figures,
    {
        "table.md": Caption("Errors, accuracies, and F1 of the digits doubted; means over seeds ± half the range"),
        "calibration.md": Caption("How the settings were chosen"),
        "online_weights.png": Caption("Validation error, weights and F1 against epochs"),
    },
    recorded=lambda results: without(compared(results), "history", "weights"),
    preset_help="full: settings chosen on a calibration seed, three seeds; quick: one seed, six epochs.",
)  # fmt: skip

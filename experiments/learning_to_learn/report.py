"""The table and the figure of learning to learn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.common.figures import add_grids
from experiments.common.pool import Row
from experiments.common.study import Caption, Study
from experiments.common.tables import Table, where, without
from experiments.learning_to_learn.experiment import (
    METHODS,
    PRESETS,
    PRETRAINED,
    SHOWN_INPUTS,
    Config,
    compute,
    shown_task,
    units,
)

COLOURS = dict(zip(METHODS, ("tab:blue", "tab:green", "tab:orange", "tab:grey"), strict=True))


def tables(config: Config, rows: Sequence[Row], output: Path) -> dict[str, str]:
    """One row per number of points and method: rates, errors before and after, and the ratio to the pretrained network."""
    table = Table(
        "points", "method", "rates by layer", "error before", f"error after {config.steps} steps", "ratio to pretrained",
        "pretrained minus this",
    )  # fmt: skip
    for row in rows:
        errors = [_with_interval(row["error"][t], row["half_interval"][t]) for t in (0, config.steps)]
        rates = ", ".join(f"{rate:.2g}" for rate in row["rates"])
        less = "-" if row["adapted_by"] == PRETRAINED else _with_interval(*row["less_than_pretrained"])
        table.add(row["shots"], row["adapted_by"], rates, *errors, f"{row['ratio_to_pretrained']:.3f}", less)
    return {"table.md": str(table)}


def _with_interval(mean: float, half: float) -> str:
    return f"{mean:.3f} ± {half:.3f}"


def figures(config: Config, rows: Sequence[Row]) -> dict[str, plt.Figure]:
    """For each number of points, one test task with the curves that were learned, and the errors against steps."""
    columns = len(config.shots)
    figure, axes = plt.subplots(2, columns, figsize=(5.5 * columns, 8), sharey="row", squeeze=False, layout="constrained")
    for column, shots in zip(axes.T, config.shots, strict=True):
        _one_task(column[0], config, shots, where(rows, shots=shots))
        _errors(column[1], config, where(rows, shots=shots))
        column[0].set(title=f"A test task, {shots} points", xlabel="x")
        column[1].set(title=f"{config.test_tasks} test tasks, {shots} points", xlabel="gradient steps")
    axes[0, 0].set_ylabel("y")
    axes[1, 0].set_ylabel("mean squared error")
    for row, place in zip(axes, ("outside upper center", "outside lower center"), strict=True):
        figure.legend(*row[0].get_legend_handles_labels(), loc=place, ncols=2)
    add_grids(axes.flat)
    return {"adaptation": figure}


def _one_task(axis: plt.Axes, config: Config, shots: int, rows: Sequence[Row]) -> None:
    """The true curve, the points, and what two of the methods make of them."""
    family, k = shown_task(config, shots)
    task, x = family.task(k), SHOWN_INPUTS
    axis.plot(x, task.amplitude * np.sin(x + task.phase), color="black", linewidth=1, label="the task")
    for row in rows:
        if "curves" in row:
            name, colour, (before, after) = row["adapted_by"].split(",")[0], COLOURS[row["adapted_by"]], row["curves"]
            axis.plot(x, before, ":", color=colour, label=f"{name}: before")
            axis.plot(x, after, color=colour, label=f"{name}: after {config.steps} steps")
    axis.plot(*task.support, "o", color="black", markersize=5)


def _errors(axis: plt.Axes, config: Config, rows: Sequence[Row]) -> None:
    """Errors against steps, with intervals over the tasks."""
    for row in rows:
        mean, half, name = np.array(row["error"]), np.array(row["half_interval"]), row["adapted_by"]
        axis.plot(mean, "o-", markersize=3, color=COLOURS[name], label=name)
        axis.fill_between(range(len(mean)), mean - half, mean + half, color=COLOURS[name], alpha=0.2)
    axis.axvline(config.steps, color="grey", linestyle=":", linewidth=1)
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("")


STUDY = Study(
    "learning_to_learn",
    "Learning to learn",
    "An initialisation and learning rates from which a network learns a sinusoid in five steps.",
    Config, PRESETS, units, compute, tables, figures,
    {
        "table.md": Caption("Mean squared error on fresh tasks before and after the steps, ± half a 95 % interval"),
        "adaptation.png": Caption("A test task, and errors against steps"),
    },
    results=lambda config, rows: [row for points in rows for row in points["methods"]],
    recorded=lambda rows: without(rows, "curves"),
    preset_help="full: 8,000 hyper-iterations for each number of points; quick: 800.",
)  # fmt: skip

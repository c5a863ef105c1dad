"""The table of a comparison, and the course of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.common.figures import add_grids
from experiments.common.pool import Row
from experiments.common.study import Caption, Study
from experiments.common.tables import Table, column, distinct, mean, where, without
from experiments.warm_cleaning.experiment import METHODS, PRESETS, Config, compute, units


def tables(config: Config, rows: Sequence[Row], output: Path) -> dict[str, str]:
    """Means over seeds, for each L2 weight and method; seconds also relative to reverse on the same seed."""
    table = Table(
        "L2", "method", "E in the run", "E trained again", "F1", "test accuracy %", "unsettled %", "seconds", "/ reverse"
    )
    for l2, method in distinct(rows, "l2", "method"):
        of = where(rows, l2=l2, method=method)
        unsettled = [row["unsettled"] for row in of if row["unsettled"] is not None]
        reverse = where(rows, l2=l2, method="reverse")
        ratios = column(of, "seconds", order="seed") / column(reverse, "seconds", order="seed")
        table.add(
            f"{l2:g}", method, *(f"{mean(of, key):.4f}" for key in ("E in the run", "E trained again", "F1")),
            f"{100 * mean(of, 'test accuracy'):.2f}", f"{100 * np.mean(unsettled):.2g}" if unsettled else "",
            f"{mean(of, 'seconds'):.0f}", f"{np.mean(ratios):.2f}",
        )  # fmt: skip
    return {"table.md": str(table)}


def figures(config: Config, rows: Sequence[Row]) -> dict[str, plt.Figure]:
    """The validation error in the run against updates, for the first L2 weight and seed."""
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for row in where(rows, l2=config.l2[0], seed=config.seeds[0]):
        if not METHODS[row["method"]].until:
            axes.plot(range(1, len(row["history"]) + 1), row["history"], label=row["method"])
    axes.set(xlabel="updates of the weights", ylabel="validation error in the run")
    add_grids([axes])
    axes.legend()
    return {"objective": figure}


STUDY = Study(
    "warm_cleaning",
    "Warm hyper-cleaning",
    "Implicit hypergradients that continue one training, compared with reverse mode from zero.",
    Config, PRESETS, units, compute, tables, figures,
    {
        "table.md": Caption("Validation error in the run and trained again, F1, test accuracy, seconds; means over seeds"),
        "objective.png": Caption("Validation error in the run against updates of the weights"),
    },
    recorded=lambda rows: without(rows, "history"),
    preset_help="full: with and without L2, two seeds; quick: with L2, one seed, short runs.",
)  # fmt: skip

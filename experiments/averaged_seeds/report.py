"""The table and the figure of tuning on one seed and on several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.averaged_seeds.experiment import KINDS, NOTHING, PRESETS, Config, average_name, compute, units
from experiments.common.figures import add_grids
from experiments.common.pool import Row
from experiments.common.statistics import interval
from experiments.common.study import Caption, Study
from experiments.common.tables import Table, column, distinct, mean, where


def tables(config: Config, rows: Sequence[Row], output: Path) -> dict[str, str]:
    """One row per kind of hypers and tuning: errors, and the paired difference from the average over seeds."""
    average = average_name(config)
    table = Table(
        "hypers", "tuned on", "trainings", "validation error, own seeds", "fresh seeds", f"minus {average}",
        "worst fresh seed", "failed", "test error", "test accuracy, %",
    )  # fmt: skip
    for kind, name in distinct(rows, "hypers", "tuned_on"):
        of = where(rows, hypers=kind, tuned_on=name)
        tuned = ["-", "-"] if name == NOTHING else [f"{mean(of, 'trainings'):.0f}", f"{mean(of, 'own_seeds'):.4f}"]
        more = interval(differences(rows, kind, name, average))
        table.add(
            kind, name, *tuned, f"{mean(of, 'validation'):.4f}",
            "-" if name == average else f"{more.mean:+.4f} ± {more.half:.4f}", f"{mean(of, 'worst'):.4f}",
            sum(column(of, "failed")), f"{mean(of, 'test'):.4f}", f"{100 * mean(of, 'test_accuracy'):.2f}",
        )  # fmt: skip
    return {"table.md": str(table)}


def differences(rows: Sequence[Row], kind: str, name: str, average: str) -> np.ndarray:
    """The validation error of a tuning on fresh seeds, minus that of the average, for each repetition."""
    each = [column(where(rows, hypers=kind, tuned_on=tuned), "validation", "repetition") for tuned in (name, average)]
    return each[0] - each[1]


def figures(config: Config, rows: Sequence[Row]) -> dict[str, plt.Figure]:
    """For each kind of hypers, the validation error on fresh seeds of each repetition, relative to the average's."""
    average = average_name(config)
    figure, axes = plt.subplots(1, len(KINDS), figsize=(11, 3.2), sharey=True, layout="constrained")
    names = [name for name in distinct(rows, "tuned_on") if name not in (NOTHING, average)]
    for axis, kind in zip(axes, KINDS, strict=True):
        for i, name in enumerate(names):
            more = differences(rows, kind, name, average)
            centre, half = interval(more)
            axis.plot(more, np.full(len(more), i), "o", color="tab:blue", alpha=0.4)
            axis.errorbar(centre, i, xerr=None if np.isnan(half) else half, fmt="s", color="black", capsize=4)
        axis.axvline(0, color="grey", linewidth=1)
        axis.set(
            title=kind, xlabel=f"validation error on fresh seeds, minus that of {average}", ylim=(-0.5, len(names) - 0.5)
        )
        axis.set_yticks(range(len(names)), names)
    add_grids(axes)
    return {"fresh_seeds": figure}


STUDY = Study(
    "averaged_seeds",
    "Tuned on one seed or on several",
    "Hypers tuned on one random seed and on the average over eight, judged on fresh seeds.",
    Config, PRESETS, units, compute, tables, figures,
    {
        "table.md": Caption("Errors on fresh seeds; paired differences ± half a 95 % interval"),
        "fresh_seeds.png": Caption("Validation error on fresh seeds, relative to the average over eight"),
    },
    preset_help="full: six repetitions; quick: two, with fewer hyper-iterations.",
)  # fmt: skip

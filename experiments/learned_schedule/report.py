"""The table and the figure of learned schedules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.common.figures import add_grids
from experiments.common.pool import Row
from experiments.common.statistics import interval
from experiments.common.study import Caption, Study
from experiments.common.tables import Table, distinct, mean, where
from experiments.learned_schedule.experiment import LEARNED, PRESETS, SMOOTHED, Config, compute, results, units

COLOURS = {LEARNED: "0.75", SMOOTHED: "black"}


def tables(config: Config, rows: Sequence[Row], output: Path) -> dict[str, str]:
    """The table."""
    return {"table.md": table(rows)}


def figures(config: Config, rows: Sequence[Row]) -> dict[str, plt.Figure]:
    """The schedules."""
    return {"schedules": drawn(rows)}


def table(rows: Sequence[Row]) -> str:
    """Means over splits and fresh seeds; what the smoothed learned schedule has less, with intervals over the splits."""
    titles = ["problem", "schedule", "tuned for seconds", "validation loss", "test loss", "test accuracy, %"]
    made = Table(*titles, "learned, smoothed, minus it: test loss", "test accuracy, points")
    for problem in distinct(rows, "problem"):
        learned = by_split(rows, problem, SMOOTHED)
        for method in distinct(where(rows, problem=problem), "method"):
            scores, taken = by_split(rows, problem, method), mean(where(rows, problem=problem, method=method), "seconds")
            losses = [f"{scores[key].mean():.4f}" for key in ("validation", "test_loss")]
            gains = ["-", "-"]
            if method != SMOOTHED and len(learned["test"]):
                gains = [
                    gain(learned["test_loss"] - scores["test_loss"], 4),
                    gain(100 * (learned["test"] - scores["test"]), 2),
                ]
            made.add(problem, method, f"{taken:.0f}", *losses, f"{100 * scores['test'].mean():.2f}", *gains)
    return str(made)


def gain(differences: np.ndarray, places: int) -> str:
    """The mean difference ± half a 95 % interval; the mean alone of one split."""
    centre, half = interval(differences)
    return f"{centre:+.{places}f}" + ("" if np.isnan(half) else f" ± {half:.{places}f}")


def by_split(rows: Sequence[Row], problem: str, method: str) -> dict[str, np.ndarray]:
    """The mean over the fresh seeds of each measure, one for each split; a training that failed counts as guessing."""
    of_method = sorted(where(rows, problem=problem, method=method), key=lambda row: row["split"])
    guess = {"validation": np.log(10), "test_loss": np.log(10), "test": 0.1}
    each = {key: [np.where(np.isfinite(row[key]), row[key], bad) for row in of_method] for key, bad in guess.items()}
    return {key: np.array([np.mean(values) for values in of_splits]) for key, of_splits in each.items()}


def drawn(rows: Sequence[Row]) -> plt.Figure:
    """For each problem: the schedules of the first split, and the validation loss while the learned one was learned."""
    problems = distinct(rows, "problem")
    figure, axes = plt.subplots(len(problems), 2, figsize=(11, 3.6 * len(problems)), layout="constrained", squeeze=False)
    add_grids(axes.flat)
    for (left, right), problem in zip(axes, problems, strict=True):
        of_problem = where(rows, problem=problem)
        first = min(distinct(of_problem, "split"))
        for row in where(of_problem, split=first):
            style = {"color": COLOURS[row["method"]]} if row["method"] in COLOURS else {"linestyle": "--"}
            left.plot(row["schedule"], label=row["method"], linewidth=0.6 if row["method"] == LEARNED else 1.6, **style)
        left.set(title=f"{problem}: schedules of split {first}", xlabel="step", ylabel="learning rate", yscale="log")
        largest = max(max(row["schedule"]) for row in of_problem)
        left.set_ylim(bottom=largest * 1e-4)
        for row in where(of_problem, method=LEARNED):
            right.plot(row["history"], linewidth=1, label=f"split {row['split']}")
        right.set(title="while it is learned", xlabel="hyper-iteration", ylabel="validation loss, mean over its seeds")
    for axis in axes[0]:
        axis.legend(fontsize="small")
    return figure


STUDY = Study(
    "learned_schedule",
    "A learning rate for each step",
    "Thousands of learning rates learned by hypergradients, compared with schedules designed by hand.",
    Config, PRESETS, units, compute, tables, figures,
    {
        "table.md": Caption("Losses and accuracies on fresh seeds; paired differences ± half a 95 % interval"),
        "schedules.png": Caption("The schedules, and validation loss while the learned one was learned"),
    },
    results,
    preset_help="full: 2,000 steps; quick: 100.",
    workers=1,
)  # fmt: skip

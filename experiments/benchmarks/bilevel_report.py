"""Tables and figure of the bilevel benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.benchmarks.bilevel import GOALS
from experiments.benchmarks.bilevel_methods import Row, reached
from experiments.common.figures import add_grids, save_figure

TITLES = {"quadratics": "squared norm of dh/dx", "data cleaning": "validation error"}


def table(rows: Sequence[Row], problem: str) -> str:
    """The last value, means over the seeds, and the median time until the value is small enough."""
    goals = GOALS[problem]
    titles = [f"{problem}: method", "settings", f"last {TITLES[problem]} (least, largest)"]
    titles += [*(["test error, %"] if problem == "data cleaning" else []), *(f"seconds to {goal:g}" for goal in goals)]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    own = [row for row in rows if row["problem"] == problem]
    for method in dict.fromkeys(row["method"] for row in own):
        curves = [row["curve"] for row in own if row["method"] == method]
        last = [one[-1]["value"] for one in curves]
        settings = ", ".join(f"{one:g}" for one in next(row["settings"] for row in own if row["method"] == method))
        cells = [method, settings, f"{np.mean(last):.2g} ({min(last):.2g}, {max(last):.2g})"]
        if problem == "data cleaning":
            cells.append(f"{100 * np.mean([one[-1].get('test error', np.nan) for one in curves]):.2f}")
        for goal in goals:
            median = float(np.median([reached(one, goal) for one in curves]))
            cells.append(f"{median:.2g}" if np.isfinite(median) else "-")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw(rows: Sequence[Row], path: Path) -> None:
    """Values against seconds, one line for each seed."""
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    figure, axes = plt.subplots(1, len(problems), figsize=(6 * len(problems), 4.2), layout="constrained", squeeze=False)
    add_grids(axes.flat)
    for axis, problem in zip(axes[0], problems, strict=True):
        methods = list(dict.fromkeys(row["method"] for row in rows))
        for row in (row for row in rows if row["problem"] == problem):
            place = methods.index(row["method"])
            first = row["seed"] == min(r["seed"] for r in rows)
            points = [(one["seconds"], one["value"]) for one in row["curve"][1:]]
            style = "--" if row["method"].endswith("JAX") else "-"
            axis.plot(
                *zip(*points, strict=True), style, color=f"C{place}", label=row["method"] if first else None, linewidth=1.2
            )
        axis.set(title=problem, xlabel="seconds", ylabel=TITLES[problem], xscale="log", yscale="log")
        axis.legend(fontsize="small")
    save_figure(figure, path)

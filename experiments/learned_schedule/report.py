"""The table and the figure of learned schedules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.common.figures import add_grids, save_figure
from experiments.common.pool import Row
from experiments.common.results import write_text
from experiments.common.statistics import interval
from experiments.learned_schedule.experiment import LEARNED, SMOOTHED

COLOURS = {LEARNED: "0.75", SMOOTHED: "black"}


def write(output: Path, rows: Sequence[Row]) -> str:
    """Writes the table and the figure; returns the table."""
    text = table(rows)
    write_text(output / "table.md", text)
    draw(rows, output / "schedules")
    return text + f"\nWritten to {output}."


def table(rows: Sequence[Row]) -> str:
    """Means over splits and fresh seeds; what the smoothed learned schedule has less, with intervals over the splits."""
    titles = ["problem", "schedule", "tuned for seconds", "validation loss", "test loss", "test accuracy, %"]
    titles += ["learned, smoothed, minus it: test loss", "test accuracy, points"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for problem in dict.fromkeys(row["problem"] for row in rows):
        learned = by_split(rows, problem, SMOOTHED)
        for method in dict.fromkeys(row["method"] for row in rows if row["problem"] == problem):
            own = by_split(rows, problem, method)
            taken = np.mean([row["seconds"] for row in rows if (row["problem"], row["method"]) == (problem, method)])
            cells = [problem, method, f"{taken:.0f}", f"{own['validation'].mean():.4f}", f"{own['test_loss'].mean():.4f}"]
            cells.append(f"{100 * own['test'].mean():.2f}")
            for key, factor, places in (("test_loss", 1, 4), ("test", 100, 2)):
                if method == SMOOTHED or not len(learned[key]):
                    cells.append("-")
                    continue
                mean, half = interval(factor * (learned[key] - own[key]))
                cells.append(f"{mean:+.{places}f}" + ("" if np.isnan(half) else f" ± {half:.{places}f}"))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def by_split(rows: Sequence[Row], problem: str, method: str) -> dict[str, np.ndarray]:
    """The mean over the fresh seeds of each measure, one for each split; a training that failed counts as guessing."""
    own = sorted((r for r in rows if (r["problem"], r["method"]) == (problem, method)), key=lambda r: r["split"])
    guess = {"validation": np.log(10), "test_loss": np.log(10), "test": 0.1}
    return {key: np.array([np.mean(np.where(np.isfinite(r[key]), r[key], bad)) for r in own]) for key, bad in guess.items()}


def draw(rows: Sequence[Row], path: Path) -> None:
    """For each problem: the schedules of the first split, and the validation loss while the learned one was learned."""
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    figure, axes = plt.subplots(len(problems), 2, figsize=(11, 3.6 * len(problems)), layout="constrained", squeeze=False)
    add_grids(axes.flat)
    for (left, right), problem in zip(axes, problems, strict=True):
        own = [row for row in rows if row["problem"] == problem]
        first = min(row["split"] for row in own)
        for row in (row for row in own if row["split"] == first):
            style = {"color": COLOURS[row["method"]]} if row["method"] in COLOURS else {"linestyle": "--"}
            left.plot(row["schedule"], label=row["method"], linewidth=0.6 if row["method"] == LEARNED else 1.6, **style)
        left.set(title=f"{problem}: schedules of split {first}", xlabel="step", ylabel="learning rate", yscale="log")
        largest = max(max(row["schedule"]) for row in own)
        left.set_ylim(bottom=largest * 1e-4)
        for row in (row for row in own if row["method"] == LEARNED):
            right.plot(row["history"], linewidth=1, label=f"split {row['split']}")
        right.set(title="while it is learned", xlabel="hyper-iteration", ylabel="validation loss, mean over its seeds")
    for axis in axes[0]:
        axis.legend(fontsize="small")
    save_figure(figure, path)

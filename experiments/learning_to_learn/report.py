"""The table and the figure of learning to learn."""

from __future__ import annotations

import itertools
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

from experiments.common import figures
from experiments.common.results import write_text
from experiments.learning_to_learn import model
from experiments.learning_to_learn.experiment import LEARNED, METHODS, PRETRAINED, Config, Method, Outcome, Row
from experiments.learning_to_learn.tasks import INPUTS, Family, Task

COLOURS = dict(zip(METHODS, ("tab:blue", "tab:green", "tab:orange", "tab:grey"), strict=True))
SHOWN_AMPLITUDE = 2.0  # the figure shows the first test task whose amplitude is at least this


def write(output: Path, config: Config, outcome: Outcome) -> str:
    """Writes the table and the figure; returns what to print."""
    text = table(outcome.results, config.steps)
    write_text(output / "table.md", text)
    figure(config, outcome, output / "adaptation")
    return f"{text}\nWritten to {output}: table.md, adaptation.png, results.json, runs/*/history.csv."


def table(rows: list[Row], steps: int) -> str:
    """One row per number of points and method: rates, errors before and after, and the ratio to the pretrained network."""
    titles = ["points", "method", "rates by layer", "error before", f"error after {steps} steps", "ratio to pretrained"]
    titles.append("pretrained minus this")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for row in rows:
        errors = [_with_interval(row["error"][t], row["half_interval"][t]) for t in (0, steps)]
        rates = ", ".join(f"{rate:.2g}" for rate in row["rates"])
        less = "-" if row["adapted_by"] == PRETRAINED else _with_interval(*row["less_than_pretrained"])
        cells = [str(row["shots"]), row["adapted_by"], rates, *errors, f"{row['ratio_to_pretrained']:.3f}", less]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _with_interval(mean: float, half: float) -> str:
    return f"{mean:.3f} ± {half:.3f}"


def figure(config: Config, outcome: Outcome, path: Path) -> None:
    """For each number of points, one test task with the curves that were learned, and the errors against steps."""
    columns = len(config.shots)
    drawn, axes = plt.subplots(2, columns, figsize=(5.5 * columns, 8), sharey="row", squeeze=False, layout="constrained")
    for column, shots in zip(axes.T, config.shots, strict=True):
        _one_task(column[0], config, shots, outcome)
        _errors(column[1], config, [row for row in outcome.results if row["shots"] == shots])
        column[0].set(title=f"A test task, {shots} points", xlabel="x")
        column[1].set(title=f"{config.test_tasks} test tasks, {shots} points", xlabel="gradient steps")
    axes[0, 0].set_ylabel("y")
    axes[1, 0].set_ylabel("mean squared error")
    for row, place in zip(axes, ("outside upper center", "outside lower center"), strict=True):
        drawn.legend(*row[0].get_legend_handles_labels(), loc=place, ncols=2)
    figures.add_grids(axes.flat)
    figures.save_figure(drawn, path)


def _one_task(axis: plt.Axes, config: Config, shots: int, outcome: Outcome) -> None:
    """The true curve, the points, and what two of the methods make of them."""
    family, k = shown_task(config, shots)
    task, x = family.task(k), np.linspace(*INPUTS, 200, dtype=np.float32)
    axis.plot(x, task.amplitude * np.sin(x + task.phase), color="black", linewidth=1, label="the task")
    for name in (LEARNED, PRETRAINED):
        before, after = predictions(outcome.methods[shots, name], task, config.steps, x)
        axis.plot(x, before, ":", color=COLOURS[name], label=f"{name.split(',')[0]}: before")
        axis.plot(x, after, color=COLOURS[name], label=f"{name.split(',')[0]}: after {config.steps} steps")
    axis.plot(*task.support, "o", color="black", markersize=5)


def shown_task(config: Config, shots: int) -> tuple[Family, int]:
    """The first test task that is not too flat to see, by its amplitude alone."""
    family = config.family("test", shots)
    return family, next(k for k in itertools.count() if float(family.task(k).amplitude) >= SHOWN_AMPLITUDE)


def predictions(method: Method, task: Task, steps: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The outputs of the network at x before and after the steps on a task."""
    descent = model.descent()
    weights = method.weights
    for t in range(steps):
        weights = descent.step(weights, method.rates, task.support, tf.constant(t))
    before, after = (model.outputs(w, tf.constant(x[:, None]))[:, 0].numpy() for w in (method.weights, weights))
    return before, after


def _errors(axis: plt.Axes, config: Config, rows: list[Row]) -> None:
    """Errors against steps, with intervals over the tasks."""
    for row in rows:
        mean, half, name = np.array(row["error"]), np.array(row["half_interval"]), row["adapted_by"]
        axis.plot(mean, "o-", markersize=3, color=COLOURS[name], label=name)
        axis.fill_between(range(len(mean)), mean - half, mean + half, color=COLOURS[name], alpha=0.2)
    axis.axvline(config.steps, color="grey", linestyle=":", linewidth=1)
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("")

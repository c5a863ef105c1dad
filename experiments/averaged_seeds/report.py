"""The table and the figure of tuning on one seed and on several."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.averaged_seeds.experiment import KINDS, Config, Row, average_name, columns
from experiments.common import figures, statistics
from experiments.common.results import write_text


def write(output: Path, config: Config, rows: list[Row]) -> str:
    """Writes the table and the figure; returns what to print."""
    text = table(config, rows)
    write_text(output / "table.md", text)
    figure(config, rows, output / "fresh_seeds")
    return f"{text}\nWritten to {output}: table.md, fresh_seeds.png, results.json."


def table(config: Config, rows: list[Row]) -> str:
    """One row per kind of hypers and tuning: errors, and the paired difference from the average over seeds."""
    average = average_name(config)
    titles = ["hypers", "tuned on", "trainings", "validation error, own seeds", "fresh seeds"]
    titles += [f"minus {average}", "worst fresh seed", "failed", "test error", "test accuracy, %"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for kind in KINDS:
        keys = ("trainings", "own_seeds", "validation", "worst", "failed", "test", "test_accuracy")
        values = {key: dict(columns(rows, kind, key)) for key in keys}
        for name, validation in values["validation"].items():
            means = {key: float(np.mean(values[key][name])) for key in keys}
            less = statistics.interval(validation - values["validation"][average])
            cells = [kind, name]
            cells += ["-", "-"] if name == "nothing" else [f"{means['trainings']:.0f}", f"{means['own_seeds']:.4f}"]
            cells += [f"{means['validation']:.4f}", "-" if name == average else f"{less.mean:+.4f} ± {less.half:.4f}"]
            cells += [f"{means['worst']:.4f}", f"{np.sum(values['failed'][name]):.0f}", f"{means['test']:.4f}"]
            cells.append(f"{100 * means['test_accuracy']:.2f}")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def figure(config: Config, rows: list[Row], path: Path) -> None:
    """For each kind of hypers, the validation error on fresh seeds of each repetition, relative to the average's."""
    average = average_name(config)
    drawn, axes = plt.subplots(1, len(KINDS), figsize=(11, 3.2), sharey=True, layout="constrained")
    for axis, kind in zip(axes, KINDS, strict=True):
        validation = dict(columns(rows, kind, "validation"))
        names = [name for name in validation if name not in ("nothing", average)]
        for i, name in enumerate(names):
            differences = validation[name] - validation[average]
            mean, half = statistics.interval(differences)
            axis.plot(differences, np.full(len(differences), i), "o", color="tab:blue", alpha=0.4)
            axis.errorbar(mean, i, xerr=None if np.isnan(half) else half, fmt="s", color="black", capsize=4)
        axis.axvline(0, color="grey", linewidth=1)
        axis.set(
            title=kind, xlabel=f"validation error on fresh seeds, minus that of {average}", ylim=(-0.5, len(names) - 0.5)
        )
        axis.set_yticks(range(len(names)), names)
    figures.add_grids(axes)
    figures.save_figure(drawn, path)

"""The table and the figure of the comparison with random search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.common import figures
from experiments.common.results import write_text
from experiments.keras_real_time.experiment import Config, Record


def write(output: Path, records: Sequence[Record], config: Config) -> str:
    """Writes the table and the figure; returns the table."""
    learning_rates(records, config, output / "learning_rates")
    text = table(records)
    write_text(output / "table.md", text)
    return text


def table(records: Sequence[Record]) -> str:
    """One row per method and number of hypers: means over the seeds, and the seed with the worst comparison."""
    lines = ["| hypers | method | test accuracy, % | - random search | worst seed | seconds | time / random search |"]
    lines.append("|---|---|---|---|---|---|---|")
    for hypers in sorted({r["number_of_hypers"] for r in records}):
        with_hypers = [r for r in records if r["number_of_hypers"] == hypers]
        baseline = {r["seed"]: r["test"] for r in with_hypers if r["method"].startswith("random")}
        for method in dict.fromkeys(r["method"] for r in with_hypers):
            rows = [r for r in with_hypers if r["method"] == method]
            points = [100 * (r["test"] - baseline[r["seed"]]) for r in rows]
            test, seconds, ratio = (np.mean([r[key] for r in rows]) for key in ("test", "seconds", "ratio"))
            difference = f"{np.mean(points):+.2f} | {min(points):+.2f}"
            lines.append(f"| {hypers} | {method} | {100 * test:.2f} | {difference} | {seconds:.1f} | {ratio:.2f} |")
    return "\n".join(lines) + "\n"


def learning_rates(records: Sequence[Record], config: Config, path: Path) -> None:
    """Plots the learning rate and the validation loss against training steps, for the first seed."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for record in records:
        if record["seed"] == config.seeds[0] and "way" in record:
            number, trajectory = record["number_of_hypers"], record["way"]
            steps = config.hyper_batch * (1 + np.arange(len(trajectory["value"])))
            label = f"{record['method'].removeprefix('real time, ')}, {number} hyper{'s' * (number > 1)}"
            style = "-" if number == 1 else "--"
            axes[0].semilogy(steps, trajectory["learning_rate"], style, label=label)
            axes[1].semilogy(steps, trajectory["value"], style)
    axes[0].set(title="Learning rate", xlabel="training steps")
    axes[1].set(title="Loss on 500 validation digits", xlabel="training steps", ylabel="cross-entropy, bounded")
    figure.legend(loc="outside lower center", ncols=4)
    figures.add_grids(axes)
    figures.save_figure(figure, path)

"""The table and the figure of the comparison with random search."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np

from experiments.common.figures import add_grids
from experiments.common.pool import Row
from experiments.common.study import Caption, Study
from experiments.common.tables import Table, groups, mean, where, without
from experiments.keras_real_time.experiment import PRESETS, Config, check, compute, results, units


def table(rows: Sequence[Row]) -> str:
    """One row per method and number of hypers: means over the seeds, and the seed with the worst comparison."""
    titles = ("test accuracy, %", "- random search", "worst seed", "seconds", "time / random search")
    made = Table("hypers", "method", *titles)
    for with_hypers in sorted(groups(rows, "number_of_hypers"), key=lambda group: group[0]["number_of_hypers"]):
        search = {row["seed"]: row["test"] for row in with_hypers if row["method"].startswith("random")}
        for group in groups(with_hypers, "method"):
            points = [100 * (row["test"] - search[row["seed"]]) for row in group]
            test, seconds, ratio = (mean(group, key) for key in ("test", "seconds", "ratio"))
            difference = f"{np.mean(points):+.2f}", f"{min(points):+.2f}"
            about = (group[0][key] for key in ("number_of_hypers", "method"))
            made.add(*about, f"{100 * test:.2f}", *difference, f"{seconds:.1f}", f"{ratio:.2f}")
    return str(made)


def figures(config: Config, rows: Sequence[Row]) -> dict[str, plt.Figure]:
    """The learning rate and the validation loss against training steps, for the first seed."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for row in where(rows, seed=config.seeds[0]):
        if "way" in row:
            number, trajectory = row["number_of_hypers"], row["way"]
            steps = config.hyper_batch * (1 + np.arange(len(trajectory["value"])))
            label = f"{row['method'].removeprefix('real time, ')}, {number} hyper{'s' * (number > 1)}"
            style = "-" if number == 1 else "--"
            axes[0].semilogy(steps, trajectory["learning_rate"], style, label=label)
            axes[1].semilogy(steps, trajectory["value"], style)
    axes[0].set(title="Learning rate", xlabel="training steps")
    axes[1].set(title="Loss on 500 validation digits", xlabel="training steps", ylabel="cross-entropy, bounded")
    figure.legend(loc="outside lower center", ncols=4)
    add_grids(axes)
    return {"learning_rates": figure}


STUDY = Study(
    "keras_real_time",
    "A Keras model in real time",
    "A CNN is trained once from a bad learning rate, compared with the best of many random trials.",
    Config, PRESETS, units, compute, lambda config, rows, output: {"table.md": table(rows)}, figures,
    {
        "table.md": Caption("Test accuracy and seconds of each method; means over seeds"),
        "learning_rates.png": Caption("Learning rate and validation loss while the CNN trains"),
    },
    results,
    recorded=lambda rows: without(rows, "run", "way"),
    timing=("seconds", "ratio"),
    check=check,
)  # fmt: skip

"""Tables and figure of the weights learned online."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from data.mnist import NoisySplit
from experiments.common import figures
from experiments.common.results import write_text
from experiments.online_weights.experiment import DOUBTED, ONES, ONLINE, ORACLE, Config, Outcome, Row

METHODS = {ONLINE: "tab:blue", ONES: "tab:red", ORACLE: "tab:green"}
COLUMNS = {
    "validation error": (1, 3),
    "best validation error": (1, 3),
    "test accuracy": (100, 2),
    "best test accuracy": (100, 2),
    "F1": (1, 4),
    "F1 of zeros": (1, 4),
}
TITLES = (
    "weights", "validation error", "at best", "test accuracy %", "at best", f"F1, weight < {DOUBTED:g}", "F1, weight = 0",
)  # fmt: skip


def write(output: Path, config: Config, outcome: Outcome, split: NoisySplit) -> str:
    """Writes the tables and the figure; returns what to print. `split` is that of the first seed."""
    main, chosen = table(outcome.rows), calibration_table(outcome)
    write_text(output / "table.md", main)
    write_text(output / "calibration.md", chosen)
    draw(config, outcome, split, output / "online_weights")
    return f"{chosen}\n{main}\nWritten to {output}: table.md, calibration.md, online_weights.png, results.json."


def table(rows: list[Row]) -> str:
    """One line per method: means over the seeds ± half the range."""
    lines = [f"| {' | '.join(TITLES)} |", "|---" * len(TITLES) + "|"]
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        cells = [_spread([row[name] for row in own if name in row], *form) for name, form in COLUMNS.items()]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def calibration_table(outcome: Outcome) -> str:
    """The validation error of each setting that was tried, in the order of the protocol."""
    lines = ["| step | setting | validation error |", "|---|---|---|"]
    rate, hyper_batch, hyper_rate = outcome.choice
    for row in outcome.calibration:
        if "learning rate" in row:
            step, name, chosen = 1, f"learning rate {row['learning rate']:g}", row["learning rate"] == rate
        else:
            step, name = 2, f"hyper-batch {row['hyper-batch']}, hyper-rate {row['hyper-rate']:g}"
            chosen = (row["hyper-batch"], row["hyper-rate"]) == (hyper_batch, hyper_rate)
        lines.append(f"| {step} | {name}{', chosen' if chosen else ''} | {row['validation error']:.3f} |")
    return "\n".join(lines) + "\n"


def _spread(values: list[float], scale: float, digits: int) -> str:
    if not values:
        return "-"
    scaled = scale * np.array(values)
    mean = f"{np.mean(scaled):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.ptp(scaled) / 2:.{digits}f}"


def draw(config: Config, outcome: Outcome, split: NoisySplit, path: Path) -> None:
    """Validation errors, mean weights and F1 against epochs, and the last weights, all of the first seed."""
    seed = config.seeds[0]
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13.5, 4.2), layout="constrained")
    for method, colour in METHODS.items():
        left.plot(*_course(config, outcome, method, seed, "value"), color=colour, label=method)
    left.set(title="Error on the validation digits", xlabel="epochs", ylabel="cross-entropy", yscale="log")
    for name, colour in (("mean weight, right", "tab:green"), ("mean weight, wrong", "tab:red")):
        middle.plot(*_course(config, outcome, ONLINE, seed, name), color=colour, label=f"{name} labels")
    middle.plot(
        *_course(config, outcome, ONLINE, seed, "F1"), color="black", linestyle="--", label=f"F1, weight < {DOUBTED:g}"
    )
    middle.set(title="Weights learned online", xlabel="epochs", ylim=(0, 1.02))
    parts = [outcome.weights[seed][~split.noisy], outcome.weights[seed][split.noisy]]
    right.hist(parts, np.linspace(0, 1, 21), color=["tab:green", "tab:red"], label=["right labels", "wrong labels"])
    right.set(title="After the training", xlabel="weight", ylabel="digits")
    figures.add_grids((left, middle, right))
    for axis in (left, middle, right):
        axis.legend()
    figures.save_figure(figure, path)


def _course(config: Config, outcome: Outcome, method: str, seed: int, name: str) -> tuple[np.ndarray, list[float]]:
    """The epochs and the values of a quantity along a training."""
    values = [row[name] for row in outcome.histories[method, seed]]
    return config.epochs * (1 + np.arange(len(values))) / len(values), values

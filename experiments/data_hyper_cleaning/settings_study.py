"""How hyper-cleaning depends on T, on the two learning rates and on the number of hyper-iterations: F1 along each run.

Each setting is varied with the others at their defaults, for R = 1000 and seed 0.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import matplotlib.pyplot as plt

import rfho2 as rf
from experiments.common import figures
from experiments.common.config import setting
from experiments.data_hyper_cleaning import experiment as cleaning
from experiments.data_hyper_cleaning.report import PAPER

VARIED: dict[str, tuple[float, ...]] = {
    "steps": (10, 25, 50, 100),
    "inner_rate": (0.05, 0.1, 0.2, 0.4),
    "hyper_rate": (0.005, 0.01, 0.02, 0.04),
}
TITLES = {
    "steps": "T, inner steps",
    "inner_rate": "inner learning rate, times N / R",
    "hyper_rate": "hyper learning rate",
}
RADIUS = 1000.0

Curves = dict[tuple[str, float], list[float]]
"""F1 at each hyper-iteration, by name and value of the setting that was varied."""


@dataclasses.dataclass(frozen=True)
class Config:
    """What can be chosen for all runs together."""

    hyper_iterations: int = setting(100, "Updates of the weights in each run.", at_least=1)


def run(base: cleaning.Config, output: Path, resume: bool) -> tuple[Curves, dict[str, float]]:
    """Hyper-cleaning with every setting: the curves, and the seconds that each run took."""
    split = cleaning.load(base.source, base.seeds[0])
    curves: Curves = {}
    timing: dict[str, float] = {}
    for name, values in VARIED.items():
        for value in values:
            config = dataclasses.replace(base, **{name: type(getattr(base, name))(value)})
            label = f"T-{config.steps}-inner-{config.inner_rate:g}-hyper-{config.hyper_rate:g}"
            again = label in timing  # the defaults occur in every sweep, but run only once
            bar = rf.ProgressBar("F1", label)
            result = cleaning.clean(config, split, RADIUS, [bar], output / "runs" / label, resume or again)
            curves[name, value] = [row["F1"] for row in result.history]
            timing[label] = result.history[-1]["seconds"]
    return curves, timing


def draw(curves: Curves, base: cleaning.Config, path: Path) -> None:
    """One panel per setting; the default is the thick line."""
    figure, axes = plt.subplots(1, len(VARIED), figsize=(13, 4.2), sharey=True, layout="constrained")
    for axis, (name, values) in zip(axes, VARIED.items(), strict=True):
        for value, colour in zip(values, figures.colours(len(values)), strict=True):
            width = 2.6 if value == getattr(base, name) else 1.2
            axis.plot(curves[name, value], color=colour, linewidth=width, label=f"{value:g}")
        axis.axhline(PAPER["DH-1000"][1], color="grey", linestyle=":", linewidth=1)
        text = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "top", "fontsize": 8, "color": "grey"}
        axis.annotate("paper, DH-1000", (0.98, PAPER["DH-1000"][1]), **text)
        axis.set(title=TITLES[name], xlabel="hyper-iterations", ylim=(0.8, 0.97))
        axis.legend(loc="lower right")
    figures.add_grids(axes)
    axes[0].set_ylabel("F1 of the discarded examples")
    figures.save_figure(figure, path)

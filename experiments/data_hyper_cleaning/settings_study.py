"""What T, the two learning rates and the number of hyper-iterations do to hyper-cleaning: F1 along each run, in one figure.

    python -m experiments.hyper_cleaning_settings --output_dir=results/hyper_cleaning_settings

Each setting is varied with the others at their defaults, for R = 1000 and seed 0.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from absl import flags

import rfho2 as rf
from experiments.common import binary as common
from experiments.data_hyper_cleaning import experiment as cleaning
from experiments.data_hyper_cleaning.report import PAPER

FLAGS = flags.FLAGS
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


def run(base: cleaning.Config, output: Path, resume: bool) -> tuple[Curves, dict[str, float]]:
    """F1 after each hyper-iteration, and the seconds taken, for every setting."""
    split = cleaning.load(base.source, base.seeds[0])
    curves: Curves = {}
    timing: dict[str, float] = {}
    for name, values in VARIED.items():
        for value in values:
            config = dataclasses.replace(base, **{name: type(getattr(base, name))(value)})
            label = f"T-{config.steps}-inner-{config.inner_rate:g}-hyper-{config.hyper_rate:g}"  # the defaults run once
            bar = rf.ProgressBar("F1", label)
            result = cleaning.clean(config, split, RADIUS, [bar], output / "runs" / label, resume or label in timing)
            curves[name, value] = [row["F1"] for row in result.history]
            timing[label] = result.history[-1]["seconds"]
    return curves, timing


def draw(curves: Curves, base: cleaning.Config, path: Path) -> None:
    """One panel for each setting; the default is the thick line."""
    figure, axes = plt.subplots(1, len(VARIED), figsize=(13, 4.2), sharey=True, layout="constrained")
    for axis, (name, values) in zip(axes, VARIED.items(), strict=True):
        for value, colour in zip(values, plt.cm.viridis(np.linspace(0, 0.85, len(values))), strict=True):
            width = 2.6 if value == getattr(base, name) else 1.2
            axis.plot(curves[name, value], color=colour, linewidth=width, label=f"{value:g}")
        axis.axhline(PAPER["DH-1000"][1], color="grey", linestyle=":", linewidth=1)
        text = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "top", "fontsize": 8, "color": "grey"}
        axis.annotate("paper, DH-1000", (0.98, PAPER["DH-1000"][1]), **text)
        axis.set(title=TITLES[name], xlabel="hyper-iterations", ylim=(0.8, 0.97))
        axis.legend(loc="lower right")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("F1 of the discarded examples")
    common.save_figure(figure, path)


def main() -> None:
    """Runs them all, and draws."""
    base, output = cleaning.Config(hyper_iterations=FLAGS.hyper_iterations), Path(FLAGS.output_dir)
    curves, timing = run(base, output, FLAGS.resume)
    rows = [{"setting": name, "value": value, "f1": curve} for (name, value), curve in curves.items()]
    common.write_results(output / "results.json", base, rows, timing)
    draw(curves, base, output / "settings")
    for (name, value), curve in curves.items():
        print(f"{name:<12} {value:<6g} F1 {curve[-1]:.4f} at the end, {max(curve):.4f} at best")
    print(f"Figure: {output / 'settings.png'}")


def command_line() -> None:
    """Defines the flags and runs."""
    flags.DEFINE_string(
        "output_dir", "results/hyper_cleaning_settings", "Where results go; a stopped run goes on from here."
    )
    flags.DEFINE_integer("hyper_iterations", 100, "Updates of the weights in each run.", lower_bound=1)
    flags.DEFINE_bool("resume", True, "Go on where a stopped run in output_dir was; --noresume starts afresh.")
    common.run_main(main)

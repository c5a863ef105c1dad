"""The figure and the summary of a run."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

from experiments.common import figures
from experiments.real_time_digits.experiment import ACCURACIES, Config

History = list[dict[str, float]]


def summary(history: History, config: Config) -> str:
    """The end of the run in one sentence."""
    last = history[-1]
    accuracy = f"test accuracy {last['test accuracy']:.2%}, " if config.accuracies else ""
    hypers = f"lr {last['lr']:.4f}, momentum {last['mu']:.3f}, L2 {last['l2']:.2e}"
    return f"after {config.hyper_iterations * config.hyper_batch} steps: {accuracy}{hypers}; {last['seconds']:.0f} s."


def curves(history: History, config: Config, path: Path) -> None:
    """Plots accuracies, validation error and the three hypers against training steps."""
    steps = [(row["iteration"] + 1) * config.hyper_batch for row in history]
    figure, axes = plt.subplots(2, 2, figsize=(10, 6.5), sharex=True, layout="constrained")
    for name in ACCURACIES if config.accuracies else ():
        axes[0, 0].plot(steps, [100 * row[name] for row in history], label=name.split()[0])
    axes[0, 0].set(title="Accuracy", ylabel="%", ylim=(50, 100))
    axes[0, 1].semilogy(steps, [row["value"] for row in history], color="tab:red")
    axes[0, 1].set(title="Validation error on 500 digits", ylabel="cross-entropy")
    for name, label in (("lr", "learning rate"), ("mu", "momentum factor")):
        axes[1, 0].plot(steps, [row[name] for row in history], label=label)
    axes[1, 0].set(title="Hyperparameters of the optimiser", xlabel="training steps")
    axes[1, 1].plot(steps, [row["l2"] for row in history], color="tab:purple")
    axes[1, 1].set(title="L2 weight", xlabel="training steps")
    axes[1, 1].ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    figures.add_grids(axes.flat)
    axes[0, 0].legend()
    axes[1, 0].legend()
    figures.save_figure(figure, path)

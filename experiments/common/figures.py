"""The style of figures, and how they are saved. Importing this module selects a backend that needs no display."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np


def colours(count: int) -> np.ndarray:
    """Colours for a sequence of `count` settings, dark to light."""
    return plt.cm.viridis(np.linspace(0, 0.85, count))


def add_grids(axes: Iterable[plt.Axes]) -> None:
    """A light grid in every panel."""
    for axis in axes:
        axis.grid(alpha=0.3)


def save_figure(figure: plt.Figure, path: Path) -> None:
    """Saves the figure as `.png` and as `.pdf`, and closes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_name(path.name + ".png"), dpi=150, bbox_inches="tight")  # with_suffix would cut R=0.001 short
    figure.savefig(path.with_name(path.name + ".pdf"), bbox_inches="tight")
    plt.close(figure)


def slug(name: str) -> str:
    """The name, with underscores in place of characters that a file name should not have."""
    return re.sub(r"[^\w.=-]+", "_", name)

"""The table of a comparison, and the course of its runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from experiments.common import figures
from experiments.warm_cleaning.experiment import METHODS

COLUMNS = ("E in the run", "E trained again", "F1", "test accuracy", "seconds")


def table(rows: list[dict[str, Any]]) -> str:
    """Means over seeds, for each L2 weight and method; seconds also relative to reverse on the same seed."""
    lines = [
        "| L2 | method | E in the run | E trained again | F1 | test accuracy % | unsettled % | seconds | / reverse |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for l2 in dict.fromkeys(row["l2"] for row in rows):
        for method in METHODS:
            own = [row for row in rows if (row["l2"], row["method"]) == (l2, method)]
            if own:
                lines.append(f"| {l2:g} | {method} | {' | '.join(_cells(own, _reverse(rows, l2)))} |")
    return "\n".join(lines) + "\n"


def _reverse(rows: Iterable[dict[str, Any]], l2: float) -> dict[int, float]:
    return {row["seed"]: row["seconds"] for row in rows if (row["l2"], row["method"]) == (l2, "reverse")}


def _cells(own: list[dict[str, Any]], reverse: dict[int, float]) -> list[str]:
    mean = {name: float(np.mean([row[name] for row in own])) for name in COLUMNS}
    unsettled = [row["unsettled"] for row in own if row["unsettled"] is not None]
    ratio = np.mean([row["seconds"] / reverse[row["seed"]] for row in own])
    return [
        f"{mean['E in the run']:.4f}",
        f"{mean['E trained again']:.4f}",
        f"{mean['F1']:.4f}",
        f"{100 * mean['test accuracy']:.2f}",
        f"{100 * np.mean(unsettled):.2g}" if unsettled else "",
        f"{mean['seconds']:.0f}",
        f"{ratio:.2f}",
    ]


def write(output: Path, rows: list[dict[str, Any]], histories: dict[str, list[dict[str, float]]]) -> str:
    """Writes table.md and objective.png; returns the table."""
    text = table(rows)
    (output / "table.md").write_text(text)
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for name, history in histories.items():
        axes.plot([row["iteration"] + 1 for row in history], [row["value"] for row in history], label=name)
    axes.set(xlabel="updates of the weights", ylabel="validation error in the run")
    figures.add_grids([axes])
    axes.legend()
    figures.save_figure(figure, output / "objective")
    return text

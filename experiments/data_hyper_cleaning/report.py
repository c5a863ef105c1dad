"""Tables and figures of the hyper-cleaning experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import rfho2 as rf
from data.mnist import NoisySplit
from experiments.common import figures
from experiments.common.results import write_text
from experiments.data_hyper_cleaning.experiment import Config, History, Outcome, Row
from rfho2.core.types import Hypers

PAPER = {
    "oracle": (90.46, 1.0),
    "baseline": (87.74, None),
    "DH-1000": (90.07, 0.9137),
    "DH-1500": (90.06, 0.9244),
    "DH-2000": (90.00, 0.9211),
    "DH-2500": (90.09, 0.9217),
}

Histories = dict[tuple[float, int], History]


class FirstDiscarded(rf.Callback):
    """Records the first hyper-iteration at which each weight was 0 (-1: never), in a file that a resumed run continues."""

    def __init__(self, path: Path):
        self._path = path
        self._when: np.ndarray | None = None

    def on_start(self, run: rf.Run) -> None:
        """Reads what was recorded before the first hyper-iteration of this run."""
        self._when = np.full(run.hypers["weights"].shape, -1)
        if run.first > 0 and self._path.exists():
            before = np.load(self._path, allow_pickle=False)
            self._when = np.where(before < run.first, before, -1)

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: rf.HyperGradient, extra: dict[str, Any]) -> None:
        """Records the weights that are 0 for the first time."""
        assert self._when is not None
        self._when[(self._when < 0) & (hypers["weights"].numpy() == 0)] = k
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".draft.npy")
        np.save(draft, self._when)
        draft.replace(self._path)


def write(output: Path, config: Config, outcome: Outcome, split: NoisySplit) -> str:
    """Writes the table and the figures; returns what to print. `split` is that of the first seed."""
    table = table_1(outcome.results)
    write_text(output / "table_1.md", table)
    figure_2(outcome.histories, output / "figure_2")
    first_run = output / "runs" / f"DH-{config.radius[0]:g}-seed-{config.seeds[0]}"
    discarded_first(np.load(first_run / "first_discarded.npy", allow_pickle=False), split, output / "discarded_first")
    return f"{table}\nWritten to {output}: table_1.md, figure_2.png, discarded_first.png, results.json, runs/*/history.csv."


def table_1(results: list[Row]) -> str:
    """Table 1, ours and the paper's: means over the seeds ± half the distance between the extremes."""
    methods = list(dict.fromkeys(row["method"] for row in results))
    seeds = len({row["seed"] for row in results})
    ours = f"accuracy % ({seeds} seed{'s' if seeds > 1 else ''})"
    titles = ["method", ours, "F1", "discarded", "accuracy %, weighted fit", "paper: accuracy %", "paper: F1"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for method in methods:
        rows = [row for row in results if row["method"] == method]
        accuracy, f1 = PAPER.get(method, (None, None))
        cells = [
            _spread([row["accuracy"] for row in rows], 100, 2),
            _spread([row["f1"] for row in rows], 1, 4),
            _spread([row.get("discarded") for row in rows], 1, 0),
            _spread([row["accuracy_weighted"] for row in rows], 100, 2),
            "-" if accuracy is None else f"{accuracy:.2f}",
            "-" if f1 is None else f"{f1:.4f}",
        ]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _spread(values: list[float | None], scale: float, digits: int) -> str:
    scaled = [scale * value for value in values if value is not None]
    if not scaled:
        return "-"
    mean = f"{np.mean(scaled):.{digits}f}"
    return mean if len(scaled) == 1 or np.ptp(scaled) == 0 else f"{mean} ± {np.ptp(scaled) / 2:.{digits}f}"


def figure_2(histories: Histories, path: Path) -> None:
    """Figure 2: accuracies, and true and false positives; one line per R, the mean over the seeds."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    radii = list(dict.fromkeys(radius for radius, _ in histories))
    for radius, colour in zip(radii, figures.colours(len(radii)), strict=True):
        runs = [history for (r, _), history in histories.items() if r == radius]
        k = [row["iteration"] for row in runs[0]]
        mean = {name: np.mean([[row[name] for row in run] for run in runs], axis=0) for name in runs[0][0]}
        left.plot(k, 100 * mean["validation accuracy"], color=colour, linestyle="--")
        left.plot(k, 100 * mean["test accuracy"], color=colour, label=f"R = {radius:g}")
        right.plot(k, mean["TP"], color=colour, label=f"R = {radius:g}")
        right.plot(k, mean["FP"], color=colour, linestyle="--")
    left.set(xlabel="hyper-iterations", ylabel="accuracy, %", title="Inner model: test (solid), validation (dashed)")
    right.set(
        xlabel="hyper-iterations", ylabel="examples", title="Discarded: corrupted (solid), clean (dashed)", ylim=(0, None)
    )
    figures.add_grids((left, right))
    for axis in (left, right):
        axis.legend()
    figures.save_figure(figure, path)


def discarded_first(when: np.ndarray, split: NoisySplit, path: Path, count: int = 40) -> None:
    """Draws the digits that were discarded first, with their given labels, and the true ones where these differ."""
    order = np.lexsort((np.arange(len(when)), np.where(when < 0, np.iinfo(when.dtype).max, when)))
    chosen = [i for i in order[:count] if when[i] >= 0]
    columns = 10
    rows = max(1, -(-len(chosen) // columns))
    figure, axes = plt.subplots(rows, columns, figsize=(11, 1.45 * rows + 0.5), layout="constrained", squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for axis, i in zip(axes.flat, chosen, strict=False):
        axis.imshow(split.train.images[i].reshape(28, 28), cmap="gray_r")
        given, true = split.train.labels[i], split.true_labels[i]
        axis.set_title(
            f"{given}, is {true}" if split.noisy[i] else f"{given}, correct",
            fontsize=9,
            color="tab:red" if split.noisy[i] else "tab:green",
        )
    figure.suptitle(
        f"The first {len(chosen)} discarded digits: given label, and what the digit is (red: corrupted, green: clean)"
    )
    figures.save_figure(figure, path)

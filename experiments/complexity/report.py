"""Tables and figure of the cost of hypergradients, with the paper's numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D

from experiments.common.figures import save_figure
from experiments.common.results import write_text
from experiments.complexity.tasks import METHODS, Row, checkpoints

COLOURS = dict(zip(METHODS, ("tab:blue", "tab:cyan", "tab:green", "tab:red"), strict=True))


class Panel(NamedTuple):
    """What is shown against what.

    Attributes:
      name: as in `Task.panel`.
      by: the field on the horizontal axis, and `title` of its column.
      key: the measured field, multiplied by `scale`.
      paper: the paper's numbers, by method and then by the value of `by`.
    """

    name: str
    by: str
    title: str
    key: str
    scale: float
    paper: Mapping[str, Mapping[int, float]]

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        """Those of the panel's methods."""
        return [row for row in rows if row["panel"] == self.name and row["method"] in METHODS]


SECONDS = Panel(
    "seconds", "hypers", "hypers m", "seconds", 1.0,
    {"reverse": {4: 20.0, 9: 22.0, 22: 27.0}, "forward": {4: 18.0, 9: 45.0, 22: 133.0}},
)  # fmt: skip
MEMORY = Panel("memory", "weights", "weights", "peak_bytes", 1e-9, {"reverse": {165_000: 1.2, 335_000: 2.5, 640_000: 4.9}})


def write(output: Path, rows: list[Row]) -> str:
    """Writes tables and figure; returns what to print."""
    text = table(rows)
    write_text(output / "table.md", text)
    figure_a(rows, output / "figure_a")
    return f"{text}\nWritten to {output}: table.md, figure_a.png, results.json, measurements.json."


def table(rows: list[Row]) -> str:
    """Seconds for each number of hypers, GB for each number of weights; the measurements that failed, and why."""
    seconds, memory = SECONDS.rows(rows), MEMORY.rows(rows)
    parts = []
    if seconds:
        parts += [_title(seconds, "Seconds per hypergradient", f"{seconds[0]['weights']:,} weights")]
        parts += [_grid(seconds, SECONDS)]
    parts += [f"Plain training: {_cell(row, SECONDS)} s.\n" for row in rows if row["method"] == "plain"]
    if memory:
        parts += [_title(memory, "Peak memory in GB", f"{memory[0]['hypers']} hypers")]
        parts += [_grid(memory, MEMORY)]
    if any(row["extrapolated"] for row in rows):
        parts += ["≈ extrapolated from fewer steps, or predicted from the states that are kept.\n"]
    missing = [_missing(row) for row in rows if row["missing"]]
    return "\n".join(parts + (["Not measured:\n\n" + "\n".join(missing) + "\n"] if missing else []))


def _title(rows: list[Row], what: str, fixed: str) -> str:
    return f"{what}, T = {rows[0]['steps']}, {fixed}\n"


def _missing(row: Row) -> str:
    return f"- {row['panel']}, {row['method']}, m = {row['hypers']}, h = {row['hidden']}: {row['missing']}"


def _grid(rows: list[Row], panel: Panel) -> str:
    titles = [panel.title, *(label(method, rows[0]) for method in METHODS), *(f"paper: {m}" for m in panel.paper)]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for x in sorted({row[panel.by] for row in rows}):
        at_x = {row["method"]: _cell(row, panel) for row in rows if row[panel.by] == x}
        ours = [at_x.get(method, "-") for method in METHODS]
        papers = [_nearby(points, x) for points in panel.paper.values()]
        lines.append(f"| {' | '.join([f'{x:,}', *ours, *papers])} |")
    return "\n".join(lines) + "\n"


def _nearby(points: Mapping[int, float], x: int) -> str:
    """The paper's number at x; it gives its numbers of weights rounded."""
    return next((f"{y:g}" for at, y in points.items() if abs(at / x - 1) < 0.01), "-")


def _cell(row: Row, panel: Panel) -> str:
    if row[panel.key] is None:
        return "-"
    value = panel.scale * row[panel.key]
    return ("≈ " if row["extrapolated"] else "") + (f"{value:,.0f}" if value >= 100 else f"{value:.3g}")


def label(method: str, row: Row) -> str:
    """A method with its setting."""
    settings = {
        "checkpointed": f"reverse, {checkpoints(row['steps'])} checkpoints",
        "truncated": f"reverse, last {row['truncate']} steps",
        "plain": "plain training",
    }
    return settings.get(method, method)


def figure_a(rows: list[Row], path: Path) -> None:
    """Seconds against hypers, and memory against weights; hollow where extrapolated, the paper's points in grey."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    for axis, panel in ((left, SECONDS), (right, MEMORY)):
        _draw(axis, panel, rows)
    for row in rows:
        if row["method"] == "plain" and row["seconds"]:
            left.axhline(row["seconds"], color="black", linestyle="--", linewidth=1)
    steps, sizes = rows[0]["steps"], {f"{row['weights']:,}" for row in rows if row["panel"] == "seconds"}
    left.set(xlabel="number of hypers m", ylabel="seconds per hypergradient")
    left.set_title(f"Time, T = {steps}, {', '.join(sorted(sizes))} weights")
    right.set(xlabel="number of weights", ylabel="peak memory, GB", title=f"Memory, T = {steps}, 2 hypers")
    figure.legend(handles=_legend(rows[0]), loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, path)


def _draw(axis: plt.Axes, panel: Panel, rows: list[Row]) -> None:
    for method in METHODS:
        measured = [r for r in panel.rows(rows) if r["method"] == method and r[panel.key] is not None]
        points = [(r[panel.by], panel.scale * r[panel.key], r["extrapolated"]) for r in measured]
        _curve(axis, points, COLOURS[method])
    for method, numbers in panel.paper.items():
        axis.plot(list(numbers), list(numbers.values()), **_paper_style(method))
    axis.set(xscale="log", yscale="log")
    _ticks(axis, sorted({row[panel.by] for row in panel.rows(rows)}))


def _curve(axis: plt.Axes, points: Sequence[tuple[float, float, bool]], colour: str) -> None:
    if points:
        axis.plot([x for x, *_ in points], [y for _, y, _ in points], color=colour, linewidth=1.2)
    for hollow in (False, True):
        shown = [(x, y) for x, y, extrapolated in points if extrapolated == hollow]
        axis.plot(*np.reshape(shown, (-1, 2)).T, "o", color=colour, markerfacecolor="white" if hollow else colour)


def _ticks(axis: plt.Axes, values: Sequence[int]) -> None:
    """Ticks where something was measured, unless they would be crowded."""
    apart = [x for i, x in enumerate(values) if i == 0 or x > 1.4 * values[i - 1]]
    axis.set_xticks(apart, [f"{x / 1e6:.1f} M" if x >= 1e6 else f"{x / 1e3:.0f} k" if x >= 1e4 else f"{x}" for x in apart])
    axis.tick_params(axis="x", labelsize=9)
    axis.set_xticks([], minor=True)
    axis.grid(alpha=0.3)


def _paper_style(method: str) -> dict[str, Any]:
    return {"color": "0.55", "linestyle": "none", "markersize": 4, "marker": "^" if method == "forward" else "s"}


def _legend(row: Row) -> list[Line2D]:
    """The paper's points come last: they are from other hardware."""
    ours = [Line2D([], [], color=COLOURS[m], marker="o", label=label(m, row)) for m in METHODS]
    plain = Line2D([], [], color="black", linestyle="--", linewidth=1, label="plain training")
    hollow = Line2D(
        [], [], color="0.3", marker="o", linestyle="none", markerfacecolor="white", label="extrapolated or predicted"
    )
    paper = [Line2D([], [], label=f"paper: {m} (other hardware)", **_paper_style(m)) for m in SECONDS.paper]
    return [*ours, plain, hollow, *paper]

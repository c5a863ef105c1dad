"""Tables, figure and slopes of the cost of hypergradients."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D

from experiments.common import binary as common

METHODS = ("reverse", "checkpointed", "truncated", "forward")
COLOURS = dict(zip(METHODS, ("tab:blue", "tab:cyan", "tab:green", "tab:red"), strict=True))
PAPER_SECONDS = {"reverse": {4: 20.0, 9: 22.0, 22: 27.0}, "forward": {4: 18.0, 9: 45.0, 22: 133.0}}  # by hypers
PAPER_GB = {"reverse": {165_000: 1.2, 335_000: 2.5, 640_000: 4.9}}  # by weights

Row = dict[str, Any]
Point = tuple[str, int, int]
"""(method, steps, hypers)."""


def weights_of(hidden: int) -> int:
    """Of a 784-hidden-hidden-10 network."""
    return 785 * hidden + (hidden + 1) * hidden + (hidden + 1) * 10


def checkpoints(steps: int) -> int:
    """2 sqrt(T), rounded up, but fewer than T: with as many nothing would be computed again."""
    return max(1, min(math.ceil(2 * math.sqrt(steps)), steps - 1))


def write(output: Path, rows: list[Row]) -> str:
    """Writes tables and figure; returns what to print."""
    text = table(rows)
    common.write_text(output / "table.md", text)
    figure_a(rows, output / "figure_a")
    return f"{text}\nWritten to {output}: table.md, figure_a.png, results.json, measurements.json."


def table(rows: list[Row]) -> str:
    """Seconds for each number of hypers, GB for each number of weights; what could not be measured, and why."""
    seconds = [row for row in rows if row["panel"] == "seconds" and row["method"] != "plain"]
    memory = [row for row in rows if row["panel"] == "memory"]
    parts = []
    if seconds:
        parts += [_title(seconds, "Seconds per hypergradient", f"{seconds[0]['weights']:,} weights")]
        parts += [_grid(seconds, "hypers", "seconds", 1.0, "hypers m", PAPER_SECONDS)]
    parts += [f"Plain training: {_cell(row, 'seconds', 1.0)} s.\n" for row in rows if row["method"] == "plain"]
    if memory:
        parts += [_title(memory, "Peak memory in GB", f"{memory[0]['hypers']} hypers")]
        parts += [_grid(memory, "weights", "peak_bytes", 1e-9, "weights", PAPER_GB)]
    if any(row["extrapolated"] for row in rows):
        parts += ["≈ extrapolated from fewer steps, or predicted from the states that are kept.\n"]
    missing = [f"- {r['panel']}, {r['method']}, m = {r['hypers']}, h = {r['hidden']}: {r['missing']}" for r in rows]
    missing = [line for line, row in zip(missing, rows, strict=True) if row["missing"]]
    return "\n".join(parts + (["Not measured:\n\n" + "\n".join(missing) + "\n"] if missing else []))


def _title(rows: list[Row], what: str, fixed: str) -> str:
    return f"{what}, T = {rows[0]['steps']}, {fixed}\n"


def _grid(rows: list[Row], by: str, key: str, scale: float, name: str, paper: Mapping[str, Mapping[int, float]]) -> str:
    titles = [name, *(label(method, rows[0]) for method in METHODS), *(f"paper: {method}" for method in paper)]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for x in sorted({row[by] for row in rows}):
        cells = [
            next((_cell(r, key, scale) for r in rows if r[by] == x and r["method"] == method), "-") for method in METHODS
        ]
        theirs = [next((f"{y:g}" for at, y in points.items() if abs(at / x - 1) < 0.01), "-") for points in paper.values()]
        lines.append(f"| {' | '.join([f'{x:,}', *cells, *theirs])} |")
    return "\n".join(lines) + "\n"


def _cell(row: Row, key: str, scale: float) -> str:
    if row[key] is None:
        return "-"
    value = scale * row[key]
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
    panels = (
        (left, "seconds", "hypers", "seconds", 1.0, PAPER_SECONDS),
        (right, "memory", "weights", "peak_bytes", 1e-9, PAPER_GB),
    )
    for axis, panel, by, key, scale, paper in panels:
        for method in METHODS:
            known = [r for r in rows if r["panel"] == panel and r["method"] == method and r[key] is not None]
            _curve(axis, [(r[by], scale * r[key], r["extrapolated"]) for r in known], COLOURS[method])
        for method, points in paper.items():
            axis.plot(list(points), list(points.values()), **_theirs(method))
        axis.set(xscale="log", yscale="log")
        _ticks(axis, sorted({r[by] for r in rows if r["panel"] == panel}))
    for row in rows:
        if row["method"] == "plain" and row["seconds"]:
            left.axhline(row["seconds"], color="black", linestyle="--", linewidth=1)
    steps, sizes = rows[0]["steps"], {f"{r['weights']:,}" for r in rows if r["panel"] == "seconds"}
    left.set(xlabel="number of hypers m", ylabel="seconds per hypergradient")
    left.set_title(f"Time, T = {steps}, {', '.join(sorted(sizes))} weights")
    right.set(xlabel="number of weights", ylabel="peak memory, GB", title=f"Memory, T = {steps}, 2 hypers")
    figure.legend(handles=_legend(rows[0]), loc="outside lower center", ncols=4, frameon=False)
    common.save_figure(figure, path)


def _curve(axis: plt.Axes, points: Sequence[tuple[float, float, bool]], colour: str) -> None:
    if points:
        axis.plot([x for x, *_ in points], [y for _, y, _ in points], color=colour, linewidth=1.2)
    for hollow in (False, True):
        shown = [(x, y) for x, y, extrapolated in points if extrapolated == hollow]
        axis.plot(*np.reshape(shown, (-1, 2)).T, "o", color=colour, markerfacecolor="white" if hollow else colour)


def _ticks(axis: plt.Axes, values: Sequence[int]) -> None:
    """Where something was measured, unless that would be crowded."""
    apart = [x for i, x in enumerate(values) if i == 0 or x > 1.4 * values[i - 1]]
    axis.set_xticks(apart, [f"{x / 1e6:.1f} M" if x >= 1e6 else f"{x / 1e3:.0f} k" if x >= 1e4 else f"{x}" for x in apart])
    axis.tick_params(axis="x", labelsize=9)
    axis.set_xticks([], minor=True)
    axis.grid(alpha=0.3)


def _theirs(method: str) -> dict[str, Any]:
    return {"color": "0.55", "linestyle": "none", "markersize": 4, "marker": "^" if method == "forward" else "s"}


def _legend(row: Row) -> list[Line2D]:
    """The paper's points last: they come from another machine."""
    ours = [Line2D([], [], color=COLOURS[m], marker="o", label=label(m, row)) for m in METHODS]
    plain = Line2D([], [], color="black", linestyle="--", linewidth=1, label="plain training")
    hollow = Line2D(
        [], [], color="0.3", marker="o", linestyle="none", markerfacecolor="white", label="extrapolated or predicted"
    )
    paper = [Line2D([], [], label=f"paper: {m} (other hardware)", **_theirs(m)) for m in PAPER_SECONDS]
    return [*ours, plain, hollow, *paper]


@dataclasses.dataclass(frozen=True)
class SlopeConfig:
    """What the slopes are fitted to: steps at three hypers, and numbers of hypers at few steps, on a smaller network."""

    steps: tuple[int, ...] = (100, 200, 400, 800, 1600)
    forward_hypers: tuple[int, ...] = (10, 20, 50, 100, 200, 500, 1000)
    forward_steps: int = 10
    reverse_hypers: tuple[int, ...] = (10, 100, 1000, 5000)
    reverse_steps: int = 100
    hidden: tuple[int, ...] = (50,)
    batch: int = 50
    validation: int = 500
    rounds: int = 5


class Law(NamedTuple):
    """Seconds of a method against T or m, and the slopes wanted; `at` gives (steps, hypers) of a value."""

    method: str
    against: str
    values: tuple[int, ...]
    at: Callable[[int], tuple[int, int]]
    least: float
    most: float

    def points(self) -> list[tuple[Point, Point]]:
        """For each value what is timed, and the call of one step that is subtracted."""
        places = map(self.at, self.values)
        return [((self.method, steps, hypers), (self.method, 1, hypers)) for steps, hypers in places]


def laws(config: SlopeConfig) -> list[Law]:
    """In proportion to T, all; in proportion to m, forward mode; not at all with m, reverse mode."""
    methods = ("plain", "reverse", "checkpointed", "forward", "real time")
    with_steps = [Law(method, "T", config.steps, lambda steps: (steps, 3), 0.95, 1.05) for method in methods]
    forward = Law("forward", "m", config.forward_hypers, lambda m: (config.forward_steps, m), 0.9, 1.05)
    reverse = Law("reverse", "m", config.reverse_hypers, lambda m: (config.reverse_steps, m), -math.inf, 0.1)
    return [*with_steps, forward, reverse]


def fitted(law: Law, seconds: Mapping[Point, float]) -> Row:
    """The slope of a law, with the seconds it was fitted to."""
    net = [seconds[point] - seconds[base] for point, base in law.points()]
    limits = {"least": law.least if math.isfinite(law.least) else None, "most": law.most}
    timed = {"method": law.method, "against": law.against, "values": law.values, "seconds": net}
    return timed | {"slope": slope(law.values, net)} | limits


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Least squares of log y against log x; NaN where noise left nothing to take the logarithm of."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0]) if min(y) > 0 else float("nan")


def slope_table(rows: list[Row]) -> str:
    """Slopes beside what they should be."""
    lines = ["| seconds of | slope | wanted | met |", "|---|---|---|---|"]
    for row in rows:
        low, high = row["least"], row["most"]
        wanted = f"< {high:g}" if low is None else f"{low:g} .. {high:g}"
        good = row["slope"] <= high and (low is None or row["slope"] >= low)
        extent = f"{row['against']} from {row['values'][0]:,} to {row['values'][-1]:,}"
        lines.append(f"| {row['method']}, {extent} | {row['slope']:z.3f} | {wanted} | {'yes' if good else 'no'} |")
    return "\n".join(lines) + "\n"

"""How the seconds of a hypergradient grow with the steps T and the number of hypers m: log-log slopes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from experiments.common import timing
from experiments.complexity.measure import caller, problem
from experiments.complexity.tasks import Row

Point = tuple[str, int, int]
"""(method, steps, hypers)."""


@dataclasses.dataclass(frozen=True)
class SlopeConfig:
    """What the slopes are fitted to: several T with three hypers, and several m with few steps, on a smaller network."""

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
    """How the seconds of a method should grow.

    Attributes:
      against: "T" or "m".
      values: of T or m.
      at: value -> (steps, hypers).
      least, most: the bounds of the slope.
    """

    method: str
    against: str
    values: tuple[int, ...]
    at: Callable[[int], tuple[int, int]]
    least: float
    most: float

    def points(self) -> list[tuple[Point, Point]]:
        """For each value, the point that is timed and the call of one step whose time is subtracted."""
        places = map(self.at, self.values)
        return [((self.method, steps, hypers), (self.method, 1, hypers)) for steps, hypers in places]


def laws(config: SlopeConfig) -> list[Law]:
    """All methods in proportion to T, forward mode in proportion to m, reverse mode independent of m."""
    methods = ("plain", "reverse", "checkpointed", "forward", "real time")
    with_steps = [Law(method, "T", config.steps, lambda steps: (steps, 3), 0.95, 1.05) for method in methods]
    forward = Law("forward", "m", config.forward_hypers, lambda m: (config.forward_steps, m), 0.9, 1.05)
    reverse = Law("reverse", "m", config.reverse_hypers, lambda m: (config.reverse_steps, m), -math.inf, 0.1)
    return [*with_steps, forward, reverse]


def measure_slopes(config: SlopeConfig) -> list[Row]:
    """The slopes of all laws, from the medians of interleaved calls minus those of calls with one step."""
    points = sorted({point for law in laws(config) for pair in law.points() for point in pair})
    calls = {
        (method, steps, m): caller(method, problem(steps, m, config.batch, config.validation), config.hidden, m)
        for method, steps, m in points
    }
    for call in tqdm(calls.values(), desc="compiling"):
        call()
    seconds = timing.interleaved(calls, config.rounds, title="rounds")
    medians = {point: float(np.median(values)) for point, values in seconds.items()}
    return [fitted(law, medians) for law in laws(config)]


def fitted(law: Law, seconds: Mapping[Point, float]) -> Row:
    """The slope of a law, with the seconds it was fitted to."""
    net = [seconds[point] - seconds[base] for point, base in law.points()]
    limits = {"least": law.least if math.isfinite(law.least) else None, "most": law.most}
    timed = {"method": law.method, "against": law.against, "values": law.values, "seconds": net}
    return timed | {"slope": slope(law.values, net)} | limits


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The least-squares slope of log y against log x; NaN where noise left a y that is not positive."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0]) if min(y) > 0 else float("nan")


def table(rows: list[Row]) -> str:
    """The slopes and their bounds."""
    lines = ["| seconds of | slope | wanted | met |", "|---|---|---|---|"]
    for row in rows:
        low, high = row["least"], row["most"]
        wanted = f"< {high:g}" if low is None else f"{low:g} .. {high:g}"
        met = row["slope"] <= high and (low is None or row["slope"] >= low)
        extent = f"{row['against']} from {row['values'][0]:,} to {row['values'][-1]:,}"
        lines.append(f"| {row['method']}, {extent} | {row['slope']:z.3f} | {wanted} | {'yes' if met else 'no'} |")
    return "\n".join(lines) + "\n"

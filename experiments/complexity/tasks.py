"""One measurement of the cost of a hypergradient: what is measured, and the memory that it is expected to need."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from rfho2.hypergradients.sensitivity import MAX_CHUNK

METHODS = ("reverse", "checkpointed", "truncated", "forward")

Row = dict[str, Any]
"""A task with its measurements, as the JSON files have it."""


class Task(NamedTuple):
    """One measurement.

    Attributes:
      panel: "seconds" or "memory".
      method: one of METHODS, or "plain" for training without a hypergradient.
      hypers: m, the number of hypers.
      hidden: units of each of the two hidden layers.
      steps: T.
      truncate: k of truncated reverse mode.
      rounds: timed calls, of which the best counts.
      timed: two lengths from which the seconds are extrapolated; None runs all T steps.
    """

    panel: str
    method: str
    hypers: int
    hidden: int
    steps: int
    truncate: int
    rounds: int
    timed: tuple[int, int] | None = None

    @classmethod
    def of(cls, row: Row) -> Task:
        """The task of a row of a JSON file."""
        timed = row["timed"] and tuple(row["timed"])
        return cls(**{name: row[name] for name in cls._fields} | {"timed": timed})


def weights_of(hidden: int) -> int:
    """The number of weights of a 784-hidden-hidden-10 network."""
    return 785 * hidden + (hidden + 1) * hidden + (hidden + 1) * 10


def checkpoints(steps: int) -> int:
    """2 sqrt(T), rounded up, but fewer than T: with T checkpoints nothing would be recomputed."""
    return max(1, min(math.ceil(2 * math.sqrt(steps)), steps - 1))


def predicted_bytes(task: Task) -> int:
    """The memory of what a method keeps: states, or columns of Z; each has two float32 numbers per weight."""
    steps = task.timed[1] if task.timed else task.steps
    states = {"reverse": steps, "checkpointed": checkpoints(steps), "truncated": min(task.truncate, steps)}
    return states.get(task.method, min(task.hypers, MAX_CHUNK)) * 2 * 4 * weights_of(task.hidden)

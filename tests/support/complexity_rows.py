"""Rows of the complexity experiment, as its measurements write them."""

from __future__ import annotations

from typing import Any

from experiments.complexity.tasks import Row, Task, weights_of


def forward_task(hypers: int, steps: int = 1000, **changes: Any) -> Task:
    """The seconds of forward mode."""
    return Task("seconds", "forward", hypers, 200, steps, 100, 2, **changes)


def measured(task: Task, seconds: float | None = 1.0, peak: int | None = None, **changes: Any) -> Row:
    """The row of a task."""
    numbers = {"weights": weights_of(task.hidden), "seconds": seconds, "peak_bytes": peak}
    return {**task._asdict(), **numbers, "extrapolated": bool(task.timed), "missing": None, **changes}

"""A progress bar for budgets in minutes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

import rfho2 as rf
from rfho2.core.types import Hypers


class TimeBar(rf.Callback):
    """A bar over the minutes of the budget, counted from the start of this process's part of the run."""

    def __init__(self, show: Sequence[str], title: str, minutes: float):
        self._show, self._title, self._seconds = show, title, 60 * minutes

    def on_start(self, run: rf.Run) -> None:
        """Opens the bar."""
        self._began = time.perf_counter()
        self._bar = tqdm(total=round(self._seconds), desc=self._title, unit="s")

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: rf.HyperGradient, extra: dict[str, Any]) -> None:
        """Moves the bar to the present."""
        values = {**hypers, **extra}
        self._bar.set_postfix({name: f"{float(values[name]):.4g}" for name in self._show if name in values}, refresh=False)
        self._bar.update(min(round(time.perf_counter() - self._began), self._bar.total) - self._bar.n)

    def on_end(self, result: rf.Result) -> None:
        """Closes the bar and leaves it visible."""
        self._bar.close()

"""A progress bar."""

from __future__ import annotations

from typing import Any

import numpy as np
import tqdm.auto

from rfho2.core.types import HyperGradient, Hypers, Result, Run
from rfho2.monitor.base import Callback, values


class ProgressBar(Callback):
    """Hyper-iterations done and left, time left, the value and the scalar hypers (or the metrics named in `show`).

    Args:
      show: names of metrics or hypers to show instead.
      description: in front of the bar.
    """

    def __init__(self, show: str | tuple[str, ...] | None = None, description: str = "hyper-iterations"):
        self._show = (show,) if isinstance(show, str) else show
        self._description = description
        self._bar: tqdm.auto.tqdm | None = None

    def on_start(self, run: Run) -> None:
        """Opens the bar where the run goes on."""
        self._bar = tqdm.auto.tqdm(total=run.iterations, initial=run.first, desc=self._description)

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: HyperGradient, extra: dict[str, Any]) -> None:
        """Moves it on by one."""
        assert self._bar is not None
        scalars = {name: hyper for name, hyper in hypers.items() if hyper.shape.rank == 0}
        known = {**values(hypergradient), **scalars, **extra}
        shown = self._show or (*values(hypergradient), *list(scalars)[:4])
        self._bar.set_postfix({name: _short(known[name]) for name in shown if name in known}, refresh=False)
        self._bar.update()

    def on_end(self, result: Result) -> None:
        """Leaves it standing."""
        if self._bar is not None:
            self._bar.close()


def _short(value: Any) -> str:
    return f"{float(value):.4g}" if np.ndim(value) == 0 and not isinstance(value, str) else str(value)

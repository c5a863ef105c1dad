"""Shows a run as a progress bar."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import numpy as np
import tqdm.auto
from tqdm.utils import ObjectWrapper

from rfho2.core.types import HyperGradient, Hypers, Result, Run
from rfho2.monitor.base import Callback, values


class ProgressBar(Callback):
    """Shows hyper-iterations done and left, time left, the value, and up to four scalar hypers.

    The run continues where the bar cannot be written, as after Ctrl-C has also ended the `tee` behind a pipe.

    Args:
      show: names of values, hypers or metrics to show instead.
      description: text in front of the bar.
    """

    needs_state = False

    def __init__(self, show: str | tuple[str, ...] | None = None, description: str = "hyper-iterations"):
        self._show = (show,) if isinstance(show, str) else show
        self._description = description
        self._bar: tqdm.auto.tqdm | None = None

    def on_start(self, run: Run) -> None:
        """Opens the bar at the first hyper-iteration of this run."""
        self._bar = opened(total=run.iterations, initial=run.first, desc=self._description)

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: HyperGradient, extra: dict[str, Any]) -> None:
        """Advances the bar by one."""
        assert self._bar is not None
        scalars = {name: hyper for name, hyper in hypers.items() if hyper.shape.rank == 0}
        available = {**values(hypergradient), **scalars, **extra}
        shown = self._show or (*values(hypergradient), *list(scalars)[:4])
        self._bar.set_postfix({name: _short(available[name]) for name in shown if name in available}, refresh=False)
        self._bar.update()

    def on_end(self, result: Result) -> None:
        """Closes the bar, which stays on the screen."""
        if self._bar is not None:
            self._bar.close()


class _Screen(ObjectWrapper):
    """Standard error, without its errors: one inside tqdm would leave tqdm's lock held, and the process could hang."""

    def write(self, text: str) -> None:
        """Writes, if anybody reads."""
        with contextlib.suppress(OSError):
            self._wrapped.write(text)

    def flush(self) -> None:
        """Flushes, if anybody reads."""
        with contextlib.suppress(OSError):
            self._wrapped.flush()

    def __eq__(self, other: object) -> bool:  # tqdm asks for the width of the screen only if its file is standard error
        return self._wrapped is getattr(other, "_wrapped", other)

    __hash__ = None  # type: ignore[assignment]


def opened(**settings: Any) -> tqdm.auto.tqdm:
    """A bar of tqdm that does not fail where it cannot be written."""
    return tqdm.auto.tqdm(file=_Screen(sys.stderr), **settings)


def _short(value: Any) -> str:
    return f"{float(value):.4g}" if np.ndim(value) == 0 and not isinstance(value, str) else str(value)

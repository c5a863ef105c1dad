"""What a tuner shows: lines that say what a fit is doing before its first epoch, and a progress bar."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rfho2.core.types import Hypers
from rfho2.driver.callbacks import checked_callbacks
from rfho2.keras_bridge.tuners.safeguards import Trial
from rfho2.monitor.progress_bar import ProgressBar


def with_bar(callbacks: Sequence[Any], verbose: Any) -> tuple[Any, ...]:
    """The callbacks, with a progress bar unless they have one, or are to be silent."""
    callbacks = checked_callbacks(callbacks)
    wanted = verbose and not any(isinstance(callback, ProgressBar) for callback in callbacks)
    return (*callbacks, ProgressBar()) if wanted else callbacks


class Stages:
    """Prints the stages of a fit, unless it is silent."""

    def __init__(self, shown: bool):
        self._shown = shown

    @contextlib.contextmanager
    def __call__(self, text: str) -> Iterator[None]:
        """Prints the text, and the seconds when the block has ended."""
        began = time.perf_counter()
        self.say(f"{text} ...", end="")
        try:
            yield
        except BaseException:
            self.say("")
            raise
        self.say(f" ({time.perf_counter() - began:.1f} s)")

    def say(self, text: str, end: str = "\n") -> None:
        """Prints at once."""
        if self._shown:
            print(text, end=end, flush=True)

    def telling(self, trial: Trial, rate: Callable[[Hypers], str]) -> Trial:
        """The trial, which also prints the learning rate that it tries."""
        told_of = list[str]()

        def told(hypers: Hypers) -> float:
            self.say(f"{',' if told_of else ''} {rate(hypers)}", end="")
            told_of.append(rate(hypers))
            return trial(hypers)

        return told

"""Ctrl-C and SIGTERM: what is under way is finished and kept, then the process ends."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(SystemExit):
    """SIGTERM came: a `SystemExit` with code 143, as shells and schedulers know it."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


def end(number: int) -> None:
    """Raises what a signal means: `KeyboardInterrupt` or `Terminated`."""
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


@contextlib.contextmanager
def noticed() -> Iterator[Callable[[], int | None]]:
    """Within it the first Ctrl-C or SIGTERM is only noted; a second one ends at once.

    Outside of the main thread, where Python delivers no signals, nothing is changed, as for signals that are ignored.

    Yields:
      A function that gives the number of the signal that came, or None.
    """
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if came:
            end(number)
        came.append(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number, handler in before.items():
            if handler not in (signal.SIG_IGN, None):  # None: set by other than Python, which could not be put back
                signal.signal(number, note)
        yield lambda: came[0] if came else None
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Within it SIGTERM ends at once with `Terminated`, so that files are closed and work can be told how to go on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: end(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

"""Ctrl-C and SIGTERM: the current work is finished and saved, then the process ends."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTICE = b"\nStopping as soon as the current work is finished. Ctrl-C again stops at once.\n"


class Terminated(SystemExit):
    """SIGTERM was received: a `SystemExit` with code 143, which shells and schedulers recognise."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


def end(number: int, message: str = "") -> None:
    """Raises the exception for a signal: `KeyboardInterrupt`, with a message for the user, or `Terminated`."""
    if number == signal.SIGTERM:
        raise Terminated
    raise KeyboardInterrupt(message) if message else KeyboardInterrupt


@contextlib.contextmanager
def noticed() -> Iterator[Callable[[], int | None]]:
    """Inside this context the first Ctrl-C or SIGTERM is only recorded; a second one ends the process at once.

    Nothing changes for ignored signals, nor in other threads than the main one, because Python delivers no signals to them.

    Yields:
      A function that returns the number of the recorded signal, or None.
    """
    received: list[int] = []

    def record(number: int, frame: FrameType | None) -> None:
        if received:
            end(number)
        received.append(number)
        if number == signal.SIGINT:
            with contextlib.suppress(OSError):  # nobody may read it: Ctrl-C also ends the `tee` behind a pipe
                os.write(2, NOTICE)  # print is not safe in a handler: it may interrupt another print

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number, handler in before.items():
            if handler not in (signal.SIG_IGN, None):  # None: installed by non-Python code, and could not be restored
                signal.signal(number, record)
        yield lambda: received[0] if received else None
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Inside this context SIGTERM raises `Terminated` at once, so that files are closed and the user is told what to do."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: end(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

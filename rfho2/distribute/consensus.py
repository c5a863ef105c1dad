"""Two numbers that processes exchange with every hypergradient: whether they are at the same place, and whether to end."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable

import numpy as np

from rfho2.core import nest
from rfho2.core.types import Nest

Signal = Callable[[], int | None]
"""The number of the signal that came, if one did."""


class Agreement:
    """A signal that comes to one process ends all of them after the same hyper-iteration, or some would wait for others."""

    def __init__(self) -> None:
        self._own: Signal = lambda: None
        self._signal: int | None = None

    def among_all(self, own: Signal) -> Signal:
        """From the signal of this process, that of any."""
        self._own, self._signal = own, None
        return lambda: self._signal

    def row(self, args: Nest) -> np.ndarray:
        """What this process tells: a mark of hypers and k, and its signal.

        Marks have 32 bits, which float64 holds exactly; arguments that differ hardly have one in common.
        """
        leaves = [np.asarray(leaf).tobytes() for leaf in nest.flatten(args)]
        mark = functools.reduce(lambda crc, leaf: zlib.crc32(leaf, crc), leaves, 0)
        return np.array([mark, self._own() or 0], np.float64)

    def hear(self, rows: np.ndarray) -> None:
        """What all of them tell; marks that differ are an error: they would answer different questions together."""
        marks, signals = rows.T
        if len(set(marks)) > 1:
            raise RuntimeError(
                f"hypers or k differ between the processes (their marks are {marks.tolist()}): all have to run the same "
                f"command, with the same seeds, and go on from the same checkpoint."
            )
        self._signal = int(signals.max()) or None

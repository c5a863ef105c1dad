"""Two numbers that processes exchange with every hypergradient, to check that they are in step and agree when to end."""

from __future__ import annotations

import functools
import zlib

import numpy as np

from rfho2.core import nest
from rfho2.core.types import Nest, Signal
from rfho2.hypergradients.engine import Processes


class Consensus(Processes):
    """Lets a signal to one process end all of them after the same hyper-iteration, so that none waits for another."""

    def __init__(self, writes: bool) -> None:
        self.writes = writes
        self._local_signal: Signal = lambda: None
        self._signal: int | None = None

    def agreed(self, own: Signal) -> Signal:
        """The signal that any process has received, given that of this process, `own`."""
        self._local_signal, self._signal = own, None
        return lambda: self._signal

    def row(self, args: Nest) -> np.ndarray:
        """The message of this process: a checksum of the hypers and k, and its signal.

        The checksum has 32 bits, which float64 represents exactly; different arguments very rarely have the same one.
        """
        leaves = [np.asarray(leaf).tobytes() for leaf in nest.flatten(args)]
        checksum = functools.reduce(lambda crc, leaf: zlib.crc32(leaf, crc), leaves, 0)
        return np.array([checksum, self._local_signal() or 0], np.float64)

    def receive(self, rows: np.ndarray) -> None:
        """Takes what all processes sent; different checksums, which mean different computations, are an error."""
        checksums, signals = rows.T
        if len(set(checksums)) > 1:
            raise RuntimeError(
                f"hypers or k differ between the processes (their checksums are {checksums.tolist()}): all have to run the "
                f"same command, with the same seeds, and resume from the same checkpoint."
            )
        self._signal = int(signals.max()) or None

"""What a computation needs to be compared across frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

Hypergradient = Callable[[np.ndarray], np.ndarray]
"""hypers -> hypergradient."""


class Case(Protocol):
    """A computation that every contestant can do.

    Attributes:
      STEPS: T, unless --steps gives another.
      entry_tolerance: the relative difference that each entry may have; None checks the norm alone.
      memory: whether its peak memory is worth measuring.
      argument: the hypers.
    """

    STEPS: int
    entry_tolerance: float | None
    memory: bool
    argument: np.ndarray

    def __init__(self, steps: int): ...

    def contestants(self) -> dict[str, Callable[[], Hypergradient]]:
        """Functions that build the contestants, by name; rfho2 first."""

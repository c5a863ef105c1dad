"""What a computation needs to be compared across frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

Hypergradient = Callable[[np.ndarray], np.ndarray]
"""hypers -> hypergradient."""


class InJax(NamedTuple):
    """A contestant in JAX: the name of a computation of `jax_peers`, and its options."""

    computation: str
    options: dict[str, Any]


class Case(Protocol):
    """A computation that every contestant can do.

    Attributes:
      STEPS: T, unless --steps gives another.
      entry_tolerance: the relative difference that each entry may have; None checks the norm alone.
      memory: whether its peak memory is worth measuring.
      argument: the hypers.
      arrays: everything else that a peer computes from.
    """

    STEPS: int
    entry_tolerance: float | None
    memory: bool
    argument: np.ndarray
    arrays: dict[str, np.ndarray]

    def __init__(self, steps: int): ...

    def stand_in(self) -> Case:
        """The case whose values are compared: itself, or a smaller one where rounding is too large at full size."""

    def rfho2(self) -> Hypergradient:
        """Builds ours."""

    def jax(self) -> dict[str, InJax]:
        """The contestants in JAX, by name."""

    def torch(self) -> dict[str, Callable[[], Hypergradient]]:
        """Functions that build the contestants in PyTorch, by name."""

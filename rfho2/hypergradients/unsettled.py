"""Checks what implicit hypergradients assume: that training is at a solution, and that the linear system is solved."""

from __future__ import annotations

import math
from typing import Any

from rfho2.core.types import Norms
from rfho2.core.warn import warn

UNSETTLED = 0.01  # of the objective: a larger predicted change is reported
RESIDUAL = 10.0  # times the tolerance: a larger linear residual is reported
SYMMETRIC = 1e-3  # the largest asymmetry with which CG may be used


class Reporter:
    """Warns once about each kind of problem, and says what to do; a matrix for which CG would be wrong is an error.

    Args:
      settings: those of the engine.
    """

    def __init__(self, settings: dict[str, Any]):
        self._settings = settings
        self._warned: set[str] = set()

    def look(self, k: int, norms: Norms) -> None:
        """Checks the norms of hyper-iteration k."""
        numbers = {name: float(norm) for name, norm in norms.items()}
        if numbers.get("asymmetry", 0.0) > SYMMETRIC:
            raise ValueError(
                f"solver is 'cg', but the matrix I - A of condition='step' is not symmetric (u^T M v and v^T M u differ by "
                f"{numbers['asymmetry']:.1e}), and CG would be silently wrong. Use solver='bicgstab'."
            )
        if numbers["unsettled"] > UNSETTLED:
            self._warn("unsettled", k, self._unsettled(numbers))
        if numbers.get("curvature", math.inf) <= 0:
            self._warn("curvature", k, self._indefinite(numbers))
        elif numbers["linear residual"] > RESIDUAL * self._tolerance(k):
            self._warn("linear", k, self._unsolved(numbers))

    def _warn(self, kind: str, k: int, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warn(f"rf.implicit, hyper-iteration {k}: {message} (Shown once.)")

    def _tolerance(self, k: int) -> float:
        tolerance = self._settings["tolerance"]
        if tolerance is None:  # a new batch for each product: there is no residual to reduce
            return math.inf
        return tolerance[min(k, len(tolerance) - 1)] if isinstance(tolerance, list) else tolerance

    def _unsettled(self, numbers: dict[str, float]) -> str:
        remedy = "more steps in each hyper-iteration" if self._settings["warm_start"] else "more steps, warm_start=True"
        return (
            f"the training is not at a solution: finishing it would change the objective by about "
            f"{numbers['predicted change']:.3g} ({100 * numbers['unsettled']:.3g} %). The hypergradient is that of the "
            f"solution, not of the training so far. Try {remedy}, or rf.reverse."
        )

    def _indefinite(self, numbers: dict[str, float]) -> str:
        return (
            f"CG met a direction of curvature {numbers['curvature']:.3g} after {numbers['products']:.0f} products: the "
            f"training is not at a minimum. It returned its last good iterate (linear residual "
            f"{numbers['linear residual']:.2g}). Train longer, add a regulariser or damping, or use rf.reverse or "
            f"rf.real_time(mode='reverse')."
        )

    def _unsolved(self, numbers: dict[str, float]) -> str:
        solver = self._settings["solver"]
        remedy = {
            "cg": "more iterations, or damping if the Hessian is singular",
            "bicgstab": "more iterations, or solver='normal', which is slower and does not stagnate",
            "normal": "more iterations, or damping if the matrix is singular",
            "fixed_point": "more iterations or another solver, unless you want a horizon of this many steps",
        }[solver]
        return (
            f"the linear system is not solved: '{solver}' left a residual of {numbers['linear residual']:.2g} after "
            f"{numbers['products']:.0f} products. Try {remedy}."
        )

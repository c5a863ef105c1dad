"""An engine that plans at its first call, and then is the engine chosen."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.hypergradients.engine import Engine
from rfho2.hypergradients.episodes import params_at
from rfho2.planning.plan import Plan, check_steps, parse_bytes, plan
from rfho2.problem import Problem


def auto(problem: Problem, memory: float | str | None = None) -> AutoEngine:
    """An engine that plans at its first call, and then is the engine chosen; `engine.plan` tells which and why.

    Times are measured, so a resumed run may choose differently where two choices cost about the same; their hypergradients
    agree to rounding. If you need bit-identical results, print the plan once and use the engine that it names.

    Args:
      problem: what to differentiate.
      memory: bytes, or a text such as "2GB"; half of the memory that is free at the first call by default.
    """
    check_steps(problem)
    parse_bytes(memory)
    return AutoEngine(problem, memory)


class AutoEngine(Engine):
    """See `auto`."""

    def __init__(self, problem: Problem, memory: float | str | None):
        super().__init__(problem, {"method": "auto", "memory": memory, "steps": problem.steps})
        self.plan: Plan | None = None
        self._engine: Engine | None = None

    @property
    def jit_compiled(self) -> bool:
        """Whether XLA compiles the chosen engine; known after the first call."""
        return self._engine is None or self._engine.jit_compiled

    @property
    def afresh(self) -> bool:
        """Whether every hyper-iteration trains from the start: yes."""
        return True

    def _chosen(self, params: Nest, hypers: Hypers) -> Engine:
        if self._engine is None:
            self.plan = plan(self.problem, params_at(params, 0), hypers, self.settings["memory"])
            self._engine = self.plan.chosen.build(self.problem)
        return self._engine

    def __call__(self, params: Nest, hypers: Hypers, k: int | tf.Tensor = 0) -> HyperGradient:
        """The hypergradient of training from `params` with `hypers`; k selects the validation batch."""
        return self._chosen(params, hypers)(params, hypers, k)

    def start(self, params: Nest, hypers: Hypers) -> Any:
        """The params, or the function k -> params, from which every hyper-iteration starts."""
        return self._chosen(params, hypers).start(params, hypers)

    def advance(self, carry: Any, hypers: Hypers, k: int | tf.Tensor) -> tuple[HyperGradient, Any]:
        """Hyper-iteration k."""
        return self._chosen(carry, hypers).advance(carry, hypers, k)

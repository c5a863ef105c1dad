"""An engine that plans at its first call, and then is the engine chosen."""

from __future__ import annotations

from rfho2.core.types import Hypers, Nest
from rfho2.hypergradients.engine import MethodEngine
from rfho2.hypergradients.episodes import params_at
from rfho2.hypergradients.method import Method
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


class AutoEngine(MethodEngine):
    """See `auto`."""

    def __init__(self, problem: Problem, memory: float | str | None):
        super().__init__(problem, {"method": "auto", "memory": memory, "steps": problem.steps}, self._planned, afresh=True)
        self.plan: Plan | None = None

    def _planned(self, problem: Problem, params: Nest, hypers: Hypers) -> Method:
        self.plan = plan(problem, params_at(params, 0), hypers, self.settings["memory"])
        return self.plan.chosen.build(problem).make(problem, params, hypers)

"""An engine that plans at its first call, and then is the engine chosen."""

from __future__ import annotations

from rfho2.core.types import Hypers, Nest
from rfho2.hypergradients.engine import MethodEngine
from rfho2.hypergradients.episodes import params_at
from rfho2.hypergradients.method import Method
from rfho2.planning.plan import Plan, check_steps, parse_bytes, plan
from rfho2.problem import Problem


def auto(problem: Problem, memory: float | str | None = None, hyper_batch: int | None = None) -> AutoEngine:
    """An engine that plans at its first call, and then is the engine chosen; `engine.plan` tells which and why.

    Times are measured, so a resumed run may choose differently where two choices cost about the same; their hypergradients
    agree to rounding. If you need bit-identical results, print the plan once and use the engine that it names.

    Args:
      problem: what to differentiate.
      memory: bytes, or a text such as "2GB"; half of the memory that is free at the first call by default.
      hyper_batch: chooses among `rf.real_time(problem, hyper_batch, mode="reverse")` with all states of a window saved or
        fewer; `steps` is not used.
    """
    check_steps(problem, hyper_batch)
    parse_bytes(memory)
    return AutoEngine(problem, memory, hyper_batch)


class AutoEngine(MethodEngine):
    """See `auto`."""

    def __init__(self, problem: Problem, memory: float | str | None, hyper_batch: int | None):
        length = {"steps": problem.steps} if hyper_batch is None else {"hyper_batch": hyper_batch}
        settings = {"method": "auto", "memory": memory, **length}
        super().__init__(problem, settings, self._planned, afresh=hyper_batch is None)
        self.plan: Plan | None = None

    def _planned(self, problem: Problem, params: Nest, hypers: Hypers) -> Method:
        self.plan = plan(
            problem, params_at(params, 0), hypers, self.settings["memory"], hyper_batch=self.settings.get("hyper_batch")
        )
        return self.plan.chosen.build(problem).make(problem, params, hypers)

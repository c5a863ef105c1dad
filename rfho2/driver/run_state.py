"""The state of a run between two hyper-iterations, and its form in a checkpoint."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.core.types import Best, Nest, Result

PATIENCE = 2  # setbacks in a row after which a value or hypergradient above its limit is accepted as it is


class LastGood(NamedTuple):
    """The last hyper-iteration that did not diverge: hypers, the optimiser's state before the update, hypergradient."""

    hypers: dict[str, tf.Tensor]
    opt_state: Nest
    grads: dict[str, tf.Tensor]


class RunState(NamedTuple):
    """Everything that the next hyper-iteration, k, depends on, and the results of the earlier ones.

    `setbacks` describes every divergence from which the run recovered; `in_a_row` counts those since the last success.
    """

    k: int
    hypers: dict[str, tf.Tensor]
    opt_state: Nest
    carry: Nest
    state: Nest
    best: Best | None
    history: list[dict[str, float]]
    good: LastGood | None = None
    setbacks: tuple[str, ...] = ()
    in_a_row: int = 0

    @property
    def result(self) -> Result:
        """The result of a run that ends in this state."""
        return Result(self.hypers, self.state, self.history, self.best)

    def arrays(self) -> Nest:
        """The tensors of a checkpoint; at the start, tensors of the same structure stand in for those not known yet."""
        best = (self.hypers, self.state) if self.best is None else (self.best.hypers, self.best.state)
        good = self.good or LastGood(self.hypers, self.opt_state, self.hypers)
        return self.hypers, self.opt_state, self.carry, self.state, *best, good

    def record(self) -> dict[str, Any]:
        """The plain values of a checkpoint."""
        assert self.best is not None
        best = {"best_value": self.best.value, "best_iteration": self.best.iteration}
        setbacks = {"good": self.good is not None, "setbacks": self.setbacks, "in_a_row": self.in_a_row}
        return {"k": self.k, **best, "history": self.history, **setbacks}

    @classmethod
    def of(cls, arrays: Nest, record: dict[str, Any]) -> RunState:
        """The state that a checkpoint holds."""
        hypers, opt_state, carry, state, best_hypers, best_state, good = arrays
        best = Best(best_hypers, best_state, record["best_value"], record["best_iteration"])
        setbacks = good if record["good"] else None, tuple(record["setbacks"]), record["in_a_row"]
        return cls(record["k"], hypers, opt_state, carry, state, best, record["history"], *setbacks)

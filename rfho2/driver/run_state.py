"""Where a run is, and the form in which a checkpoint keeps it."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.core.types import Best, Nest, Result


class Good(NamedTuple):
    """The last hyper-iteration with finite numbers: its hypers and hypergradient, and the optimiser before it moved."""

    hypers: dict[str, tf.Tensor]
    opt_state: Nest
    grads: dict[str, tf.Tensor]


class Progress(NamedTuple):
    """Everything that the next hyper-iteration, k, depends on, and what came of those before.

    `setbacks` tells of each time that it went back; `in_a_row` counts those since the last hyper-iteration that went well.
    """

    k: int
    hypers: dict[str, tf.Tensor]
    opt_state: Nest
    carry: Nest
    state: Nest
    best: Best | None
    history: list[dict[str, float]]
    good: Good | None = None
    setbacks: tuple[str, ...] = ()
    in_a_row: int = 0

    @property
    def result(self) -> Result:
        """What a run that ends here returns."""
        return Result(self.hypers, self.state, self.history, self.best)

    def arrays(self) -> Nest:
        """The tensors that a checkpoint keeps; at the start, where some are not known yet, others like them."""
        best = (self.hypers, self.state) if self.best is None else (self.best.hypers, self.best.state)
        good = self.good or Good(self.hypers, self.opt_state, self.hypers)
        return self.hypers, self.opt_state, self.carry, self.state, *best, good

    def record(self) -> dict[str, Any]:
        """The plain values that a checkpoint keeps."""
        assert self.best is not None
        best = {"best_value": self.best.value, "best_iteration": self.best.iteration}
        setbacks = {"good": self.good is not None, "setbacks": self.setbacks, "in_a_row": self.in_a_row}
        return {"k": self.k, **best, "history": self.history, **setbacks}

    @classmethod
    def of(cls, arrays: Nest, record: dict[str, Any]) -> Progress:
        """From what a checkpoint kept."""
        hypers, opt_state, carry, state, best_hypers, best_state, good = arrays
        best = Best(best_hypers, best_state, record["best_value"], record["best_iteration"])
        setbacks = good if record["good"] else None, tuple(record["setbacks"]), record["in_a_row"]
        return cls(record["k"], hypers, opt_state, carry, state, best, record["history"], *setbacks)

"""Real-time hyperparameter optimisation (paper, 3.3): a partial hypergradient every few steps of one training run."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.core import errors, nest
from rfho2.core.compiled import Compiled
from rfho2.core.types import HyperGradient, Hypers, Nest, Norms
from rfho2.hypergradients.engine import OnlineEngine
from rfho2.hypergradients.sensitivity import (
    Directions,
    Pushed,
    Tangent,
    check_not_empty,
    count_columns,
    directions,
    hypergradient_of,
    norms_of,
    push_steps,
    start_tangent,
)
from rfho2.problem import Problem


class RealTimeCarry(NamedTuple):
    """What one hyper-batch passes on to the next: s_t, Z_t and t."""

    state: Nest
    sensitivity: Nest
    t: tf.Tensor


def real_time(problem: Problem, hyper_batch: int, carry: bool = True, jit_compile: bool | None = None) -> RealTimeEngine:
    """Forward mode without an end: after every `hyper_batch` steps, grad f_t = dE/ds_t Z_t + dE/d hypers.

    Args:
      problem: what to differentiate; `steps` is not used and may be None.
      hyper_batch: Delta, the number of training steps between two hypergradients.
      carry: True keeps Z across updates of the hypers, as the paper's code does; False resets it to zero after each update,
        so that a hypergradient looks back no further than one hyper-batch.
      jit_compile: None tries XLA and falls back to the graph; True or False insists.

    Returns:
      An engine whose `start(params, hypers) -> carry` and `advance(carry, hypers, k) -> (HyperGradient, carry)` a
      `HyperOptimizer` drives. Called directly it gives the first partial hypergradient.

    >>> import rfho2 as rf
    >>> loss = lambda w, hypers, batch: 0.5 * w**2
    >>> problem = rf.Problem(rf.gradient_descent(loss, "lr"), loss, steps=None)
    >>> engine = rf.real_time(problem, hyper_batch=1, jit_compile=False)
    >>> carry = engine.start(tf.constant(1.0), {"lr": 0.5})
    >>> hypergradient, carry = engine.advance(carry, {"lr": 0.5}, k=0)
    >>> hypergradient.grads["lr"].numpy().item()  # d/dlr of (1 - lr)^2 / 2
    -0.5
    """
    return RealTimeEngine(problem, hyper_batch, carry, jit_compile)


class RealTimeEngine(OnlineEngine):
    """See `real_time`. Subclasses may push some of the columns of Z only, and complete the hypergradient otherwise."""

    def __init__(self, problem: Problem, hyper_batch: int, carry: bool, jit_compile: bool | None):
        errors.check_count("hyper_batch", hyper_batch)
        settings = {"method": "real_time", "hyper_batch": hyper_batch, "carry": carry, "jit_compile": jit_compile}
        super().__init__(problem, settings)
        self._norms: Norms = {}
        self._stream = self.stream

        def start(params: Nest, hypers: Hypers) -> Tangent:
            return start_tangent(problem, params, hypers, self._directions(hypers))

        def advance(c: RealTimeCarry, hypers: Hypers, k: tf.Tensor, window: Nest) -> tuple[Any, RealTimeCarry, Norms]:
            def batch(t: tf.Tensor) -> Nest:
                if self._stream is None:
                    return problem.batch(t, k)
                return nest.map(lambda leaf: tf.gather(leaf, t - c.t), window)

            along = self._directions(hypers)
            pushed = push_steps(problem, Tangent(c.state, c.sensitivity), hypers, along, k, c.t, hyper_batch, batch)
            tangent = pushed.tangent
            kept = tangent.sensitivity if carry else nest.zeros_like(tangent.sensitivity)
            new = RealTimeCarry(tangent.state, kept, c.t + hyper_batch)
            return self._read(hypers, pushed), new, norms_of(pushed)

        self._start, self._advance = Compiled(start, jit_compile=False), Compiled(advance, jit_compile)

    @property
    def norms(self) -> Norms:
        """Norm of the sensitivity after the last hyper-batch."""
        return self._norms

    def start(self, params: Nest, hypers: Hypers) -> RealTimeCarry:
        """s_0, Z_0 = ds_0/d hypers and t = 0."""
        params, hypers = self.validated(params, hypers)
        check_not_empty(hypers)
        tangent = self._start(params, hypers)
        return RealTimeCarry(tangent.state, tangent.sensitivity, tf.constant(0))

    def forget(self, carry: RealTimeCarry) -> RealTimeCarry:
        """The same training with Z = 0, as if the hypers had not influenced it so far."""
        return carry._replace(sensitivity=nest.zeros_like(carry.sensitivity))

    def advance(self, carry: RealTimeCarry, hypers: Hypers, k: int | tf.Tensor) -> tuple[HyperGradient, RealTimeCarry]:
        """`hyper_batch` more steps, and the hypergradient at their end on validation batch k."""
        hypers = errors.checked_hypers(hypers, self.problem.dynamics.params(carry.state))
        k = tf.convert_to_tensor(k, tf.int32)
        window = None if self._stream is None else self._stream.take(self.settings["hyper_batch"])
        reading, carry, self._norms = self._advance(carry, hypers, k, window)
        return self._complete(reading, hypers, k), carry

    def _directions(self, hypers: Hypers) -> Directions:
        """The directions of the columns of Z that this engine pushes: all of them."""
        return directions(hypers, 0, count_columns(hypers))

    def _read(self, hypers: Hypers, pushed: Pushed) -> Any:
        """What the compiled function returns of the pushed columns: the hypergradient."""
        return hypergradient_of(self.problem, hypers, pushed)

    def _complete(self, reading: Any, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        """The hypergradient from what `_read` returned, outside the compiled function."""
        return reading

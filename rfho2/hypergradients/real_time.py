"""Real-time hyperparameter optimisation (paper, 3.3): a partial hypergradient every few steps, while training goes on."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.batches import Stream
from rfho2.core import errors, nest
from rfho2.core.compiled import Compiled
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.hypergradients.engine import GoingOn, Norms, Probe
from rfho2.hypergradients.forward import (
    Tangent,
    check_entries,
    count,
    directions,
    hypergradient_of,
    norms_of,
    push_steps,
    start_tangent,
)
from rfho2.problem import Problem


class RealTimeCarry(NamedTuple):
    """What goes on from one hyper-batch to the next: s_t, Z_t and t."""

    state: Nest
    sensitivity: Nest
    t: tf.Tensor


def real_time(problem: Problem, hyper_batch: int, carry: bool = True, jit_compile: bool | None = None) -> RealTimeEngine:
    """Forward mode without an end: after every `hyper_batch` steps, grad f_t = dE/ds_t Z_t + dE/d hypers.

    Args:
      problem: what to differentiate; `steps` is not used and may be None.
      hyper_batch: Delta, the training steps between two hypergradients.
      carry: keep Z across updates of the hypers, as the paper's code does; False sets it to zero after each, which looks
        no further back than one hyper-batch.
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
    errors.check_count("hyper_batch", hyper_batch)
    return RealTimeEngine(problem, hyper_batch, carry, jit_compile)


class RealTimeEngine(GoingOn):
    """See `real_time`."""

    def __init__(self, problem: Problem, hyper_batch: int, carry: bool, jit_compile: bool | None):
        self.problem = problem
        self.settings: dict[str, Any] = {
            "method": "real_time", "hyper_batch": hyper_batch, "carry": carry, "jit_compile": jit_compile,
        }  # fmt: skip
        self.norms: Norms = {}
        self._probe = Probe(problem)
        self._stream = problem.batches if isinstance(problem.batches, Stream) else None

        def start(params: Nest, hypers: Hypers) -> Tangent:
            return start_tangent(problem, params, hypers, directions(hypers, 0, count(hypers)))

        self._start = Compiled(start, jit_compile=False)

        def advance(
            c: RealTimeCarry, hypers: Hypers, k: tf.Tensor, window: Nest
        ) -> tuple[HyperGradient, RealTimeCarry, Norms]:
            def batch(t: tf.Tensor) -> Nest:
                if self._stream is None:
                    return problem.batch(t)
                return nest.map(lambda leaf: tf.gather(leaf, t - c.t), window)

            along = directions(hypers, 0, count(hypers))
            pushed = push_steps(problem, Tangent(c.state, c.sensitivity), hypers, along, k, c.t, hyper_batch, batch)
            tangent, found = pushed.tangent, hypergradient_of(problem, hypers, pushed)
            kept = tangent.sensitivity if carry else nest.zeros_like(tangent.sensitivity)
            return found, RealTimeCarry(tangent.state, kept, c.t + hyper_batch), norms_of(pushed)

        self._advance = Compiled(advance, jit_compile)

    def start(self, params: Nest, hypers: Hypers) -> RealTimeCarry:
        """s_0, Z_0 = ds_0/d hypers and t = 0."""
        params, hypers = self._probe(params, hypers)
        check_entries(hypers)
        tangent = self._start(params, hypers)
        return RealTimeCarry(tangent.state, tangent.sensitivity, tf.constant(0))

    def forget(self, carry: RealTimeCarry) -> RealTimeCarry:
        """The same training with Z = 0: how it came here is forgotten."""
        return carry._replace(sensitivity=nest.zeros_like(carry.sensitivity))

    def advance(self, carry: RealTimeCarry, hypers: Hypers, k: int | tf.Tensor) -> tuple[HyperGradient, RealTimeCarry]:
        """`hyper_batch` more steps, and the hypergradient at their end on validation batch k."""
        hypers = errors.checked_hypers(hypers, self.problem.dynamics.params(carry.state))
        window = None if self._stream is None else self._stream.take(self.settings["hyper_batch"])
        found, carry, self.norms = self._advance(carry, hypers, tf.convert_to_tensor(k, tf.int32), window)
        return found, carry

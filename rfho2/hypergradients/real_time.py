"""Real-time hyperparameter optimisation (paper, 3.3): a partial hypergradient every few steps of one training run."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.core import loops, nest
from rfho2.core.compiled import Compiled
from rfho2.core.types import Hypers, Nest
from rfho2.hypergradients.one_step import OneStep
from rfho2.hypergradients.sensitivity import (
    Directions,
    Pushed,
    Tangent,
    check_not_empty,
    count_columns,
    directions,
    hypergradient_of,
    push_steps,
    start_tangent,
)
from rfho2.hypergradients.windows import ReverseWindows, Windows, WindowSettings, window_settings
from rfho2.problem import Problem


class RealTimeCarry(NamedTuple):
    """What one hyper-batch passes on to the next: s_t, Z_t and t."""

    state: Nest
    sensitivity: Nest
    t: tf.Tensor


def real_time(
    problem: Problem,
    hyper_batch: int | Fraction,
    carry: bool | None = None,
    jit_compile: bool | None = None,
    *,
    discount: float = 1.0,
    mode: str = "forward",
) -> Windows:
    """Hypergradients of a training without an end: after every `hyper_batch` steps, grad f_t = dE/ds_t Z_t + dE/d hypers.

    Z_t = discount A_t Z_{t-1} + B_t is the sensitivity of the state to the hypers. There are three ways to the product:

    - `mode="forward"` pushes Z along with the training. For a few hypers: with m entries, a step costs about 1 + m
      plain steps, and Z takes m states of memory. A hypergradient looks back to the start of the training.
    - `mode="reverse"` saves the states of a hyper-batch and carries the adjoint back through them. For any number of
      hypers, such as a weight for each example, and for loops, such as those of recurrent layers, which forward mode
      follows for at most four hypers and without XLA: a step costs about 3.2 plain steps, and memory is for `hyper_batch`
      states. A hypergradient looks back one hyper-batch.
    - `discount=0`, in either mode, differentiates only the last step of each hyper-batch: hypergradient descent. It is
      cheap, for any number of hypers, and short-sighted.

    Args:
      problem: what to differentiate; `steps` is not used and may be None. With `discount=0` and `hyper_batch=1`,
        `validation=lambda k: batches(k + 1)` is the original hypergradient descent (Baydin et al., 2018), which tunes on the
        next training batch.
      hyper_batch: Delta, the number of training steps between two hypergradients. `fractions.Fraction(31, 2)` makes it 15
        and 16 in turn, so that every second hypergradient comes at the end of an epoch of 31 steps.
      carry: True keeps Z across updates of the hypers, as the paper's code does; False resets it to zero after each update,
        so that a hypergradient looks back no further than one hyper-batch. None means True in forward mode and False in
        reverse mode, which has no Z to keep.
      jit_compile: None tries XLA, except for convolutions on a CPU, and falls back to the graph; True or False insists.
      discount: from 0 to 1. 1 is exact. 1 - 1/n looks back about n steps, which keeps Z from growing without bound and
        reduces its noise, at the price of a bias towards short-term effects (MARTHE; Donini et al., 2020).
      mode: "forward" or "reverse".

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
    settings = window_settings(hyper_batch, carry, discount, mode)
    if settings.discount == 0:
        return OneStep(problem, settings, jit_compile)
    if settings.mode == "reverse":
        return ReverseWindows(problem, settings, jit_compile)
    return RealTimeEngine(problem, settings, jit_compile)


class RealTimeEngine(Windows):
    """Real time in forward mode. Subclasses may push only some columns of Z, and complete the hypergradient otherwise."""

    def __init__(self, problem: Problem, settings: WindowSettings, jit_compile: bool | None):
        def window(c: RealTimeCarry, hypers: Hypers, k: tf.Tensor, streamed: Nest) -> tuple[Any, RealTimeCarry]:
            t, k = loops.unknown((c.t, k))  # otherwise XLA would compile every window of a problem that reads table[t]
            along, before = self._directions(hypers), Tangent(c.state, c.sensitivity)
            steps, batch, discount = settings.steps(t), self._batches(k, t, streamed), settings.discount
            pushed = push_steps(problem, before, hypers, along, k, t, steps, batch, discount)
            tangent = pushed.tangent
            kept = tangent.sensitivity if settings.carry else nest.zeros_like(tangent.sensitivity)
            new = RealTimeCarry(tangent.state, kept, t + steps)
            return self._read(hypers, pushed), new

        super().__init__(problem, settings, window, jit_compile)

        def start(params: Nest, hypers: Hypers) -> Tangent:
            return start_tangent(problem, params, hypers, self._directions(hypers))

        self._start = Compiled(start, jit_compile=False)

    def start(self, params: Nest, hypers: Hypers) -> RealTimeCarry:
        """s_0, Z_0 = ds_0/d hypers and t = 0."""
        params, hypers = self.validated(params, hypers)
        check_not_empty(hypers)
        tangent = self._start(params, hypers)
        return RealTimeCarry(tangent.state, tangent.sensitivity, tf.constant(0))

    def forget(self, carry: RealTimeCarry) -> RealTimeCarry:
        """The same training with Z = 0, as if the hypers had not influenced it so far."""
        return carry._replace(sensitivity=nest.zeros_like(carry.sensitivity))

    def _directions(self, hypers: Hypers) -> Directions:
        """The directions of the columns of Z that this engine pushes: all of them."""
        return directions(hypers, 0, count_columns(hypers))

    def _read(self, hypers: Hypers, pushed: Pushed) -> Any:
        """What the compiled function returns of the pushed columns: the hypergradient."""
        return hypergradient_of(self.problem, hypers, pushed)._replace(state=())

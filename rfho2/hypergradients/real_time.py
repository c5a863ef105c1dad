"""Real-time hyperparameter optimisation (paper, 3.3): a partial hypergradient every few steps of one training run."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.core import loops, nest
from rfho2.core.types import Hypers, Nest
from rfho2.hypergradients.engine import MethodEngine
from rfho2.hypergradients.method import Method
from rfho2.hypergradients.one_step import one_step
from rfho2.hypergradients.sensitivity import (
    Directions,
    StackedColumns,
    Tangent,
    check_not_empty,
    count_columns,
    directions,
    hypergradient_of,
    push_steps,
    start_tangent,
)
from rfho2.hypergradients.windows import WindowSettings, reverse_windows, window_engine, window_settings
from rfho2.problem import Problem


class RealTimeCarry(NamedTuple):
    """The values that one hyper-batch passes on to the next: s_t, Z_t and t."""

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
    checkpoints: int | None = None,
) -> MethodEngine:
    """Hypergradients of a training without an end: after every `hyper_batch` steps, grad f_t = dE/ds_t Z_t + dE/d hypers.

    Z_t = discount A_t Z_{t-1} + B_t is the sensitivity of the state to the hypers. dE/ds_t Z_t is computed in one of three
    ways:

    - `mode="forward"` pushes Z along with the training. For a few hypers: with m entries, a step costs about 1 + m
      plain steps, and Z takes m states of memory. A hypergradient looks back to the start of the training.
    - `mode="reverse"` saves the states of a hyper-batch and carries the adjoint back through them. For any number of
      hypers, such as a weight for each example, and for loops, such as those of recurrent layers, which forward mode
      follows for at most four hypers and without XLA: a step costs 3 to 4 plain steps, and memory is for `hyper_batch`
      states. A hypergradient looks back one hyper-batch.
    - `discount=0`, in either mode, differentiates only the last step of each hyper-batch: hypergradient descent. It is
      cheap, for any number of hypers, and short-sighted.

    Args:
      problem: what to differentiate; `steps` is not used and may be None. With `discount=0` and `hyper_batch=1`,
        `validation=lambda k: batches(k + 1)` is the original hypergradient descent (Baydin et al., 2018), which tunes on the
        next training batch.
      hyper_batch: Delta, the number of training steps between two hypergradients. `fractions.Fraction(31, 2)` makes it
        alternately 15 and 16, so that every second hypergradient comes at the end of an epoch of 31 steps.
      carry: True keeps Z across updates of the hypers, as the paper's code does; False resets it to zero after each update,
        so that a hypergradient looks back no further than one hyper-batch. None means True in forward mode and False in
        reverse mode, which has no Z to keep.
      jit_compile: None tries XLA, except for convolutions on a CPU, and falls back to the graph; True or False decides.
      discount: from 0 to 1. 1 is exact. 1 - 1/n looks back about n steps, which keeps Z from growing without bound and
        reduces its noise, at the price of a bias towards short-term effects (MARTHE; Donini et al., 2020).
      mode: "forward" or "reverse".
      checkpoints: in reverse mode, how many states of a hyper-batch to save; the others are recomputed, as in `rf.reverse`.
        None saves all.

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
    settings = window_settings(hyper_batch, carry, discount, mode, checkpoints)
    make = one_step if settings.discount == 0 else reverse_windows if settings.mode == "reverse" else forward_windows
    return window_engine(problem, settings, make, jit_compile)


def _all_columns(hypers: Hypers) -> Directions:
    return directions(hypers, 0, count_columns(hypers))


def forward_windows(
    problem: Problem, settings: WindowSettings, along: Callable[[Hypers], Directions] = _all_columns, whole: bool = True
) -> Method:
    """Real time in forward mode: Z is pushed along with the training.

    Args:
      along: hypers -> the directions of the columns of Z to push: all of them by default.
      whole: whether these are all; otherwise `advance` returns what was pushed, to be completed.
    """

    def start(params: Nest, hypers: Hypers) -> RealTimeCarry:
        check_not_empty(hypers)
        return RealTimeCarry(*start_tangent(problem, params, hypers, along(hypers)), tf.constant(0))

    def advance(c: RealTimeCarry, hypers: Hypers, k: tf.Tensor, streamed: Nest) -> tuple[Any, RealTimeCarry]:
        t, k = loops.unknown((c.t, k))  # otherwise XLA would compile every window of a problem that reads table[t]
        steps, before = settings.steps(t), Tangent(c.state, c.sensitivity)
        window = problem.reading(streamed, t)
        pushed = push_steps(window, before, hypers, along(hypers), k, t, steps, settings.discount)
        state, z = pushed.tangent
        after = RealTimeCarry(state, z if settings.carry else nest.zeros_like(z), t + steps)
        if whole:
            return hypergradient_of(problem, hypers, pushed)._replace(state=()), after
        return pushed._replace(tangent=Tangent((), StackedColumns(()))), after

    return Method(start, advance, forget=lambda carry: carry._replace(sensitivity=nest.zeros_like(carry.sensitivity)))

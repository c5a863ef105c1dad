"""Training with fixed hypers as an engine, so that progress bar, logs, checkpoints and best state come for free."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

import rfho2 as rf
from rfho2.core import errors, loops, nest
from rfho2.core.compiled import Compiled
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.hypergradients.engine import OnlineEngine

fixed = rf.HyperUpdate(lambda hypers: (), lambda grads, opt_state, hypers: (dict(hypers), opt_state), {"method": "fixed"})
"""The update that leaves the hypers unchanged."""


class PlainCarry(NamedTuple):
    """The state s_t and the step t."""

    state: Nest
    t: tf.Tensor


class PlainTraining(OnlineEngine):
    """Runs `hyper_batch` training steps per hyper-iteration and then evaluates the one objective; hypergradients are zero.

    It is `rf.real_time` without the sensitivity Z, for runs with fixed hypers that are compared with it.
    """

    def __init__(self, problem: rf.Problem, hyper_batch: int, jit_compile: bool | None = None):
        super().__init__(problem, {"method": "plain", "hyper_batch": hyper_batch, "jit_compile": jit_compile})

        def advance(c: PlainCarry, hypers: Hypers, k: tf.Tensor) -> tuple[HyperGradient, PlainCarry]:
            def step(state: Nest, t: tf.Tensor) -> Nest:
                return problem.dynamics.step(state, hypers, problem.batch(t), t)

            state = loops.fold(step, c.state, c.t, hyper_batch)
            (term,) = problem.terms(hypers)
            value = term.fn(problem.dynamics.params(state), hypers, term.batch(k))
            return HyperGradient(value, nest.zeros_like(dict(hypers)), state), PlainCarry(state, c.t + hyper_batch)

        self._advance = Compiled(advance, jit_compile)

    def start(self, params: Nest, hypers: Hypers) -> PlainCarry:
        """s_0 and t = 0."""
        return PlainCarry(self.initial_state(params, hypers), tf.constant(0))

    def advance(self, carry: PlainCarry, hypers: Hypers, k: int | tf.Tensor) -> tuple[HyperGradient, PlainCarry]:
        """Takes `hyper_batch` more steps."""
        hypers = errors.checked_hypers(hypers, self.problem.dynamics.params(carry.state))
        return self._advance(carry, hypers, tf.convert_to_tensor(k, tf.int32))

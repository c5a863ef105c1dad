"""Training with fixed hypers as an engine, so that progress bar, logs, checkpoints and best state come for free."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

import rfho2 as rf
from rfho2.core import loops, nest
from rfho2.core.types import Hypers, Nest
from rfho2.hypergradients.engine import MethodEngine
from rfho2.hypergradients.method import Method

fixed = rf.HyperUpdate(lambda hypers: (), lambda grads, opt_state, hypers: (dict(hypers), opt_state), {"method": "fixed"})
"""The update that leaves the hypers unchanged."""


class PlainCarry(NamedTuple):
    """The state s_t and the step t."""

    state: Nest
    t: tf.Tensor


def plain_training(problem: rf.Problem, hyper_batch: int, jit_compile: bool | None = None) -> MethodEngine:
    """Runs `hyper_batch` training steps per hyper-iteration and then evaluates the one objective; hypergradients are zero.

    It is `rf.real_time` without the sensitivity Z, for runs with fixed hypers that are compared with it.
    """

    def start(params: Nest, hypers: Hypers) -> PlainCarry:
        return PlainCarry(problem.dynamics.init(params, hypers), tf.constant(0))

    def advance(c: PlainCarry, hypers: Hypers, k: tf.Tensor, streamed: Nest) -> tuple[rf.HyperGradient, PlainCarry]:
        state = loops.fold(lambda state, t: problem.step(state, hypers, t), c.state, c.t, hyper_batch)
        (term,) = problem.terms(hypers)
        value = term.fn(problem.dynamics.params(state), hypers, term.batch(k))
        return rf.HyperGradient(value, nest.zeros_like(dict(hypers)), ()), PlainCarry(state, c.t + hyper_batch)

    settings = {"method": "plain", "hyper_batch": hyper_batch, "jit_compile": jit_compile}
    return MethodEngine(problem, settings, lambda *_: Method(start, advance), afresh=False)

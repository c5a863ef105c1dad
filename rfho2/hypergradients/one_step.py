"""Hypergradient descent: real time with discount 0, which looks back no further than one step."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from rfho2.core import loops, nest
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.hypergradients.method import Method
from rfho2.hypergradients.windows import WindowCarry, WindowSettings, WindowSweep
from rfho2.problem import Cost, Problem

ZERO = tf.UnconnectedGradients.ZERO
Total = tuple[tf.Tensor, dict[str, tf.Tensor]]
"""The sum of an objective's values so far, and of their derivatives with respect to the hypers that it tunes."""


def one_step(problem: Problem, settings: WindowSettings) -> Method:
    """grad = dE/ds_t B_t + dE/d hypers at the last step of each window, by one tape over that step.

    No column of Z is pushed, so that time and memory do not depend on the number of hypers. A running cost needs a tape over
    every step: grad = sum over t of dE_t/ds_t B_t + dE_t/d hypers.
    """

    def start(params: Nest, hypers: Hypers) -> WindowCarry:
        return WindowCarry(problem.dynamics.init(params, hypers), (), tf.constant(0))

    def advance(carry: WindowCarry, hypers: Hypers, k: tf.Tensor, streamed: Nest) -> tuple[HyperGradient, WindowCarry]:
        t, hypers, k, streamed = loops.unknown((carry.t, hypers, k, streamed))
        sweep = OneStepSweep(problem.reading(streamed, t), hypers, k, t, settings.discount)
        state, end = carry.state, t + settings.steps(t)
        totals = [(cost.value, cost.hypers) for cost in sweep.nothing(state)]
        if settings.most > 1:
            state, totals = loops.fold(sweep.earlier, (state, totals), t, settings.steps(t) - 1)
        state, costs = sweep.last(state, end - 1)
        totals = add(totals, costs)
        grads = {name: grad for _, derivatives in totals for name, grad in derivatives.items()}
        value = problem.value(sweep.terms, [value for value, _ in totals])
        norms = {"adjoint": nest.norm([cost.state for cost in costs])}
        hypergradient = HyperGradient(value, {name: grads[name] for name in hypers}, (), norms)
        return hypergradient, carry._replace(state=state, t=end)

    return Method(start, advance)


class OneStepSweep(WindowSweep):
    """The steps of one window; each step that ends at a cost is differentiated separately."""

    def earlier(self, carry: tuple[Nest, list[Total]], t: tf.Tensor) -> tuple[Nest, list[Total]]:
        """A step before the last one, which only a running cost differentiates."""
        state, totals = carry
        if all(term.every is None for term in self.terms):
            return self.step(state, t), totals
        new, tape = self._taped(state, t)
        return new, add(totals, self._pulled(tape, new, self._running(t + 1, new, self.nothing(new))))

    def last(self, state: Nest, t: tf.Tensor) -> tuple[Nest, list[Cost]]:
        """The last step, and the objectives at its end."""
        new, tape = self._taped(state, t)
        return new, self._pulled(tape, new, self.turn(new, self.nothing(new), t + 1)[0])

    def _taped(self, state: Nest, t: tf.Tensor) -> tuple[Nest, tf.GradientTape]:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(self.hypers)
            new = self.step(state, t)
        return new, tape

    def _pulled(self, tape: tf.GradientTape, new: Nest, costs: Sequence[Cost]) -> list[Cost]:
        """The costs at the end of a step, with dE/ds B added to their derivatives."""
        pulled = []
        for cost in costs:
            tuned = {name: self.hypers[name] for name in cost.hypers}
            through = nest.dense(tape.gradient(new, tuned, cost.state, unconnected_gradients=ZERO))
            pulled.append(cost._replace(hypers=nest.add(cost.hypers, through)))
        return pulled


def add(totals: Sequence[Total], costs: Sequence[Cost]) -> list[Total]:
    """The totals with the costs of one more step."""
    return [nest.add(total, (cost.value, cost.hypers)) for total, cost in zip(totals, costs, strict=True)]

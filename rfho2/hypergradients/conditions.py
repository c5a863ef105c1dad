"""The equation that the end of a training satisfies, linearised there: what implicit differentiation starts from."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Dynamics, gradient_of
from rfho2.problem import Problem

ZERO = tf.UnconnectedGradients.ZERO
CONDITIONS = ("gradient", "step")


class Condition(NamedTuple):
    """An equation for the point at which the training ends, as functions of the problem.

    Attributes:
      name: "gradient", F(w) = grad J(w) = 0 on the params; or "step", F(s) = Phi(s) - s = 0 on the whole state.
      point: state -> the point w or s.
      value: (point, hypers, batch, t) -> grad J(w), or Phi(s).
      sign: of v in the hypergradient sign v^T d(value)/d hypers, and in the predicted change sign v^T F.
    """

    name: str
    point: Callable[[Nest], Nest]
    value: Callable[[Nest, Hypers, Nest, tf.Tensor], Nest]
    sign: float

    def dynamics(self, problem: Problem) -> Dynamics:
        """The problem's dynamics with the point in place of the state, for the derivatives of objectives."""
        if self.name == "step":
            return problem.dynamics
        return problem.dynamics._replace(params=lambda params: params)


def condition_of(problem: Problem, name: str) -> Condition:
    """The condition with that name; "auto" is "gradient" where the step of the dynamics has one, and "step" otherwise."""
    gradient = gradient_of(problem.dynamics)
    if name not in ("auto", *CONDITIONS):
        raise ValueError(f"condition is {name!r}; choose 'auto', 'gradient' or 'step'.")
    if name == "gradient" and gradient is None:
        raise ValueError(
            "condition is 'gradient', but the step of the dynamics has no gradient: it is one with decoupled decay, such as "
            "rf.adamw, which keeps the weights away from where the gradient is zero, or a step of your own. "
            "Use condition='step', or attach one: step.gradient = lambda params, hypers, batch, t: ..."
        )
    if gradient is not None and name != "step":
        return Condition("gradient", problem.dynamics.params, gradient, -1.0)
    return Condition("step", lambda state: state, problem.dynamics.step, 1.0)


class Linearised:
    """A condition at one point, for one batch: F, and products with M^T and with dF/d hypers.

    M is H for "gradient", which is symmetric, and I - A for "step". One tape records the value once; products only read it,
    so that a loop of products repeats no part of the step.

    Args:
      condition: what is linearised.
      state: where the training has ended.
      hypers, batch, t: the other arguments of the step there.
      damping: d, added to the diagonal: M + d I.
    """

    def __init__(self, condition: Condition, state: Nest, hypers: Hypers, batch: Nest, t: tf.Tensor, damping: float):
        self.condition, self.damping = condition, damping
        self.point, self.hypers = condition.point(state), dict(hypers)
        self._value = lambda point: condition.value(point, hypers, batch, t)
        with tf.GradientTape(persistent=True) as self._tape:
            self._tape.watch((self.point, self.hypers))
            self._new = condition.value(self.point, self.hypers, batch, t)

    @property
    def residual(self) -> Nest:
        """F: grad J(w), or Phi(s) - s; zero at a solution."""
        if self.condition.name == "gradient":
            return self._new
        return nest.map(tf.subtract, self._new, self.point)

    def transposed_product(self, v: Nest) -> Nest:
        """M^T v: H v, or v - A^T v."""
        pulled = nest.dense(self._tape.gradient(self._new, self.point, v, unconnected_gradients=ZERO))
        return self._completed(v, pulled)

    def product(self, v: Nest) -> Nest:
        """M v, which for "step" takes forward mode."""
        if self.condition.name == "gradient":
            return self.transposed_product(v)
        with tf.autodiff.ForwardAccumulator(self.point, v) as accumulator:
            new = self._value(self.point)
        return self._completed(v, accumulator.jvp(new, unconnected_gradients=ZERO))

    def by_hypers(self, v: Nest, names: tuple[str, ...]) -> dict[str, tf.Tensor | None]:
        """v^T d(value)/d hypers, or None for a hyper that the condition does not depend on."""
        return self._tape.gradient(self._new, {name: self.hypers[name] for name in names}, v)

    def _completed(self, v: Nest, derivative: Nest) -> Nest:
        if self.condition.name == "gradient":
            return nest.map(lambda d, v: d + self.damping * v, derivative, v) if self.damping else derivative
        return nest.map(lambda d, v: (1 + self.damping) * v - d, derivative, v)

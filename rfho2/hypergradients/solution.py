"""The end of a training: its linear systems, and the hypergradient read from their solutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.batches import of_episodes
from rfho2.core import linear, loops, nest
from rfho2.core.types import Batches, HyperGradient, Hypers, Nest
from rfho2.hypergradients.conditions import Condition, Linearised
from rfho2.hypergradients.unsettled import SYMMETRIC
from rfho2.problem import Cost, Problem, Term

Schedule = float | Callable[[tf.Tensor], Any]
"""A number, or a function of the hyper-iteration k, which is passed as a floating tensor."""


class ImplicitOptions(NamedTuple):
    """The arguments of `rf.implicit`, checked and resolved; `renewed` is whether each product takes the next batch."""

    condition: Condition
    solver: str
    iterations: int
    tolerance: Schedule
    settled: Schedule
    damping: float
    batches: Batches | None
    renewed: bool


class ImplicitResult(NamedTuple):
    """The end of one hyper-iteration: its hypergradient, one adjoint v per objective, and the time t."""

    hypergradient: HyperGradient
    adjoints: list[Nest]
    t: tf.Tensor


def value_at(schedule: Schedule, k: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The value of a schedule at hyper-iteration k."""
    return tf.convert_to_tensor(schedule(tf.cast(k, dtype)) if callable(schedule) else schedule, dtype)


def differentiate(
    problem: Problem,
    options: ImplicitOptions,
    state: Nest,
    t: tf.Tensor,
    starts: list[Nest] | None,
    hypers: Hypers,
    k: tf.Tensor,
) -> ImplicitResult:
    """Trains on from `state` at time t, solves one linear system per objective, and reads the hypergradient.

    Args:
      starts: where the solver starts, one adjoint per objective; None is 0.
    """
    end = EndOfTraining(problem, options, hypers, k, *train(problem, options, state, t, hypers, k))
    terms = problem.terms(hypers)
    values, adjoints, norms = [], [], []
    grads: dict[str, tf.Tensor] = {}
    for i, term in enumerate(terms):
        cost = end.cost(term)
        solution, term_norms = end.solve(cost, None if starts is None else starts[i])
        values.append(cost.value)
        adjoints.append(solution.v)
        grads |= end.read(term, cost, solution.v)
        norms.append(term_norms)
    reported = {"residual": nest.norm(end.system.residual), **_combined(norms)}
    value, grads = problem.value(terms, values), {name: grads[name] for name in hypers}
    return ImplicitResult(HyperGradient(value, grads, end.state, reported), adjoints, end.t)


def train(
    problem: Problem, options: ImplicitOptions, state: Nest, t: tf.Tensor, hypers: Hypers, k: tf.Tensor
) -> tuple[Nest, tf.Tensor]:
    """The state and the time after the training."""
    assert problem.steps is not None
    if not callable(options.settled) and options.settled == 0:
        return loops.fold(lambda s, t: problem.step(s, hypers, t, k), state, t, problem.steps), t + problem.steps
    params = problem.dynamics.params
    settled = value_at(options.settled, k, nest.flatten(state)[0].dtype)

    def unfinished(carry: Nest) -> tf.Tensor:
        i, _, moving = carry
        return (i < problem.steps) & moving

    def iterate(carry: Nest) -> Nest:
        i, old, _ = carry
        new = problem.step(old, hypers, t + i, k)
        change = nest.norm(nest.map(tf.subtract, params(new), params(old)))
        return i + 1, new, change > settled * nest.norm(params(old))

    i, state, _ = loops.repeat(unfinished, iterate, (tf.constant(0), state, tf.constant(True)))
    return state, t + i


class EndOfTraining:
    """The end of a training, with the condition linearised there.

    Args:
      problem, options, hypers, k: as in `differentiate`.
      state, t: where and when the training ended.
    """

    def __init__(self, problem: Problem, options: ImplicitOptions, hypers: Hypers, k: tf.Tensor, state: Nest, t: tf.Tensor):
        self.problem, self.options, self.hypers, self.k, self.state, self.t = problem, options, hypers, k, state, t
        self.system = self._linearised(t)
        self.dtype = nest.flatten(state)[0].dtype

    def _linearised(self, index: tf.Tensor) -> Linearised:
        """The condition on the batch with that index; a schedule is held at its value at time t."""
        options = self.options
        if options.batches is None:
            batch = self.problem.batch(index, self.k)
        else:
            batch = options.batches(index, self.k) if of_episodes(options.batches) else options.batches(index)
        return Linearised(options.condition, self.state, self.hypers, batch, self.t, options.damping)

    def cost(self, term: Term) -> Cost:
        """The objective there, and its derivatives."""
        dynamics = self.options.condition.dynamics(self.problem)
        return term.cost(dynamics, self.system.point, self.hypers, term.batch(self.k))

    def solve(self, cost: Cost, start: Nest | None) -> tuple[linear.Solution, dict[str, tf.Tensor]]:
        """v with M^T v = dE/d point, and the norms that say how far to trust it."""
        product = self.system.transposed_product
        solution = linear.solve(self._solver(cost.state), product, cost.state, start)
        norms = {}
        if self.options.solver == "cg" and self.options.condition.name == "step":
            norms["asymmetry"] = asymmetry = linear.asymmetry(product, cost.state)
            wrong = tf.constant(float("nan"), self.dtype)
            solution = solution._replace(v=nest.map(lambda v: tf.where(asymmetry > SYMMETRIC, wrong, v), solution.v))
        if self.options.solver == "cg":
            norms["curvature"] = solution.curvature
        change = self.options.condition.sign * nest.dot(solution.v, self.system.residual)
        size = tf.abs(cost.value)
        relative = tf.abs(change) / tf.where(size > 0, size, tf.ones_like(size))
        norms |= {"predicted change": change, "unsettled": relative, "linear residual": solution.residual}
        return solution, {**norms, "products": tf.cast(solution.products, self.dtype)}

    def _solver(self, b: Nest) -> Callable[[Nest, Nest | None], linear.Solution]:
        """(b, start) -> Solution, by the method that the user chose."""
        options, system = self.options, self.system
        product = system.transposed_product
        stop = {"iterations": options.iterations, "tolerance": value_at(options.tolerance, self.k, self.dtype)}
        if options.solver == "cg":
            return lambda b, start: linear.cg(product, b, start, **stop)
        if options.solver == "bicgstab":
            return lambda b, start: linear.bicgstab(product, b, start, **stop)
        if options.solver == "normal":
            return lambda b, start: linear.normal(product, system.product, b, start, **stop)

        def renewed(v: Nest, i: tf.Tensor) -> Nest:
            return (self._linearised(self.t + i) if options.renewed else system).transposed_product(v)

        def sum_terms(b: Nest, start: Nest | None) -> linear.Solution:
            rate = 1 / linear.largest_eigenvalue(product, b) if options.condition.name == "gradient" else 1.0
            stop["tolerance"] = None if options.renewed else stop["tolerance"]
            return linear.fixed_point(renewed, b, start, **stop, rate=rate)

        return sum_terms

    def read(self, term: Term, cost: Cost, v: Nest) -> dict[str, tf.Tensor]:
        """The hypergradient of one objective from its adjoint; rejects hypers that do not affect it."""
        products = self.system.by_hypers(v, term.hypers)
        self._check_connected(term, [name for name, product in products.items() if product is None])
        sign = self.options.condition.sign
        return {
            name: direct if products[name] is None else direct + sign * tf.convert_to_tensor(products[name])
            for name, direct in cost.hypers.items()
        }

    def _check_connected(self, term: Term, names: list[str]) -> None:
        """Rejects the hypers on which the objective does not depend directly either."""
        with tf.GradientTape() as tape:
            tape.watch(tuned := {name: self.hypers[name] for name in names})
            params = self.options.condition.dynamics(self.problem).params(self.system.point)
            value = term.fn(params, {**self.hypers, **tuned}, term.batch(self.k))
        lost = [name for name, derivative in tape.gradient(value, tuned).items() if derivative is None]
        if lost:
            raise ValueError(
                f"{', '.join(map(repr, lost))} {'does' if len(lost) == 1 else 'do'} not affect the solution of the "
                f"training, so the implicit derivative is 0. Learning rate, momentum and initialisation only change the "
                f"path to it: tune them with rf.reverse, rf.forward or rf.real_time, or hold them fixed."
            )


def _combined(norms: list[dict[str, tf.Tensor]]) -> dict[str, tf.Tensor]:
    """The norms of all objectives: changes and products are added; of the other norms the worst counts."""
    reductions = {"predicted change": tf.reduce_sum, "products": tf.reduce_sum, "curvature": tf.reduce_min}
    return {
        name: reductions.get(name, tf.reduce_max)(tf.stack([term_norms[name] for term_norms in norms])) for name in norms[0]
    }

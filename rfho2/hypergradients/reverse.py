"""Reverse-HG, Algorithm 1 of the paper: train and save the states, then carry the adjoint back through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from rfho2.core import errors, loops, nest
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.dynamics.base import replay_of
from rfho2.hypergradients import binomial
from rfho2.hypergradients.engine import MethodEngine
from rfho2.hypergradients.method import Method, from_the_start
from rfho2.problem import Cost, Problem

ZERO = tf.UnconnectedGradients.ZERO


def reverse(
    problem: Problem, checkpoints: int | None = None, truncate: int | None = None, jit_compile: bool | None = None
) -> MethodEngine:
    """Reverse-mode hypergradients: time independent of the number of hypers, memory for T states or for as few as you like.

    alpha_T = dE/ds_T,  alpha_{t-1} = alpha_t A_t,
    grad = sum over t = 1..T of alpha_t B_t + dE/d hypers + alpha_0 ds_0/d hypers

    Args:
      problem: what to differentiate.
      checkpoints: the number of states to save; the others are recomputed. 2 sqrt(T) checkpoints cost at most one more
        training, 3 T^(1/3) at most two, and so on; 1 saves only the first state and costs T / 2 trainings. None saves all T.
      truncate: differentiate only the last k steps, as if the state before them did not depend on the hypers; memory for k
        states. None differentiates all T steps, which is exact.
      jit_compile: None tries XLA, except for convolutions on a CPU, and falls back to the graph; True or False decides.

    Returns:
      An engine, `engine(params, hypers, k=0) -> HyperGradient(value, grads, state, norms)`.

    >>> import rfho2 as rf
    >>> loss = lambda w, hypers, batch: 0.5 * w**2
    >>> engine = rf.reverse(rf.Problem(rf.gradient_descent(loss, "lr"), loss, steps=2), jit_compile=False)
    >>> round(engine(tf.constant(1.0), {"lr": 0.5}).grads["lr"].numpy().item(), 6)  # d/dlr of (1 - lr)^4 / 2
    -0.25
    """
    if truncate is not None:
        truncate = errors.check_count("truncate", truncate, most=problem.steps)
    if checkpoints is not None:
        checkpoints = errors.check_count("checkpoints", checkpoints)
    settings = {"method": "reverse", "checkpoints": checkpoints, "truncate": truncate}
    settings |= {"steps": problem.steps, "jit_compile": jit_compile}
    return MethodEngine(problem, settings, lambda problem, *_: _method(problem, checkpoints, truncate), afresh=True)


def _method(problem: Problem, checkpoints: int | None, truncate: int | None) -> Method:
    def hypergradient(params: Nest, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        assert problem.steps is not None
        sweep = Sweep(problem, hypers, k)
        tail = truncate or problem.steps
        head = problem.steps - tail
        state = problem.dynamics.init(params, hypers)
        costs = sweep.nothing(state)
        if head:
            state, costs = loops.fold(sweep.skip, (state, costs), 0, head)
        if checkpoints is None or checkpoints >= tail:
            trajectory, last = loops.record(sweep.step, state, head, tail)
            costs, _ = loops.fold_back(sweep.back, sweep.turn(last, costs, problem.steps), trajectory, head, tail)
        else:
            saved, last = binomial.record(sweep.step, state, head, tail, checkpoints)
            carry = sweep.turn(last, costs, problem.steps)
            costs, _ = binomial.fold_back(sweep.step, sweep.back, carry, saved, head, tail, checkpoints)
        norms = {"adjoint": problem.norm([cost.state for cost in costs])}
        if not head:
            costs = pull_back(lambda _, hypers: problem.dynamics.init(params, hypers), (), hypers, costs)
        grads = {name: grad for cost in costs for name, grad in cost.hypers.items()}
        value = problem.value(sweep.terms, [cost.value for cost in costs])
        return HyperGradient(value, {name: grads[name] for name in hypers}, last, norms)

    return from_the_start(hypergradient)


class Sweep:
    """The steps of the forward and the backward sweep, with the hypers and the validation batches of one hypergradient."""

    def __init__(self, problem: Problem, hypers: Hypers, k: tf.Tensor):
        self.problem, self.hypers, self.k = problem, hypers, k
        self.terms = problem.terms(hypers)
        self.batches = [term.batch(k) for term in self.terms]
        self.replay = replay_of(problem.dynamics)

    def nothing(self, state: Nest) -> list[Cost]:
        """Zero costs, to add to."""
        return [term.nothing(state, self.hypers) for term in self.terms]

    def step(self, state: Nest, t: tf.Tensor) -> Nest:
        """s_{t+1}."""
        return self.problem.step(state, self.hypers, t, self.k)

    def skip(self, carry: Nest, t: tf.Tensor) -> Nest:
        """A step that truncation leaves undifferentiated: running costs count, their adjoints do not."""
        state, costs = carry
        costs = self._running(t, state, costs)
        return self.step(state, t), [cost._replace(state=nest.zeros_like(cost.state)) for cost in costs]

    def turn(self, last: Nest, costs: Sequence[Cost], t: loops.Time) -> tuple[list[Cost], Nest]:
        """The start of the backward sweep at t = T: alpha_T, and s_T if the dynamics can replay a step."""
        terms = zip(self.terms, self.batches, strict=True)
        ends = [term.at_end(self.problem.dynamics, last, self.hypers, batch) for term, batch in terms]
        costs = [nest.add(cost, end) for cost, end in zip(costs, ends, strict=True)]
        return self._running(tf.convert_to_tensor(t), last, costs), () if self.replay is None else last

    def back(self, carry: tuple[Sequence[Cost], Nest], state: Nest, t: tf.Tensor) -> tuple[list[Cost], Nest]:
        """From alpha_{t+1} to alpha_t, through the step from s_t."""
        costs, new = carry
        costs = pull_back(self._phi(t, new), state, self.hypers, costs)
        return self._running(t, state, costs), () if self.replay is None else state

    def _phi(self, t: tf.Tensor, new: Nest) -> Callable[[Nest, Hypers], Nest]:
        batch, replay = self.problem.batch(t, self.k), self.replay
        if replay is None:
            return lambda state, hypers: self.problem.dynamics.step(state, hypers, batch, t)
        return lambda state, hypers: replay(state, hypers, batch, t, new)

    def _running(self, t: tf.Tensor, state: Nest, costs: Sequence[Cost]) -> list[Cost]:
        """Adds the running costs at s_t."""
        terms = zip(self.terms, self.batches, strict=True)
        added = [term.after(t, self.problem.dynamics, state, self.hypers, batch) for term, batch in terms]
        return [cost if a is None else nest.add(cost, a) for cost, a in zip(costs, added, strict=True)]


def pull_back(phi: Callable[[Nest, Hypers], Nest], state: Nest, hypers: Hypers, costs: Sequence[Cost]) -> list[Cost]:
    """One step of the adjoint: alpha <- alpha A and g <- g + alpha B, for each objective.

    `cost.state` is alpha and `cost.hypers` is g. A and B, the derivatives of phi with respect to the state and the hypers,
    are never formed: one tape gives both products.
    """
    with tf.GradientTape(persistent=len(costs) > 1) as tape:
        tape.watch((state, hypers))
        new = phi(state, hypers)
    pulled = []
    for cost in costs:
        tuned = {name: hypers[name] for name in cost.hypers}
        alpha, direct = nest.dense(tape.gradient(new, (state, tuned), cost.state, unconnected_gradients=ZERO))
        pulled.append(Cost(cost.value, alpha, nest.add(cost.hypers, direct)))
    return pulled

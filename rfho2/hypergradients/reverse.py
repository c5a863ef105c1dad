"""Reverse-HG, Algorithm 1 of the paper: train, keeping the states; then carry the adjoint back through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from rfho2.core import errors, loops, nest
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.hypergradients import binomial as checkpointing
from rfho2.hypergradients.engine import BatchEngine, Norms
from rfho2.problem import Cost, Problem

ZERO = tf.UnconnectedGradients.ZERO


def reverse(
    problem: Problem, checkpoints: int | None = None, truncate: int | None = None, jit_compile: bool | None = None
) -> BatchEngine:
    """Reverse-mode hypergradients: cost independent of the number of hypers, memory T states, or as few as you like.

    alpha_T = dE/ds_T,  alpha_{t-1} = alpha_t A_t,
    grad = sum over t = 1..T of alpha_t B_t + dE/d hypers + alpha_0 ds_0/d hypers

    Args:
      problem: what to differentiate.
      checkpoints: keep so many states and compute the others again. 2 sqrt(T) cost at most one more training, 3 T^(1/3) at
        most two, and so on; 1 keeps the first state only and runs T / 2 trainings. None keeps all T.
      truncate: differentiate the last k steps only, as if the state before them did not depend on the hypers; memory k
        states. None for all T, which is exact.
      jit_compile: None tries XLA and falls back to the graph; True or False insists.

    Returns:
      An engine, `engine(params, hypers, k=0) -> HyperGradient(value, grads, state)`.

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

    def hypergradient(params: Nest, hypers: Hypers, k: tf.Tensor) -> tuple[HyperGradient, Norms]:
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
            costs, _ = loops.fold_back(sweep.back, sweep.turn(last, costs), trajectory, head, tail)
        else:
            kept, last = checkpointing.record(sweep.step, state, head, tail, checkpoints)
            carry = sweep.turn(last, costs)
            costs, _ = checkpointing.fold_back(sweep.step, sweep.back, carry, kept, head, tail, checkpoints)
        norms = {"adjoint": nest.norm([cost.state for cost in costs])}
        if not head:
            costs = pull_back(lambda _, hypers: problem.dynamics.init(params, hypers), (), hypers, costs)
        grads = {name: grad for cost in costs for name, grad in cost.hypers.items()}
        value = problem.value(sweep.terms, [cost.value for cost in costs])
        return HyperGradient(value, {name: grads[name] for name in hypers}, last), norms

    return BatchEngine(problem, hypergradient, settings, jit_compile)


class Sweep:
    """The ways through the training, there and back, with the hypers and the validation batches of one hypergradient."""

    def __init__(self, problem: Problem, hypers: Hypers, k: tf.Tensor):
        self.problem, self.hypers = problem, hypers
        self.terms = problem.terms(hypers)
        self.batches = [term.batch(k) for term in self.terms]
        self.again = getattr(problem.dynamics.step, "again", None)

    def nothing(self, state: Nest) -> list[Cost]:
        """Costs to add to."""
        return [term.nothing(state, self.hypers) for term in self.terms]

    def step(self, state: Nest, t: tf.Tensor) -> Nest:
        """s_{t+1}, forwards."""
        return self.problem.dynamics.step(state, self.hypers, self.problem.batch(t), t)

    def skip(self, carry: Nest, t: tf.Tensor) -> Nest:
        """As `step`, of those that are not differentiated: running costs count there, their adjoints do not."""
        state, costs = carry
        costs = self._running(t, state, costs)
        return self.step(state, t), [cost._replace(state=nest.zeros_like(cost.state)) for cost in costs]

    def turn(self, last: Nest, costs: Sequence[Cost]) -> tuple[list[Cost], Nest]:
        """What the way back begins with: alpha_T, and s_T where the steps can use it."""
        terms = zip(self.terms, self.batches, strict=True)
        ends = [term.at_end(self.problem.dynamics, last, self.hypers, batch) for term, batch in terms]
        costs = [nest.add(cost, end) for cost, end in zip(costs, ends, strict=True)]
        return self._running(tf.constant(self.problem.steps), last, costs), () if self.again is None else last

    def back(self, carry: tuple[Sequence[Cost], Nest], state: Nest, t: tf.Tensor) -> tuple[list[Cost], Nest]:
        """alpha_{t+1} to alpha_t, through the step from s_t."""
        costs, new = carry
        costs = pull_back(self._phi(t, new), state, self.hypers, costs)
        return self._running(t, state, costs), () if self.again is None else state

    def _phi(self, t: tf.Tensor, new: Nest) -> Callable[[Nest, Hypers], Nest]:
        batch, again = self.problem.batch(t), self.again
        if again is None:
            return lambda state, hypers: self.problem.dynamics.step(state, hypers, batch, t)
        return lambda state, hypers: again(state, hypers, batch, t, new)

    def _running(self, t: tf.Tensor, state: Nest, costs: Sequence[Cost]) -> list[Cost]:
        """Adds what the running costs find at s_t."""
        terms = zip(self.terms, self.batches, strict=True)
        found = [term.after(t, self.problem.dynamics, state, self.hypers, batch) for term, batch in terms]
        return [cost if f is None else nest.add(cost, f) for cost, f in zip(costs, found, strict=True)]


def pull_back(phi: Callable[[Nest, Hypers], Nest], state: Nest, hypers: Hypers, costs: Sequence[Cost]) -> list[Cost]:
    """One step of the adjoint: alpha <- alpha A and g <- g + alpha B, for each objective.

    `cost.state` is alpha and `cost.hypers` is g; A and B are the derivatives of phi by state and by hypers, which are never
    formed: one tape gives both products.
    """
    with tf.GradientTape(persistent=len(costs) > 1) as tape:
        tape.watch((state, hypers))
        new = phi(state, hypers)
    pulled = []
    for cost in costs:
        own = {name: hypers[name] for name in cost.hypers}
        alpha, direct = nest.dense(tape.gradient(new, (state, own), cost.state, unconnected_gradients=ZERO))
        pulled.append(Cost(cost.value, alpha, nest.add(cost.hypers, direct)))
    return pulled

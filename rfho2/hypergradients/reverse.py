"""Reverse-HG, Algorithm 1 of the paper: train, keeping the states; then carry the adjoint back through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from rfho2 import errors, loops, nest
from rfho2.hypergradients import checkpointing
from rfho2.hypergradients.engine import BatchEngine
from rfho2.problem import Cost, Problem
from rfho2.types import HyperGradient, Hypers, Nest

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
        most two, and so on; 1 keeps the first state only and runs T / 2 trainings. None keeps all T, and is what inputs
        that are DTensors need.
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

    def hypergradient(params: Nest, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        assert problem.steps is not None
        terms = problem.terms(hypers)
        batches = [term.batch(k) for term in terms]
        tail = truncate or problem.steps
        head = problem.steps - tail
        again = getattr(problem.dynamics.step, "again", None)
        slots = None if checkpoints is None or checkpoints >= tail else checkpoints

        def phi(t: tf.Tensor) -> Callable[[Nest, Hypers], Nest]:
            batch = problem.batch(t)
            return lambda state, hypers: problem.dynamics.step(state, hypers, batch, t)

        def phi_again(t: tf.Tensor, new: Nest) -> Callable[[Nest, Hypers], Nest]:
            batch = problem.batch(t)
            assert again is not None
            return lambda state, hypers: again(state, hypers, batch, t, new)

        def running(t: tf.Tensor, state: Nest, costs: Sequence[Cost]) -> list[Cost]:
            """Adds what the running costs find at s_t."""
            found = [
                term.after(t, problem.dynamics, state, hypers, batch) for term, batch in zip(terms, batches, strict=True)
            ]
            return [c if f is None else nest.add(c, f) for c, f in zip(costs, found, strict=True)]

        def forget(costs: Sequence[Cost]) -> list[Cost]:
            return [cost._replace(state=nest.zeros_like(cost.state)) for cost in costs]

        def skip(carry: Nest, t: tf.Tensor) -> Nest:
            state, costs = carry
            costs = forget(running(t, state, costs))
            return phi(t)(state, hypers), costs

        def back(carry: tuple[Sequence[Cost], Nest], state: Nest, t: tf.Tensor) -> tuple[list[Cost], Nest]:
            costs, new = carry
            costs = pull_back(phi(t) if again is None else phi_again(t, new), state, hypers, costs)
            return running(t, state, costs), () if again is None else state

        def step(state: Nest, t: tf.Tensor) -> Nest:
            return phi(t)(state, hypers)

        state = problem.dynamics.init(params, hypers)
        costs = [term.nothing(state, hypers) for term in terms]
        if head:
            state, costs = loops.fold(skip, (state, costs), 0, head)
        if slots is None:
            trajectory, last = loops.record(step, state, head, tail)
        else:
            kept, last = checkpointing.record(step, state, head, tail, slots)
        at_end = [t.at_end(problem.dynamics, last, hypers, b) for t, b in zip(terms, batches, strict=True)]
        costs = [nest.add(cost, end) for cost, end in zip(costs, at_end, strict=True)]
        costs = running(tf.constant(problem.steps), last, costs)
        carry = costs, () if again is None else last
        if slots is None:
            costs, _ = loops.fold_back(back, carry, trajectory, head, tail)
        else:
            costs, _ = checkpointing.fold_back(step, back, carry, kept, head, tail, slots)
        if not head:
            costs = pull_back(lambda _, hypers: problem.dynamics.init(params, hypers), (), hypers, costs)
        grads = {name: grad for cost in costs for name, grad in cost.hypers.items()}
        value = problem.value(terms, [cost.value for cost in costs])
        return HyperGradient(value, {name: grads[name] for name in hypers}, last)

    return BatchEngine(problem, hypergradient, settings, jit_compile)


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

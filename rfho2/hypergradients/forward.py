"""Forward-HG, Algorithm 2 of the paper: pushes the sensitivity along with the training."""

from __future__ import annotations

import tensorflow as tf

from rfho2.core import errors
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.hypergradients.engine import OfflineEngine
from rfho2.hypergradients.sensitivity import (
    Directions,
    Pushed,
    balanced_chunk,
    check_not_empty,
    count_columns,
    directions,
    hypergradient_of,
    in_chunks,
    push_steps,
    start_tangent,
)
from rfho2.problem import Problem


def forward(problem: Problem, chunk: int | None = None, jit_compile: bool | None = None) -> OfflineEngine:
    """Forward-mode hypergradients: memory independent of T, time proportional to the number m of hyper entries.

    Z_0 = ds_0/d hypers,  Z_t = A_t Z_{t-1} + B_t,  grad = dE/ds_T Z_T + dE/d hypers

    Z has m columns, one for each entry of each hyper, and each column has the size of the state.

    Args:
      problem: what to differentiate.
      chunk: columns of Z to push together, which takes memory for about twice as many states. The training is repeated
        m / chunk times, rounded up, which costs little once the columns of a chunk outweigh it. None divides the columns
        into chunks of equal size, at most 64.
      jit_compile: None tries XLA, except for convolutions on a CPU, and falls back to the graph; True or False insists.

    Returns:
      An engine, `engine(params, hypers, k=0) -> HyperGradient(value, grads, state)`.

    >>> import rfho2 as rf
    >>> loss = lambda w, hypers, batch: 0.5 * w**2
    >>> engine = rf.forward(rf.Problem(rf.gradient_descent(loss, "lr"), loss, steps=2), jit_compile=False)
    >>> round(engine(tf.constant(1.0), {"lr": 0.5}).grads["lr"].numpy().item(), 6)  # d/dlr of (1 - lr)^4 / 2
    -0.25
    """
    if chunk is not None:
        chunk = errors.check_count("chunk", chunk)

    def hypergradient(params: Nest, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        assert problem.steps is not None
        steps = problem.steps

        def run(along: Directions) -> Pushed:
            tangent = start_tangent(problem, params, hypers, along)
            return push_steps(problem, tangent, hypers, along, k, 0, steps, lambda t: problem.batch(t, k))

        check_not_empty(hypers)
        m = count_columns(hypers)
        together = min(chunk or balanced_chunk(m), m)
        if together == m:
            pushed = run(directions(hypers, 0, m))
        else:
            pushed = in_chunks(problem, run, problem.dynamics.init(params, hypers), hypers, together)
        return hypergradient_of(problem, hypers, pushed)

    settings = {"method": "forward", "chunk": chunk}
    return OfflineEngine(problem, hypergradient, settings, jit_compile, lambda other: forward(other, chunk, jit_compile))

"""Forward-HG, Algorithm 2 of the paper: pushes the sensitivity along with the training."""

from __future__ import annotations

import tensorflow as tf

from rfho2.core import errors
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.hypergradients.engine import MethodEngine
from rfho2.hypergradients.method import Method, from_the_start
from rfho2.hypergradients.sensitivity import balanced_chunk, count_columns, hypergradient_of, push_in_chunks
from rfho2.problem import Problem


def forward(problem: Problem, chunk: int | None = None, jit_compile: bool | None = None) -> MethodEngine:
    """Forward-mode hypergradients: memory independent of T, time proportional to the number m of hyper entries.

    Z_0 = ds_0/d hypers,  Z_t = A_t Z_{t-1} + B_t,  grad = dE/ds_T Z_T + dE/d hypers

    Z has m columns, one for each entry of each hyper, and each column has the size of the state.

    Args:
      problem: what to differentiate.
      chunk: columns of Z to push together, which takes memory for about twice as many states. The training is repeated
        m / chunk times, rounded up, which costs little once the columns of a chunk outweigh it. None divides the columns
        into chunks of equal size, at most 64.
      jit_compile: None tries XLA, except for convolutions on a CPU, and falls back to the graph; True or False decides.

    Returns:
      An engine, `engine(params, hypers, k=0) -> HyperGradient(value, grads, state, norms)`.

    >>> import rfho2 as rf
    >>> loss = lambda w, hypers, batch: 0.5 * w**2
    >>> engine = rf.forward(rf.Problem(rf.gradient_descent(loss, "lr"), loss, steps=2), jit_compile=False)
    >>> round(engine(tf.constant(1.0), {"lr": 0.5}).grads["lr"].numpy().item(), 6)  # d/dlr of (1 - lr)^4 / 2
    -0.25
    """
    if chunk is not None:
        chunk = errors.check_count("chunk", chunk)
    settings = {"method": "forward", "chunk": chunk, "steps": problem.steps, "jit_compile": jit_compile}
    return MethodEngine(problem, settings, lambda problem, *_: _method(problem, chunk), afresh=True)


def _method(problem: Problem, chunk: int | None) -> Method:
    def hypergradient(params: Nest, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        m = count_columns(hypers)
        pushed = push_in_chunks(problem, params, hypers, k, 0, m, min(chunk or balanced_chunk(m), m))
        return hypergradient_of(problem, hypers, pushed)

    return from_the_start(hypergradient)

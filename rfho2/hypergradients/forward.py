"""Forward-HG, Algorithm 2 of the paper: the sensitivity Z_t = ds_t/d hypers is pushed along with the training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from rfho2 import loops, nest
from rfho2.hypergradients.engine import BatchEngine
from rfho2.problem import Cost, Problem
from rfho2.types import HyperGradient, Hypers, Nest

ZERO = tf.UnconnectedGradients.ZERO
FEW = 4  # columns


def forward(problem: Problem, *, jit_compile: bool | None = None) -> BatchEngine:
    """Forward-mode hypergradients: memory independent of T, time in proportion to the number m of hyper entries.

    Z_0 = ds_0/d hypers,  Z_t = A_t Z_{t-1} + B_t,  grad = dE/ds_T Z_T + dE/d hypers

    Z has m columns, one for each entry of each hyper, and each is as large as the state.

    Args:
      problem: what to differentiate.
      jit_compile: None tries XLA and falls back to the graph; True or False insists.

    Returns:
      An engine, `engine(params, hypers, k=0) -> HyperGradient(value, grads, state)`.

    >>> import rfho2 as rf
    >>> loss = lambda w, hypers, batch: 0.5 * w**2
    >>> engine = rf.forward(rf.Problem(rf.gradient_descent(loss, "lr"), loss, steps=2), jit_compile=False)
    >>> round(engine(tf.constant(1.0), {"lr": 0.5}).grads["lr"].numpy().item(), 6)  # d/dlr of (1 - lr)^4 / 2
    -0.25
    """

    def hypergradient(params: Nest, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        assert problem.steps is not None
        return push_steps(problem, start_tangent(problem, params, hypers), hypers, k, 0, problem.steps, problem.batch)[0]

    return BatchEngine(problem, hypergradient, {"method": "forward"}, jit_compile)


class Tangent(NamedTuple):
    """s_t and Z_t; each leaf of `sensitivity` is a leaf of the state with the m columns along a new first axis."""

    state: Nest
    sensitivity: Nest


def start_tangent(problem: Problem, params: Nest, hypers: Hypers) -> Tangent:
    """s_0 and Z_0 = ds_0/d hypers."""
    return push_forward(lambda _, hypers: problem.dynamics.init(params, hypers), Tangent((), ()), hypers)


def push_steps(
    problem: Problem,
    tangent: Tangent,
    hypers: Hypers,
    k: tf.Tensor,
    t: int | tf.Tensor,
    steps: int,
    batch: Callable[[tf.Tensor], Nest],
) -> tuple[HyperGradient, Tangent]:
    """`steps` steps from time t, and the hypergradient at their end."""
    terms = problem.terms(hypers)
    batches = [term.batch(k) for term in terms]
    pairs = list(zip(terms, batches, strict=True))

    def body(carry: tuple[Tangent, Sequence[Reading]], t: tf.Tensor) -> tuple[Tangent, Sequence[Reading]]:
        tangent, readings = carry
        examples = batch(t)
        tangent = push_forward(lambda s, h: problem.dynamics.step(s, h, examples, t), tangent, hypers)
        found = [term.after(t + 1, problem.dynamics, tangent.state, hypers, b) for term, b in pairs]
        new = [r if f is None else nest.add(r, read(f, tangent, hypers)) for r, f in zip(readings, found, strict=True)]
        return tangent, new

    zero = [read(term.nothing(tangent.state, hypers), tangent, hypers) for term in terms]
    tangent, readings = loops.fold(body, (tangent, zero), t, steps)
    ends = [read(term.at_end(problem.dynamics, tangent.state, hypers, b), tangent, hypers) for term, b in pairs]
    readings = [nest.add(reading, end) for reading, end in zip(readings, ends, strict=True)]
    grads = {name: grad for reading in readings for name, grad in reading.grads.items()}
    value = problem.value(terms, [reading.value for reading in readings])
    return HyperGradient(value, {name: grads[name] for name in hypers}, tangent.state), tangent


class Reading(NamedTuple):
    """An objective's value and the total derivative by the hypers it tunes."""

    value: tf.Tensor
    grads: dict[str, tf.Tensor]


def read(cost: Cost, tangent: Tangent, hypers: Hypers) -> Reading:
    """dE/ds Z + dE/d hypers, for the hypers that the cost's objective tunes."""
    products = nest.dots(tangent.sensitivity, cost.state)
    total = {}
    for name, begin, size in columns(hypers):
        if name in cost.hypers:
            part = tf.reshape(tf.slice(products, [begin], [size]), hypers[name].shape)
            total[name] = cost.hypers[name] + part
    return Reading(cost.value, total)


def push_forward(phi: Callable[[Nest, Hypers], Nest], tangent: Tangent, hypers: Hypers) -> Tangent:
    """s <- phi(s, hypers) and Z <- A Z + B, column by column, where A and B are the derivatives of phi.

    The columns go through one accumulator that is vectorised over them, so that the graph does not grow with their number
    and the step itself is computed once. Up to four have an accumulator each, which was a tenth faster on the network of
    `make bench` under XLA.
    """

    @tf.autograph.experimental.do_not_convert  # or vectorized_map would rewrite the user's loss
    def column(direction: tuple[Nest, dict[str, tf.Tensor]]) -> Nest:
        with tf.autodiff.ForwardAccumulator((tangent.state, dict(hypers)), direction) as accumulator:
            new = phi(tangent.state, hypers)
        return accumulator.jvp(new, unconnected_gradients=ZERO)

    along = (tangent.sensitivity, directions(hypers))
    m = sum(size for _, _, size in columns(hypers))
    if m <= FEW:
        each = [column(nest.map(lambda z, j=j: z[j], along)) for j in range(m)]
        sensitivity = nest.map(lambda *z: tf.stack(z), *each)
    else:
        sensitivity = tf.vectorized_map(column, along, warn=False)
    return Tangent(phi(tangent.state, hypers), sensitivity)


def directions(hypers: Hypers) -> dict[str, tf.Tensor]:
    """The unit vectors of the space of hypers, along the first axis of each."""
    m = sum(size for _, _, size in columns(hypers))
    unit = {}
    for name, begin, size in columns(hypers):
        rows = tf.one_hot(tf.range(m) - begin, size, dtype=hypers[name].dtype)
        unit[name] = tf.reshape(rows, [m, *hypers[name].shape])
    return unit


def columns(hypers: Hypers) -> list[tuple[str, int, int]]:
    """(name, first column, number of columns) of each hyper in Z."""
    names = sorted(hypers)  # as tf.nest does: the order in which a dict was filled has no meaning
    sizes = [int(np.prod(hypers[name].shape)) for name in names]
    begins = np.cumsum([0, *sizes[:-1]])
    return [(name, int(begin), size) for name, begin, size in zip(names, begins, sizes, strict=True)]

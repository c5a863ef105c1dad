"""Forward-HG, Algorithm 2 of the paper: the sensitivity Z_t = ds_t/d hypers is pushed along with the training."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from rfho2.core import errors, loops, nest
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.hypergradients.engine import BatchEngine, Norms
from rfho2.problem import Cost, Problem

ZERO = tf.UnconnectedGradients.ZERO
FEW = 4  # columns
TOGETHER = 64  # columns

Directions = dict[str, tf.Tensor]
"""Directions in the space of hypers, along a new first axis of each hyper."""


def forward(problem: Problem, chunk: int | None = None, jit_compile: bool | None = None) -> BatchEngine:
    """Forward-mode hypergradients: memory independent of T, time in proportion to the number m of hyper entries.

    Z_0 = ds_0/d hypers,  Z_t = A_t Z_{t-1} + B_t,  grad = dE/ds_T Z_T + dE/d hypers

    Z has m columns, one for each entry of each hyper, and each is as large as the state.

    Args:
      problem: what to differentiate.
      chunk: columns of Z that are pushed together, for about twice as many states of memory. The training is run
        m / chunk times, rounded up, which costs little once the columns of a chunk outweigh it. None takes chunks of
        equal size, of 64 at most.
      jit_compile: None tries XLA and falls back to the graph; True or False insists.

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

    def hypergradient(params: Nest, hypers: Hypers, k: tf.Tensor) -> tuple[HyperGradient, Norms]:
        assert problem.steps is not None
        steps = problem.steps

        def run(along: Directions) -> Pushed:
            tangent = start_tangent(problem, params, hypers, along)
            return push_steps(problem, tangent, hypers, along, k, 0, steps, problem.batch)

        check_entries(hypers)
        m = count(hypers)
        together = min(chunk or balanced(m), m)
        if together == m:
            pushed = run(directions(hypers, 0, m))
        else:
            pushed = in_chunks(problem, run, problem.dynamics.init(params, hypers), hypers, together)
        return hypergradient_of(problem, hypers, pushed), norms_of(pushed)

    return BatchEngine(problem, hypergradient, {"method": "forward", "chunk": chunk}, jit_compile)


class Tangent(NamedTuple):
    """s_t and Z_t; each leaf of `sensitivity` is one of the state with the columns along a new first axis, or `Columns`."""

    state: Nest
    sensitivity: Nest


class Reading(NamedTuple):
    """An objective's value, its direct derivative by the hypers it tunes, and dE/ds Z, a number for each column."""

    value: tf.Tensor
    direct: dict[str, tf.Tensor]
    products: tf.Tensor


class Pushed(NamedTuple):
    """Where some steps led to, what each objective reads there, and the sum of the squares of Z."""

    tangent: Tangent
    readings: list[Reading]
    squares: tf.Tensor


def start_tangent(problem: Problem, params: Nest, hypers: Hypers, along: Directions) -> Tangent:
    """s_0 and Z_0 = ds_0/d hypers, along the directions."""
    return push_forward(lambda _, hypers: problem.dynamics.init(params, hypers), Tangent((), ()), hypers, along)


def push_steps(
    problem: Problem,
    tangent: Tangent,
    hypers: Hypers,
    along: Directions,
    k: tf.Tensor,
    t: int | tf.Tensor,
    steps: int | tf.Tensor,
    batch: Callable[[tf.Tensor], Nest],
) -> Pushed:
    """`steps` steps from time t, and what the objectives read on the way and at their end."""
    terms = problem.terms(hypers)
    pairs = [(term, term.batch(k)) for term in terms]

    def body(carry: tuple[Tangent, list[Reading]], t: tf.Tensor) -> tuple[Tangent, list[Reading]]:
        tangent, readings = carry
        examples = batch(t)
        # Times 1, but no constants of the loop: XLA would take what depends on them alone out of it, for each accumulator by
        # itself, and then no longer see that all accumulators compute the same step.
        here = nest.map(lambda h: h * (1 + 0 * tf.cast(t, h.dtype)), dict(hypers))
        tangent = push_forward(lambda s, h: problem.dynamics.step(s, h, examples, t), tangent, here, along)
        found = [term.after(t + 1, problem.dynamics, tangent.state, hypers, b) for term, b in pairs]
        new = [r if f is None else nest.add(r, read(f, tangent)) for r, f in zip(readings, found, strict=True)]
        return tangent, new

    few = number_of(along) <= FEW
    tangent = tangent._replace(sensitivity=apart(tangent.sensitivity, number_of(along))) if few else tangent
    zero = [read(term.nothing(tangent.state, hypers), tangent) for term in terms]
    tangent, readings = loops.fold(body, (tangent, zero), t, steps)
    ends = [read(term.at_end(problem.dynamics, tangent.state, hypers, b), tangent) for term, b in pairs]
    tangent = tangent._replace(sensitivity=stacked(tangent.sensitivity)) if few else tangent
    squares = nest.dot(tangent.sensitivity, tangent.sensitivity)
    return Pushed(tangent, [nest.add(reading, end) for reading, end in zip(readings, ends, strict=True)], squares)


def read(cost: Cost, tangent: Tangent) -> Reading:
    """What a cost has at a state, and its change along each column of Z."""
    if isinstance(tangent.sensitivity, Columns):
        products = tf.stack([nest.dot(column, cost.state) for column in tangent.sensitivity])
    else:
        products = nest.dots(tangent.sensitivity, cost.state)
    return Reading(cost.value, cost.hypers, products)


def in_chunks(problem: Problem, run: Callable[[Directions], Pushed], state: Nest, hypers: Hypers, together: int) -> Pushed:
    """The training again and again, each time with the next columns of Z; the last chunk is filled up with zero columns.

    Args:
      run: directions -> the whole training with them.
      state: s_0, as an example of a state.
    """
    chunks = -(-count(hypers) // together)
    dtype = nest.flatten(state)[0].dtype

    def body(
        carry: tuple[Nest, list[Reading], list[tf.Tensor], tf.Tensor], i: tf.Tensor
    ) -> tuple[Nest, list[Reading], list[tf.Tensor], tf.Tensor]:
        tangent, readings, squares = run(directions(hypers, i * together, together))
        here = tf.equal(tf.range(chunks), i)[:, None]
        found = [tf.where(here, reading.products, rows) for rows, reading in zip(carry[2], readings, strict=True)]
        return tangent.state, readings, found, carry[3] + squares

    nothing = [term.nothing(state, hypers) for term in problem.terms(hypers)]
    readings = [Reading(cost.value, cost.hypers, tf.zeros(together, dtype)) for cost in nothing]
    found = [tf.zeros([chunks, together], dtype) for _ in nothing]
    state, readings, found, squares = loops.fold(body, (state, readings, found, tf.zeros([], dtype)), 0, chunks)
    whole = [r._replace(products=tf.reshape(rows, [-1])) for r, rows in zip(readings, found, strict=True)]
    return Pushed(Tangent(state, ()), whole, squares)


def norms_of(pushed: Pushed) -> Norms:
    """|Z|, over all its columns."""
    return {"sensitivity": tf.sqrt(pushed.squares)}


def hypergradient_of(problem: Problem, hypers: Hypers, pushed: Pushed) -> HyperGradient:
    """dE/ds Z + dE/d hypers, for each hyper from the objective that tunes it."""
    total = {}
    for reading in pushed.readings:
        for name, begin, size in columns(hypers):
            if name in reading.direct:
                part = tf.reshape(tf.slice(reading.products, [begin], [size]), hypers[name].shape)
                total[name] = reading.direct[name] + part
    value = problem.value(problem.terms(hypers), [reading.value for reading in pushed.readings])
    return HyperGradient(value, {name: total[name] for name in hypers}, pushed.tangent.state)


def push_forward(phi: Callable[[Nest, Hypers], Nest], tangent: Tangent, hypers: Hypers, along: Directions) -> Tangent:
    """s <- phi(s, hypers) and Z <- A Z + B, column by column, where A and B are the derivatives of phi.

    The columns go through one accumulator that is vectorised over them, so that the graph does not grow with their number
    and the step itself is computed once. A few columns that lie apart have an accumulator each: less is copied.
    """

    @tf.autograph.experimental.do_not_convert  # or vectorized_map would rewrite the user's loss
    def column(direction: tuple[Nest, dict[str, tf.Tensor]]) -> Nest:
        with tf.autodiff.ForwardAccumulator((tangent.state, dict(hypers)), direction) as accumulator:
            new = phi(tangent.state, hypers)
        return accumulator.jvp(new, unconnected_gradients=ZERO)

    sensitivity: Nest
    if isinstance(tangent.sensitivity, Columns):
        pairs = zip(tangent.sensitivity, apart(along, number_of(along)), strict=True)
        sensitivity = Columns(column(pair) for pair in pairs)
    else:
        sensitivity = tf.vectorized_map(column, (tangent.sensitivity, along), warn=False)
    return Tangent(phi(tangent.state, hypers), sensitivity)


class Columns(tuple):
    """The columns of Z each by itself, instead of along a new first axis."""

    __slots__ = ()


def apart(columns: Nest, number: int) -> Columns:
    """The columns that lie along the first axis of each leaf."""
    return Columns(nest.map(lambda z, j=j: z[j], columns) for j in range(number))


def stacked(columns: Columns) -> Nest:
    """The columns along a new first axis of each leaf."""
    return nest.map(lambda *z: tf.stack(z), *columns)


def number_of(along: Directions) -> int:
    """How many columns go along the directions."""
    return nest.flatten(along)[0].shape[0]


def directions(hypers: Hypers, begin: int | tf.Tensor, number: int) -> Directions:
    """The unit vectors number `begin` and following of the space of hypers, along the first axis of each; 0 past its end."""
    unit = {}
    for name, first, size in columns(hypers):
        rows = tf.one_hot(tf.range(number) + (begin - first), size, dtype=hypers[name].dtype)
        unit[name] = tf.reshape(rows, [number, *hypers[name].shape])
    return unit


def balanced(m: int) -> int:
    """Columns in a chunk if m are divided evenly: as few chunks as TOGETHER allows."""
    chunks = -(-m // TOGETHER)
    return -(-m // chunks)


def count(hypers: Hypers) -> int:
    """m, the number of columns of Z."""
    return sum(size for _, _, size in columns(hypers))


def check_entries(hypers: Hypers) -> None:
    """At least one column."""
    if not count(hypers):
        raise ValueError("hypers has no entries, so that there is nothing to push forward; leave empty hypers out.")


def columns(hypers: Hypers) -> list[tuple[str, int, int]]:
    """(name, first column, number of columns) of each hyper in Z."""
    names = sorted(hypers)  # as tf.nest does: the order in which a dict was filled has no meaning
    sizes = [int(np.prod(hypers[name].shape)) for name in names]
    begins = np.cumsum([0, *sizes[:-1]])
    return [(name, int(begin), size) for name, begin, size in zip(names, begins, sizes, strict=True)]

"""The sensitivity Z_t = ds_t/d hypers, pushed forward along with the training: Z_t = A_t Z_{t-1} + B_t.

Z has one column for each entry of each hyper, and each column has the size of the state. Forward mode pushes all columns, in
chunks; real time pushes them without end; processes can share them out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from rfho2.core import loops, nest
from rfho2.core.compiled import sharded
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.problem import Cost, Problem

ZERO = tf.UnconnectedGradients.ZERO
MAX_SEPARATE = 4  # columns: up to this number each is pushed by itself, which copies and computes less
MAX_CHUNK = 64  # columns pushed together

Directions = dict[str, tf.Tensor]
"""Directions in the space of hypers, along a new first axis of each hyper."""


class Tangent(NamedTuple):
    """s_t and Z_t.

    `sensitivity` has the columns along a new first axis of each leaf of the state; a few columns are `SeparateColumns`.
    """

    state: Nest
    sensitivity: Nest


class Reading(NamedTuple):
    """The value of an objective, its direct derivative dE/d hypers, and dE/ds Z, one number per column."""

    value: tf.Tensor
    direct: dict[str, tf.Tensor]
    products: tf.Tensor


class Pushed(NamedTuple):
    """The state and sensitivity after some steps, what each objective reads there, and the sum of the squares of Z."""

    tangent: Tangent
    readings: list[Reading]
    squares: tf.Tensor


def start_tangent(problem: Problem, params: Nest, hypers: Hypers, along: Directions) -> Tangent:
    """s_0 and Z_0 = ds_0/d hypers, along the directions."""
    number = count_directions(along)
    empty = SeparateColumns([()] * number) if _apart(number) else ()
    return push_forward(lambda _, hypers: problem.dynamics.init(params, hypers), Tangent((), empty), hypers, along)


def push_steps(
    problem: Problem,
    tangent: Tangent,
    hypers: Hypers,
    along: Directions,
    k: tf.Tensor,
    t: int | tf.Tensor,
    steps: int | tf.Tensor,
    batch: Callable[[tf.Tensor], Nest],
    discount: float = 1.0,
) -> Pushed:
    """`steps` steps from time t, with what the objectives read along the way and at the end; Z <- discount A Z + B."""
    terms = problem.terms(hypers)
    pairs = [(term, term.batch(k)) for term in terms]

    def body(carry: tuple[Tangent, list[Reading]], t: tf.Tensor) -> tuple[Tangent, list[Reading]]:
        tangent, readings = carry
        if discount != 1:
            tangent = tangent._replace(sensitivity=nest.map(lambda z: discount * z, tangent.sensitivity))
        examples = batch(t)
        tangent = push_forward(lambda s, h: problem.dynamics.step(s, h, examples, t), tangent, hypers, along)
        costs = [term.after(t + 1, problem.dynamics, tangent.state, hypers, b) for term, b in pairs]
        readings = [r if c is None else nest.add(r, read(c, tangent)) for r, c in zip(readings, costs, strict=True)]
        return tangent, readings

    if _apart(count_directions(along)):  # a plain tuple, if it comes through a tf.function
        tangent = tangent._replace(sensitivity=SeparateColumns(tangent.sensitivity))
    nothing = [term.nothing(tangent.state, hypers) for term in terms]
    zero = [Reading(cost.value, cost.hypers, tf.zeros(count_directions(along), cost.value.dtype)) for cost in nothing]
    tangent, readings = loops.fold(body, (tangent, zero), t, steps)
    ends = [read(term.at_end(problem.dynamics, tangent.state, hypers, b), tangent) for term, b in pairs]
    readings = [nest.add(reading, end) for reading, end in zip(readings, ends, strict=True)]
    return Pushed(tangent, readings, _squares(problem, tangent.sensitivity))


def _squares(problem: Problem, sensitivity: Nest) -> tf.Tensor:
    """The sum of the squares of Z."""
    if isinstance(sensitivity, SeparateColumns):
        return tf.add_n([problem.squares(nest.map(lambda z: z[tf.newaxis], column)) for column in sensitivity])
    return problem.squares(sensitivity)


def read(cost: Cost, tangent: Tangent) -> Reading:
    """The value of a cost at a state, and its derivative along each column of Z."""
    if isinstance(tangent.sensitivity, SeparateColumns):
        products = tf.stack([nest.dot(column, cost.state) for column in tangent.sensitivity])
    else:
        products = nest.dots(tangent.sensitivity, cost.state)
    return Reading(cost.value, cost.hypers, products)


def in_chunks(problem: Problem, run: Callable[[Directions], Pushed], state: Nest, hypers: Hypers, together: int) -> Pushed:
    """Repeats the training, each time with the next columns of Z; the last chunk is padded with zero columns.

    Args:
      run: directions -> the whole training with them.
      state: s_0, as an example of a state.
      together: columns in a chunk.
    """
    chunks = -(-count_columns(hypers) // together)
    dtype = nest.flatten(state)[0].dtype

    def body(
        carry: tuple[Nest, list[Reading], list[tf.Tensor], tf.Tensor], i: tf.Tensor
    ) -> tuple[Nest, list[Reading], list[tf.Tensor], tf.Tensor]:
        tangent, readings, squares = run(directions(hypers, i * together, together))
        this_chunk = tf.equal(tf.range(chunks), i)[:, None]
        products = [tf.where(this_chunk, reading.products, rows) for rows, reading in zip(carry[2], readings, strict=True)]
        return tangent.state, readings, products, carry[3] + squares

    nothing = [term.nothing(state, hypers) for term in problem.terms(hypers)]
    readings = [Reading(cost.value, cost.hypers, tf.zeros(together, dtype)) for cost in nothing]
    products = [tf.zeros([chunks, together], dtype) for _ in nothing]
    squares = problem.squares(nest.map(lambda leaf: tf.zeros([1, *leaf.shape], dtype), state))
    state, readings, products, squares = loops.fold(body, (state, readings, products, squares), 0, chunks)
    whole = [r._replace(products=tf.reshape(rows, [-1])) for r, rows in zip(readings, products, strict=True)]
    return Pushed(Tangent(state, ()), whole, squares)


def hypergradient_of(problem: Problem, hypers: Hypers, pushed: Pushed) -> HyperGradient:
    """dE/ds Z + dE/d hypers, for each hyper from the objective that tunes it."""
    total = {}
    for reading in pushed.readings:
        for name, begin, size in column_layout(hypers):
            if name in reading.direct:
                part = tf.reshape(tf.slice(reading.products, [begin], [size]), hypers[name].shape)
                total[name] = reading.direct[name] + part
    value = problem.value(problem.terms(hypers), [reading.value for reading in pushed.readings])
    # The norm of Z over all columns; its mean over episodes, if the problem consists of several.
    norms = {"sensitivity": tf.reduce_mean(tf.sqrt(pushed.squares))}
    return HyperGradient(value, {name: total[name] for name in hypers}, pushed.tangent.state, norms)


def push_forward(phi: Callable[[Nest, Hypers], Nest], tangent: Tangent, hypers: Hypers, along: Directions) -> Tangent:
    """s <- phi(s, hypers) and Z <- A Z + B, column by column, where A and B are the derivatives of phi."""
    if isinstance(tangent.sensitivity, SeparateColumns):
        return _push_separate(phi, tangent, hypers, separated(along, count_directions(along)))
    if count_directions(along) <= MAX_SEPARATE:  # over DTensors
        return _push_stacked(phi, tangent, hypers, along)
    return _push_together(phi, tangent, hypers, along)


def _push_together(phi: Callable[[Nest, Hypers], Nest], tangent: Tangent, hypers: Hypers, along: Directions) -> Tangent:
    """One accumulator, vectorised over the columns, so that the graph does not grow with their number."""

    @tf.autograph.experimental.do_not_convert  # otherwise vectorized_map would rewrite the user's loss
    def column(direction: tuple[Nest, dict[str, tf.Tensor]]) -> Nest:
        return _accumulated(phi, tangent.state, hypers, direction)[1]

    return Tangent(phi(tangent.state, hypers), tf.vectorized_map(column, (tangent.sensitivity, along), warn=False))


def _push_separate(phi: Callable[[Nest, Hypers], Nest], tangent: Tangent, hypers: Hypers, along: SeparateColumns) -> Tangent:
    """Two tapes: the first gives u -> u (A, B), which is linear, and the second transposes it.

    This evaluates phi once for all columns. An accumulator would also multiply the weights by the tangent of the data, which
    is zero: in a small network these are a fifth of all products.
    """
    inputs = (tangent.state, dict(hypers))
    with tf.GradientTape(persistent=True) as transposing:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            new = phi(*inputs)
        u = nest.zeros_like(new)  # any value: nothing is computed with it
        transposing.watch(u)
        pulled = nest.dense(tape.gradient(new, inputs, u, unconnected_gradients=ZERO))
    pairs = zip(tangent.sensitivity, along, strict=True)
    columns = [nest.dense(transposing.gradient(pulled, u, pair, unconnected_gradients=ZERO)) for pair in pairs]
    return Tangent(new, SeparateColumns(columns))


def _push_stacked(phi: Callable[[Nest, Hypers], Nest], tangent: Tangent, hypers: Hypers, along: Directions) -> Tangent:
    """A few columns over DTensors: an accumulator each, so that the devices exchange what the step needs only once."""
    pairs = separated((tangent.sensitivity, along), count_directions(along))
    states, columns = zip(*(_accumulated(phi, tangent.state, hypers, pair) for pair in pairs), strict=True)
    return Tangent(states[0], nest.map(lambda *leaves: tf.stack(leaves), *columns))


def _accumulated(
    phi: Callable[[Nest, Hypers], Nest], state: Nest, hypers: Hypers, direction: tuple[Nest, Hypers]
) -> tuple[Nest, Nest]:
    """phi(state, hypers), and its derivative along one column of Z and one direction of the hypers."""
    with tf.autodiff.ForwardAccumulator((state, dict(hypers)), direction) as accumulator:
        new = phi(state, hypers)
    return new, accumulator.jvp(new, unconnected_gradients=ZERO)


class SeparateColumns(tuple):
    """The columns of Z as a tuple, instead of along a new first axis: nothing has to be copied to take them apart."""

    __slots__ = ()


def _apart(number: int) -> bool:
    """Whether so many columns are kept apart; over DTensors, TensorFlow 2.21 crashes in a loop that carries them."""
    return number <= MAX_SEPARATE and not sharded()


def separated(columns: Nest, number: int) -> SeparateColumns:
    """Takes apart columns that lie along the first axis of each leaf."""
    return SeparateColumns(nest.map(lambda z, j=j: z[j], columns) for j in range(number))


def count_directions(along: Directions) -> int:
    """The number of directions, and so of columns."""
    return nest.flatten(along)[0].shape[0]


def directions(hypers: Hypers, begin: int | tf.Tensor, number: int) -> Directions:
    """Unit vectors `begin`, `begin` + 1, ... of the space of hypers, along a new first axis; zeros past the last one."""
    unit = {}
    for name, first, size in column_layout(hypers):
        rows = tf.one_hot(tf.range(number) + (begin - first), size, dtype=hypers[name].dtype)
        unit[name] = tf.reshape(rows, [number, *hypers[name].shape])
    return unit


def balanced_chunk(m: int) -> int:
    """The size of a chunk if m columns are divided evenly into as few chunks as MAX_CHUNK allows."""
    chunks = -(-m // MAX_CHUNK)
    return -(-m // chunks)


def count_columns(hypers: Hypers) -> int:
    """m, the number of columns of Z."""
    return sum(size for _, _, size in column_layout(hypers))


def check_not_empty(hypers: Hypers) -> None:
    """Z needs at least one column."""
    if not count_columns(hypers):
        raise ValueError("hypers has no entries, so there is nothing to push forward; leave empty hypers out.")


def column_layout(hypers: Hypers) -> list[tuple[str, int, int]]:
    """(name, first column, number of columns) of each hyper in Z."""
    names = sorted(hypers)  # sorted as tf.nest sorts them: the order of a dict's keys has no meaning
    sizes = [int(np.prod(hypers[name].shape)) for name in names]
    begins = np.cumsum([0, *sizes[:-1]])
    return [(name, int(begin), size) for name, begin, size in zip(names, begins, sizes, strict=True)]

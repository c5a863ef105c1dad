"""The sensitivity Z_t = ds_t/d hypers, pushed forward along with the training: Z_t = A_t Z_{t-1} + B_t.

Z has one column for each entry of each hyper, and each column has the size of the state. Forward mode pushes all columns, in
chunks; real time pushes them without end; several processes can divide them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from rfho2.core import loops, nest
from rfho2.core.dtensors import sharded
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.problem import Cost, Problem

ZERO = tf.UnconnectedGradients.ZERO
MAX_SEPARATE = 4  # columns: up to this number, each is pushed separately, which copies and computes less
MAX_CHUNK = 64  # columns pushed together

Directions = dict[str, tf.Tensor]
"""Directions in the space of hypers, along a new first axis of each hyper."""

Phi = Callable[[Nest, Hypers], Nest]
"""One step, or the initialisation: (state, hypers) -> new state."""


class SeparateColumns(NamedTuple):
    """A few columns of Z, each a nest like the state: nothing has to be copied to take them apart."""

    each: tuple[Nest, ...]

    def push(self, phi: Phi, state: Nest, hypers: Hypers, along: Directions) -> Tangent:
        """phi(state, hypers), and A Z + B.

        Of two tapes, the first gives u -> u (A, B), which is linear, and the second transposes it. This evaluates phi once
        for all columns. An accumulator would also multiply the weights by the tangent of the data, which is zero: in a small
        network these are a fifth of all products.
        """
        inputs = (state, dict(hypers))
        with tf.GradientTape(persistent=True) as transposing:
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                new = phi(*inputs)
            u = nest.zeros_like(new)  # any value: nothing is computed with it
            transposing.watch(u)
            pulled = nest.dense(tape.gradient(new, inputs, u, unconnected_gradients=ZERO))
        pairs = zip(self.each, _apart(along), strict=True)
        columns = [nest.dense(transposing.gradient(pulled, u, pair, unconnected_gradients=ZERO)) for pair in pairs]
        return Tangent(new, SeparateColumns(tuple(columns)))

    def products(self, vector: Nest) -> tf.Tensor:
        """The inner product of the vector with each column."""
        return tf.stack([nest.dot(column, vector) for column in self.each])

    def squares(self, problem: Problem) -> tf.Tensor:
        """The sum of the squares of Z."""
        return tf.add_n([problem.squares(nest.map(lambda z: z[tf.newaxis], column)) for column in self.each])


class StackedColumns(NamedTuple):
    """The columns of Z along a new first axis of each leaf of the state."""

    all: Nest

    def push(self, phi: Phi, state: Nest, hypers: Hypers, along: Directions) -> Tangent:
        """phi(state, hypers), and A Z + B by `tf.autodiff.ForwardAccumulator`."""

        def accumulated(direction: tuple[Nest, Hypers]) -> tuple[Nest, Nest]:
            with tf.autodiff.ForwardAccumulator((state, dict(hypers)), direction) as accumulator:
                new = phi(state, hypers)
            return new, accumulator.jvp(new, unconnected_gradients=ZERO)

        if count_directions(along) <= MAX_SEPARATE:
            # Over DTensors: an accumulator for each column, so that the devices exchange what the step needs only once.
            states, columns = zip(*(accumulated(pair) for pair in _apart((self.all, along))), strict=True)
            return Tangent(states[0], StackedColumns(nest.map(lambda *leaves: tf.stack(leaves), *columns)))

        # Vectorised over the columns, so that the graph does not grow with their number.
        @tf.autograph.experimental.do_not_convert  # otherwise vectorized_map would rewrite the user's loss
        def column(direction: tuple[Nest, Hypers]) -> Nest:
            return accumulated(direction)[1]

        return Tangent(phi(state, hypers), StackedColumns(tf.vectorized_map(column, (self.all, along), warn=False)))

    def products(self, vector: Nest) -> tf.Tensor:
        """The inner product of the vector with each column."""
        return nest.dots(self.all, vector)

    def squares(self, problem: Problem) -> tf.Tensor:
        """The sum of the squares of Z; one per episode, if the problem consists of several."""
        return problem.squares(self.all)


class Tangent(NamedTuple):
    """s_t and Z_t."""

    state: Nest
    sensitivity: SeparateColumns | StackedColumns


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
    """s_0 and Z_0 = ds_0/d hypers, along the directions; if there are only a few columns, they are kept separate."""
    number = count_directions(along)
    separate = number <= MAX_SEPARATE and not sharded()
    nothing = SeparateColumns(((),) * number) if separate else StackedColumns(())
    return nothing.push(lambda _, hypers: problem.dynamics.init(params, hypers), (), hypers, along)


def push_steps(
    problem: Problem,
    tangent: Tangent,
    hypers: Hypers,
    along: Directions,
    k: tf.Tensor,
    t: int | tf.Tensor,
    steps: int | tf.Tensor,
    discount: float = 1.0,
) -> Pushed:
    """`steps` steps from time t, with the readings of the objectives along the way and at the end; Z <- discount A Z + B."""
    terms = problem.terms(hypers)
    pairs = [(term, term.batch(k)) for term in terms]

    def body(carry: tuple[Tangent, list[Reading]], t: tf.Tensor) -> tuple[Tangent, list[Reading]]:
        (state, z), readings = carry
        if discount != 1:
            z = nest.map(lambda column: discount * column, z)
        batch = problem.batch(t, k)
        tangent = z.push(lambda s, h: problem.dynamics.step(s, h, batch, t), state, hypers, along)
        costs = [term.after(t + 1, problem.dynamics, tangent.state, hypers, b) for term, b in pairs]
        readings = [r if c is None else nest.add(r, read(c, tangent)) for r, c in zip(readings, costs, strict=True)]
        return tangent, readings

    tangent, readings = loops.fold(body, (tangent, _no_readings(problem, tangent.state, hypers, along)), t, steps)
    ends = [read(term.at_end(problem.dynamics, tangent.state, hypers, b), tangent) for term, b in pairs]
    readings = [nest.add(reading, end) for reading, end in zip(readings, ends, strict=True)]
    return Pushed(tangent, readings, tangent.sensitivity.squares(problem))


def read(cost: Cost, tangent: Tangent) -> Reading:
    """The value of a cost at a state, and its derivative along each column of Z."""
    return Reading(cost.value, cost.hypers, tangent.sensitivity.products(cost.state))


def _no_readings(problem: Problem, state: Nest, hypers: Hypers, along: Directions) -> list[Reading]:
    nothing = [term.nothing(state, hypers) for term in problem.terms(hypers)]
    return [Reading(cost.value, cost.hypers, tf.zeros(count_directions(along), cost.value.dtype)) for cost in nothing]


def push_in_chunks(
    problem: Problem, params: Nest, hypers: Hypers, k: tf.Tensor, begin: int, columns: int, together: int
) -> Pushed:
    """The whole training with columns `begin`, `begin` + 1, ... of Z, repeated for each chunk of them.

    The last chunk is padded with zero columns. The sensitivity in the result has no meaning; with several chunks it is ().

    Args:
      columns: their number.
      together: columns in a chunk.
    """
    check_not_empty(hypers)
    assert problem.steps is not None
    chunks, steps = -(-columns // together), problem.steps

    def run(first: int | tf.Tensor) -> Pushed:
        along = directions(hypers, first, together)
        return push_steps(problem, start_tangent(problem, params, hypers, along), hypers, along, k, 0, steps)

    if chunks == 1:
        return run(begin)

    def body(
        carry: tuple[Nest, list[Reading], list[tf.Tensor], tf.Tensor], i: tf.Tensor
    ) -> tuple[Nest, list[Reading], list[tf.Tensor], tf.Tensor]:
        tangent, readings, squares = run(begin + i * together)
        this_chunk = tf.equal(tf.range(chunks), i)[:, None]
        products = [tf.where(this_chunk, reading.products, rows) for rows, reading in zip(carry[2], readings, strict=True)]
        return tangent.state, readings, products, carry[3] + squares

    state = problem.dynamics.init(params, hypers)
    dtype = nest.flatten(state)[0].dtype
    readings = _no_readings(problem, state, hypers, directions(hypers, 0, together))
    products = [tf.zeros([chunks, together], dtype) for _ in readings]
    squares = problem.squares(nest.map(lambda leaf: tf.zeros([1, *leaf.shape], dtype), state))
    state, readings, products, squares = loops.fold(body, (state, readings, products, squares), 0, chunks)
    whole = [r._replace(products=tf.reshape(rows, [-1])) for r, rows in zip(readings, products, strict=True)]
    return Pushed(Tangent(state, StackedColumns(())), whole, squares)


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


def _apart(columns: Nest) -> list[Nest]:
    """The columns that lie along the first axis of each leaf, one by one."""
    return [nest.map(lambda z, j=j: z[j], columns) for j in range(nest.flatten(columns)[0].shape[0])]


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
    chunks = max(1, -(-m // MAX_CHUNK))
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

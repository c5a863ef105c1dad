"""What holds of random projections, nests, batches and checkpoints; `make fuzz` draws fresh ones."""

import math
import os
import tempfile
from typing import NamedTuple

import hypothesis.extra.numpy as random_numpy
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rfho2 as rf
from rfho2.core import nest
from rfho2.driver.checkpoint_store import Store
from tests.support.projections import eps, feasible, project, shape_for

FUZZ = bool(os.environ.get("RFHO2_FUZZ"))
BIG = 1e3


def examples(count):
    """So many, the same ones each time; where RFHO2_FUZZ is set twenty times as many, fresh ones."""
    return settings(
        max_examples=20 * count if FUZZ else count,
        derandomize=not FUZZ,
        print_blob=FUZZ,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


# Projections


def numbers(low=-BIG, high=BIG):
    return st.floats(low, high, width=32, allow_subnormal=False)  # TensorFlow on x86 takes subnormal numbers for 0


sizes = st.floats(0.125, 8.0, width=32)


@st.composite
def boxes_and_balls(draw):
    low = draw(st.sampled_from([-2.0, -0.5, 0.0, 0.25]))  # of either sign, or of both
    high = low + draw(numbers(0.25, 1.75))
    least, most = max(low, -high, 0.0), max(abs(low), abs(high))  # that an entry can have in size
    return rf.BoxL1Ball(6 * (least + draw(numbers(0.125, 0.875)) * (most - least)), low, high)


@st.composite
def boxes(draw):
    bounds = draw(random_numpy.arrays(np.float32, (2, 6), elements=numbers()))
    return rf.Box(bounds.min(axis=0), bounds.max(axis=0))


SETS = {
    "box": boxes(),
    "non-negative": st.just(rf.NonNegative()),
    "L1 ball": st.builds(rf.L1Ball, sizes),
    "L2 ball": st.builds(rf.L2Ball, sizes),
    "simplex": st.builds(rf.Simplex, sizes),
    "box and L1 ball": boxes_and_balls(),
    "symmetric": st.builds(rf.SymmetricNonNegative, st.none() | sizes),
}
every_set = pytest.mark.parametrize("kind", SETS)


@st.composite
def points(draw, kind, count):
    """A set of this kind, a dtype, and points near the set or far from it."""
    constraint, dtype = draw(SETS[kind]), draw(st.sampled_from([np.float32, np.float64]))
    rng, shape = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), shape_for(constraint)
    scales = st.sampled_from([0.5, 3.0, BIG])
    return constraint, dtype, *(np.asarray(draw(scales) * rng.normal(size=shape), dtype) for _ in range(count)), rng


def inside(constraint, x):
    """Whether x is in the set, by other means than the library's."""
    total = np.abs(np.float64(x)).sum()
    slack = 4 * eps(x.dtype) * total
    match constraint:
        case rf.Simplex(total=right):
            return np.all(x >= 0) and abs(total - right) <= slack
        case rf.L2Ball(radius=radius):
            return math.hypot(*np.float64(x)) <= radius + slack
        case rf.L1Ball(radius=radius):
            return total <= radius + slack
        case rf.BoxL1Ball(radius=radius, low=low, high=high):
            return np.all((x >= x.dtype.type(low)) & (x <= x.dtype.type(high))) and total <= radius + slack
        case rf.SymmetricNonNegative(total=most):
            return np.all(x == x.T) and np.all(x >= 0) and (most is None or total <= most + slack)
        case rf.Box(low=low, high=high):
            return np.all((x >= low) & (x <= high))


def beside(constraint, x, y, step):
    """Points near x: towards y, along an axis, and from one entry to another."""
    axes = np.eye(x.size).reshape(-1, *x.shape)
    pairs = [axes[i] - axes[j] for i in range(x.size) for j in range(x.size) if i != j]
    for direction in [y - x, *axes, *-axes, *pairs]:
        if isinstance(constraint, rf.SymmetricNonNegative):
            direction = (direction + direction.T) / 2
        yield np.asarray(x + step * direction, x.dtype)


def distance(a, b):
    return float(np.linalg.norm(np.float64(a) - np.float64(b)))


def rounding(dtype, *arrays):
    """What it may come to: some last digits of the largest entry."""
    return 64 * eps(dtype) * max(1.0, *(float(np.abs(a).max()) for a in arrays))


@every_set
@examples(10)
@given(st.data())
def test_a_random_projection_is_in_the_set_stays_there_and_is_nearer_than_other_members(kind, data):
    constraint, dtype, y, rng = data.draw(points(kind, 1))
    x = project(constraint, y, dtype)
    assert inside(constraint, x)
    assert project(constraint, x, dtype).tobytes() == x.tobytes()
    near = [z for step in (0.01, 0.1, 1.0) for z in beside(constraint, x, y, step) if inside(constraint, z)]
    for member in [*near, *(feasible(constraint, rng, dtype) for _ in range(20))]:
        assert distance(y, x) <= distance(y, member) + rounding(dtype, y, member)


@every_set
@examples(6)
@given(st.data())
def test_a_random_projection_brings_no_two_points_further_apart(kind, data):
    constraint, dtype, a, b, _ = data.draw(points(kind, 2))
    apart = distance(project(constraint, a, dtype), project(constraint, b, dtype))
    assert apart <= distance(a, b) + rounding(dtype, a, b)


# Nests


class Pair(NamedTuple):
    first: object
    second: object


def nests(leaves):
    keys = st.text("abc", min_size=1, max_size=2)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(keys, inner, max_size=3),
            st.builds(Pair, inner, inner),
        ),
        max_leaves=8,
    )


def arrays(*kinds):
    shapes = random_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    return st.sampled_from(kinds).flatmap(lambda kind: random_numpy.arrays(kind, shapes))


def same(one, two):
    """The same structure, with the same bits in it."""
    tf.nest.assert_same_structure(one, two)
    for a, b in zip(tf.nest.flatten(one), tf.nest.flatten(two), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@examples(100)
@given(nests(st.integers()))
def test_a_random_nest_is_packed_as_it_was_flattened(drawn):
    leaves = nest.flatten(drawn)
    packed = nest.pack(drawn, leaves)
    assert packed == drawn
    assert type(packed) is type(drawn)
    paths = nest.leaves_with_path(drawn)
    assert [leaf for _, leaf in paths] == leaves
    assert len({path for path, _ in paths}) == len(leaves)
    assert nest.map(lambda x: x, drawn) == drawn


@examples(40)
@given(nests(random_numpy.arrays(np.float64, random_numpy.array_shapes(max_side=3), elements=numbers())))
def test_random_nests_are_a_vector_space(drawn):
    same(nest.add(drawn, nest.zeros_like(drawn)), nest.map(lambda x: x + 0.0, drawn))
    if leaves := nest.flatten(drawn):
        squares = math.fsum(float(x) ** 2 for leaf in leaves for x in leaf.flat)
        np.testing.assert_allclose(nest.dot(drawn, drawn), squares, rtol=1e-12)
        columns = nest.map(lambda x: tf.stack([x, 2 * x]), drawn)
        np.testing.assert_allclose(nest.dots(columns, drawn), [squares, 2 * squares], rtol=1e-12)


# Batches


@st.composite
def epochs(draw):
    n = draw(st.integers(1, 300))
    batch_size = draw(st.integers(max(1, n // 3), n))  # few batches an epoch, for the sake of time
    return n, batch_size, draw(st.integers(0, 2**31 - 1)), draw(st.integers(0, 10**6))


@examples(6)
@given(epochs())
def test_a_random_epoch_has_each_example_once(drawn):
    n, batch_size, seed, epoch = drawn
    per_epoch = n // batch_size
    draw = rf.batches.shuffled(tf.range(n), batch_size, seed)
    rows = np.concatenate([draw(tf.constant(epoch * per_epoch + i)) for i in range(per_epoch)])
    assert len(rows) == len(set(rows)) == per_epoch * batch_size
    assert set(rows) <= set(range(n))


@examples(5)
@given(epochs(), st.lists(st.integers(0, 2**31 - 1), min_size=2, max_size=3))
def test_a_random_batch_is_a_function_of_the_seed_and_the_index_alone(drawn, indices):
    n, batch_size, seed, _ = drawn
    one, two = (rf.batches.shuffled(tf.range(n), batch_size, seed) for _ in "ab")
    forwards = [one(tf.constant(t)).numpy().tolist() for t in indices]
    backwards = [two(tf.constant(t)).numpy().tolist() for t in reversed(indices)]
    assert forwards == backwards[::-1]


# Checkpoints


kinds = [np.float32, np.float64, np.float16, np.int8, np.int32, np.int64, np.uint8, np.uint64, np.bool_, np.complex64]
records = st.dictionaries(
    st.text(max_size=5).map(lambda key: "own " + key),
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=10)),
    max_size=3,
)


@examples(25)
@given(nests(arrays(*kinds)), records, st.integers(0, 10**8 - 1), st.integers(0, 600))
def test_a_random_nest_comes_back_from_a_checkpoint_to_the_bit(drawn, record, k, rows):
    record = {**record, "history": [{"iteration": i, "value": 0.1 * i} for i in range(rows)]}
    with tempfile.TemporaryDirectory() as directory:
        store = Store(directory, {"problem": 1})
        store.save(k, nest.map(tf.constant, drawn), record)
        arrays_read, record_read = store.load(nest.map(lambda leaf: tf.zeros([]), drawn))
    same(arrays_read, drawn)
    assert {key: record_read[key] for key in record} == record

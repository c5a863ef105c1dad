"""Batches: pure functions of the index, the same in eager, graph and XLA; permutations that are permutations, and random."""

import functools
import math

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import rfho2 as rf
from rfho2.batches import of_episodes, permutation
from rfho2.distribute import placement
from tests.support.seeds import seed


def graph(function):
    return tf.function(function, autograph=False)


def jit(function):
    return tf.function(function, autograph=False, jit_compile=True)


def eager(function):
    return function


every_mode = pytest.mark.parametrize("mode", [eager, graph, jit], ids=lambda mode: mode.__name__)


def epoch(batches, number, per_epoch):
    """All rows of an epoch, in order."""
    return np.concatenate([batches(tf.constant(t)).numpy() for t in range(number * per_epoch, (number + 1) * per_epoch)])


# full


@every_mode
def test_full_gives_the_data_at_every_index(mode):
    data = {"x": np.arange(6.0).reshape(3, 2), "y": (np.array([1, 2, 3]), tf.constant([True, False, True]))}
    batches = rf.batches.full(data)
    for t in (0, 1, 1000):
        batch = mode(lambda t: tf.nest.map_structure(tf.identity, batches(t)))(tf.constant(t))
        tf.nest.map_structure(np.testing.assert_array_equal, batch, data)
        assert batch["x"].dtype == tf.float64
        assert batch["y"][1].dtype == tf.bool


# shuffled


@pytest.mark.parametrize(("n", "batch_size"), [(1, 1), (2, 1), (7, 7), (12, 3), (97, 97), (100, 25)])
def test_every_epoch_is_a_random_permutation(n, batch_size):
    batches = graph(rf.batches.shuffled(tf.range(n), batch_size, seed(1)))
    for number in range(4):
        assert sorted(epoch(batches, number, n // batch_size)) == list(range(n))


@pytest.mark.parametrize(("n", "batch_size"), [(13, 4), (10, 3), (101, 50)])
def test_the_last_partial_batch_of_a_permutation_is_dropped(n, batch_size):
    batches = graph(rf.batches.shuffled(tf.range(n), batch_size, seed(2)))
    left_out = []
    for number in range(20):
        rows = epoch(batches, number, n // batch_size)
        assert len(rows) == len(set(rows)) == n // batch_size * batch_size
        left_out.append(tuple(sorted(set(range(n)) - set(rows))))
    assert len(set(left_out)) > 1  # not the same examples every time


def test_epochs_differ_and_seeds_differ_at_random():
    first = seed(3)
    sources = [rf.batches.shuffled(tf.range(20), 20, s) for s in range(first, first + 6)]
    orders = {tuple(source(tf.constant(t)).numpy()) for source in sources for t in range(6)}
    assert len(orders) == 36


def test_the_same_seed_gives_the_same_batches_in_any_order():
    one, other = (rf.batches.shuffled(tf.range(10), 3, seed=4) for _ in range(2))
    forwards = [one(tf.constant(t)).numpy() for t in range(9)]
    backwards = [other(tf.constant(t)).numpy() for t in reversed(range(9))]
    np.testing.assert_array_equal(forwards, backwards[::-1])


@pytest.mark.parametrize(("n", "batch_size"), [(1, 1), (23, 4), (60_000, 100)])
def test_random_batches_are_identical_in_eager_graph_and_jit(n, batch_size):
    batches = rf.batches.shuffled(tf.range(n), batch_size, seed(5))
    in_graph, in_jit = graph(batches), jit(batches)
    for t in [*range(6), 12_345]:
        right = batches(tf.constant(t)).numpy()
        np.testing.assert_array_equal(in_graph(tf.constant(t)), right)
        np.testing.assert_array_equal(in_jit(tf.constant(t)), right)


def test_rows_of_a_nest_stay_together():
    data = {"x": np.arange(22.0).reshape(11, 2), "y": (np.arange(11), np.arange(33, dtype=np.float32).reshape(11, 3, 1))}
    for t in range(4):
        batch = rf.batches.shuffled(data, 4, seed=6)(tf.constant(t))
        rows = batch["y"][0].numpy()
        assert batch["y"][1].dtype == tf.float32
        np.testing.assert_array_equal(batch["x"], data["x"][rows])
        np.testing.assert_array_equal(batch["y"][1], data["y"][1][rows])


@pytest.mark.parametrize(
    ("data", "batch_size", "message"),
    [
        (tf.range(5), 6, "batch_size is 6; it can be at most 5"),
        (tf.range(5), 0, "batch_size is 0.*at least 1"),
        (tf.range(5), -1, "batch_size is -1.*at least 1"),
        (tf.range(5), 2.0, "batch_size is 2.0.*an integer"),
        (tf.range(5), True, "batch_size is True.*an integer"),
        ({"x": tf.zeros([5, 2]), "y": tf.zeros(4)}, 2, r"'x': \[5, 2\], 'y': \[4\].*same number of examples"),
        ({"x": tf.zeros([5, 2]), "y": tf.constant(1.0)}, 2, r"'y': \[\].*first axis"),
        (tf.constant(1.0), 1, "first axis"),
        (tf.zeros([0, 3]), 1, "at most 0"),
    ],
)
def test_shuffled_refuses(data, batch_size, message):
    with pytest.raises(ValueError, match=message):
        rf.batches.shuffled(data, batch_size, seed=0)


# permutation


def test_permutation_is_a_bijection():
    number = seed(7)
    for n in (1, 2, 3, 4, 5, 7, 12, 31, 49, 64, 97, 255, 256, 257):  # squares, primes, powers of 2, both kinds
        image = permutation(tf.range(n), n, number, tf.constant(n)).numpy()
        assert sorted(image) == list(range(n)), (n, number)


def test_permutation_of_some_entries_is_the_whole_one_restricted():
    whole = permutation(tf.range(1009), 1009, 8, tf.constant(3)).numpy()
    some = tf.constant([5, 1008, 0, 5, 77])
    np.testing.assert_array_equal(permutation(some, 1009, 8, tf.constant(3)), whole[some.numpy()])


def permutations(n, number, count):
    """`count` permutations of 0..n-1, one a row."""
    draw = graph(lambda: tf.map_fn(lambda t: permutation(tf.range(n), n, number, t), tf.range(count)))
    return draw().numpy()


def assert_uniform(counts):
    """A chi-square test, at a level that a right generator misses once in 10^10."""
    counts = np.ravel(counts)
    expected = counts.sum() / counts.size
    assert np.sum((counts - expected) ** 2) / expected <= scipy.stats.chi2.isf(1e-10, counts.size - 1), counts


@pytest.mark.parametrize("n", [3, 13, 100, *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 8, 12, 37))])
def test_permutation_sends_entries_and_pairs_everywhere_alike(n):
    drawn = permutations(n, seed(9), 1000)
    for i in (0, n // 2, n - 1):
        assert_uniform(np.bincount(drawn[:, i], minlength=n))
    apart = ~np.eye(n, dtype=bool)
    for i, j in ((0, 1), (0, n // 2), (n // 2, n - 1), (0, n - 1)):
        pairs = np.zeros((n, n))
        np.add.at(pairs, (drawn[:, i], drawn[:, j]), 1)
        assert_uniform(pairs[apart])


@pytest.mark.parametrize("n", [3, 5])
def test_permutation_takes_every_order_of_few_entries(n):
    drawn = permutations(n, seed(10), 20 * math.factorial(n))
    assert len({tuple(row) for row in drawn}) == math.factorial(n)


def test_successive_permutations_are_random_to_each_other():
    n, count = 10, 1000
    drawn = permutations(n, seed(11), count)
    same_place = np.sum(drawn[1:] == drawn[:-1])  # on average one entry of each
    assert abs(same_place - count) <= 7 * np.sqrt(count)


# Episodes


class Sampler:
    def __call__(self, t, k):
        return t + k


def defaulted(t, data=1, *more, key=0):
    return t


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        (lambda t, k: t, True),
        (lambda t: t, False),
        (lambda t, x=1: t, False),
        (lambda t, k, x=1: t, True),
        (lambda *indices: indices, False),
        (defaulted, False),
        (Sampler(), True),
        (Sampler().__call__, True),
        (functools.partial(lambda data, t, k: t, 1), True),
        (functools.partial(lambda data, t: t, 1), False),
        (rf.batches.full(tf.zeros(3)), False),
        (rf.batches.shuffled(tf.range(4), 2, seed=0), False),
        (abs, False),
    ],
)
def test_batches_of_episodes_have_two_required_positional_parameters(batches, expected):
    assert of_episodes(batches) is expected


def test_a_problem_passes_k_to_batches_of_episodes_only():
    dynamics, objective = rf.gradient_descent(lambda w, h, b: h["c"] * w * b, 0.1), lambda w, h, b: w
    episodic = rf.Problem(dynamics, objective, 3, lambda t, k: (t, k))
    assert [x.numpy() for x in episodic.batch(tf.constant(2), 7)] == [2, 7]
    assert [x.numpy() for x in episodic.batch(tf.constant(2))] == [2, 0]
    assert rf.Problem(dynamics, objective, 3, lambda t, x=5: (t, x)).batch(tf.constant(2), 7)[1] == 5
    assert rf.Problem(dynamics, objective, 3).batch(tf.constant(2), 7) is None


@every_mode
def test_seeded_passes_the_episode_on(mode):
    batch, key = mode(rf.batches.seeded(lambda t, k: 10 * k + t, seed=5))(tf.constant(2), tf.constant(7))
    assert batch.numpy() == 72
    assert key.numpy().tolist() == [5, 2]


def test_split_passes_the_episode_on(monkeypatch):
    monkeypatch.setattr(placement.dtensor, "relayout", lambda leaf, layout: leaf)
    split = rf.distribute.split(lambda t, k: tf.stack([t, k]), rf.distribute.mesh(batch=1))
    assert of_episodes(split)
    assert split(tf.constant(2), tf.constant(7)).numpy().tolist() == [2, 7]


# seeded and uniform


@every_mode
def test_seeded_adds_a_key_that_depends_on_seed_and_index_alone(mode):
    with_key = rf.batches.seeded(rf.batches.full({"x": tf.constant([1.0, 2.0])}), seed=5)
    for t in (0, 2, 99):
        batch, key = mode(with_key)(tf.constant(t))
        np.testing.assert_array_equal(batch["x"], [1.0, 2.0])
        assert (key.dtype, key.shape) == (tf.int32, [2])
        np.testing.assert_array_equal(key, mode(with_key)(tf.constant(t))[1])


def test_keys_differ_between_indices_and_seeds():
    keys = {tuple(rf.batches.seeded(None, seed=s)(tf.constant(t))[1].numpy()) for s in range(5) for t in range(20)}
    assert len(keys) == 100


def test_seeded_without_batches_gives_none():
    batch, key = rf.batches.seeded(None, seed=3)(tf.constant(4))
    assert batch is None
    assert (key.dtype, key.shape) == (tf.int32, [2])


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_random_uniform_numbers_are_identical_in_eager_graph_and_jit(dtype):
    key = tf.constant([seed(12), 7])
    right = rf.batches.uniform(key, (3, 5), dtype)
    assert (right.dtype, right.shape) == (dtype, [3, 5])
    for mode in (graph, jit):
        np.testing.assert_array_equal(mode(lambda key: rf.batches.uniform(key, (3, 5), dtype))(key), right)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_random_uniform_numbers_are_uniform_in_0_1(dtype):
    count = 100_000
    drawn = rf.batches.uniform(tf.constant([seed(13), 1]), (count,), dtype).numpy().astype(np.float64)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert abs(drawn.mean() - 0.5) <= 6 * np.sqrt(1 / 12 / count)
    assert_uniform(np.bincount((drawn * 64).astype(int), minlength=64))


def test_random_uniform_numbers_differ_between_keys():
    keys = [tf.constant([s, t]) for s in (0, 1) for t in (0, 1)]
    assert len({rf.batches.uniform(key, (4,)).numpy().tobytes() for key in keys}) == 4


# cached


@every_mode
def test_cached_gives_the_batches_of_the_dataset_and_begins_again(mode):
    dataset = tf.data.Dataset.from_tensor_slices({"x": np.arange(12.0).reshape(6, 2), "y": np.arange(6)}).batch(2).repeat()
    batches = mode(rf.batches.cached(dataset, steps=4))
    right = list(dataset.take(4))
    for t in (0, 1, 3, 4, 6, 403):
        batch = batches(tf.constant(t))
        tf.nest.map_structure(np.testing.assert_array_equal, batch, right[t % 4])


def test_cached_takes_a_single_batch():
    assert rf.batches.cached(tf.data.Dataset.range(2).batch(2), steps=1)(tf.constant(5)).numpy().tolist() == [0, 1]


def test_cached_reads_the_dataset_once():
    dataset = tf.data.Dataset.range(8).shuffle(8).batch(2)  # another order at each reading
    batches = rf.batches.cached(dataset, steps=4)
    once, again = ([batches(tf.constant(t)).numpy() for t in range(4)] for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert sorted(np.ravel(once)) == list(range(8))


@pytest.mark.parametrize(
    ("dataset", "steps", "message"),
    [
        (tf.data.Dataset.range(6).batch(2), 5, "steps is 5, but the dataset has only 3 batches.*repeat"),
        (tf.data.Dataset.range(5).batch(2), 3, "differ in shape.*drop_remainder=True"),
        (tf.data.Dataset.range(5).batch(2), 0, "steps is 0.*at least 1"),
    ],
)
def test_cached_refuses(dataset, steps, message):
    with pytest.raises(ValueError, match=message):
        rf.batches.cached(dataset, steps)


# stream


def counting(batch=2):
    return tf.data.Dataset.range(10).repeat().batch(batch)


def test_a_stream_gives_the_next_batches_stacked():
    stream = rf.batches.stream(counting(3))
    np.testing.assert_array_equal(stream.take(2), [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(stream.take(1), [[6, 7, 8]])
    np.testing.assert_array_equal(stream.take(2), [[9, 0, 1], [2, 3, 4]])


def test_a_stream_keeps_the_structure_of_its_dataset():
    stream = rf.batches.stream(tf.data.Dataset.from_tensor_slices({"x": np.eye(4), "y": (np.arange(4),)}).batch(2))
    taken = stream.take(2)
    np.testing.assert_array_equal(taken["x"], np.eye(4).reshape(2, 2, 4))
    np.testing.assert_array_equal(taken["y"][0], [[0, 1], [2, 3]])


def test_a_stream_cannot_be_called_and_says_what_to_use():
    with pytest.raises(ValueError, match=r"rf\.real_time.*rf\.batches\.shuffled.*rf\.batches\.cached"):
        rf.batches.stream(counting())(tf.constant(0))


@pytest.mark.parametrize("before", [0, 2, 3])
def test_a_stream_that_has_ended_says_so(before):
    stream = rf.batches.stream(tf.data.Dataset.range(6).batch(2))
    if before:
        stream.take(before)
    with pytest.raises(ValueError, match=r"ended.*\.repeat\(\)"):
        stream.take(4)


def test_a_stream_goes_on_where_it_was_saved(tmp_path):
    def make():
        return rf.batches.stream(tf.data.Dataset.range(10).shuffle(10, seed=1).repeat().batch(3))

    stream = make()
    stream.take(2)
    stream.save(tmp_path / "place")
    right = stream.take(5).numpy()
    for other in (make(), stream):
        other.restore(tmp_path / "place")
        np.testing.assert_array_equal(other.take(5), right)


def test_asking_whether_a_stream_can_be_saved_takes_nothing_from_it():
    stream = rf.batches.stream(counting())
    stream.take(1)
    assert stream.can_be_saved()
    np.testing.assert_array_equal(stream.take(1), [[2, 3]])


def test_a_stream_from_python_code_cannot_be_saved():
    numbers = tf.data.Dataset.from_generator(lambda: iter(range(100)), output_signature=tf.TensorSpec([], tf.int32))
    mapped = tf.data.Dataset.range(100).map(lambda x: tf.py_function(lambda y: y, [x], tf.int64))
    for dataset in (numbers, mapped):
        stream = rf.batches.stream(dataset)
        assert not stream.can_be_saved()
        np.testing.assert_array_equal(stream.take(3), [0, 1, 2])


@pytest.mark.parametrize("make", [rf.batches.full, lambda data: rf.batches.shuffled(data, 1, 0)], ids=["full", "shuffled"])
def test_ragged_data_are_refused(make):
    with pytest.raises(TypeError, match="leaf 'x' is a RaggedTensor; batches are dense"):
        make({"x": tf.ragged.constant([[1.0], [2.0, 3.0]])})


@pytest.mark.parametrize(
    ("n", "first"), [(7, [5, 3, 0, 6, 1, 4, 2]), (256, [146, 42, 192, 60]), (1000, [973, 332, 862, 368])]
)
def test_the_order_of_the_examples_never_changes(n, first):
    """Runs of earlier versions, and tables in the docs, depend on it."""
    assert rf.batches.permutation(tf.range(n), n, 3, tf.constant(2)).numpy()[: len(first)].tolist() == first

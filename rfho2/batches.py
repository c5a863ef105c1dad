"""Batches as pure functions of an index, because reverse mode replays the same minibatches.

All randomness comes from full-range 32-bit draws, the only stateless draws that agree between graph and XLA.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from rfho2.core import errors, nest
from rfho2.core.ops import uniform as uniform
from rfho2.core.types import Batches, Nest

SMALL = 256  # with fewer examples the permutation needs more rounds, and halves of equal size, to be uniform


def full(data: Nest) -> Batches:
    """The same data at every index: full-batch training, or a fixed validation set.

    >>> full(tf.constant([1.0, 2.0]))(tf.constant(7)).numpy().tolist()
    [1.0, 2.0]
    """
    data = _tensors(data)
    errors.checked_batch("data", data)

    def batch(index: tf.Tensor) -> Nest:
        return data

    batch.constant = True  # type: ignore[attr-defined]  # see `constant`
    return batch


def constant(batches: Batches | None) -> bool:
    """Whether the batches are known to be the same at every index: there are none, or they come from `full`."""
    return batches is None or getattr(batches, "constant", False)


def shuffled(data: Nest, batch_size: int, seed: int) -> Batches:
    """Minibatches from a fresh permutation of the examples in every epoch; the last partial batch is dropped.

    A batch costs O(batch_size): the permutation is computed entry by entry and never stored.

    Args:
      data: nest of tensors with the examples along the first axis.
      batch_size: examples per batch, at most the number of examples.
      seed: determines the whole sequence.

    >>> batches = shuffled(tf.range(6), batch_size=2, seed=0)
    >>> sorted(x for t in range(3) for x in batches(tf.constant(t)).numpy().tolist())
    [0, 1, 2, 3, 4, 5]
    """
    data = _tensors(data)
    lengths = {int(leaf.shape[0]) if leaf.shape.rank else -1 for leaf in nest.flatten(data)}
    if len(lengths) != 1 or -1 in lengths:
        shapes = {path: list(leaf.shape) for path, leaf in nest.leaves_with_path(data)}
        raise ValueError(
            f"data: the leaves have shapes {shapes!s:.200}; all need the same number of examples along the first axis. "
            f"A Python list counts as many leaves: pass np.asarray(list)."
        )
    (n,) = lengths
    batch_size = errors.check_count("batch_size", batch_size, most=n)
    per_epoch = n // batch_size

    def batch(index: tf.Tensor) -> Nest:
        first = (index % per_epoch) * batch_size
        rows = permutation(first + tf.range(batch_size), n, seed, index // per_epoch)
        return nest.map(lambda leaf: tf.gather(leaf, rows), data)

    return batch


def seeded(batches: Batches | None, seed: int) -> Batches:
    """Adds to each batch a seed that is a pure function of the index: `(batch, int32[2])`, for dropout and noise in a loss.

    >>> batch, key = seeded(full(tf.zeros(3)), seed=5)(tf.constant(2))
    >>> key.numpy().tolist()
    [5, 2]
    """

    if isinstance(batches, Stream):
        raise TypeError("batches is a stream, which has no index to derive a seed from; add a seed in the tf.data pipeline.")

    def key(index: tf.Tensor) -> tf.Tensor:
        return tf.stack([tf.constant(seed, tf.int32), index])

    if batches is not None and of_episodes(batches):
        return lambda index, k: (batches(index, k), key(index))
    return lambda index: (None if batches is None else batches(index), key(index))


def of_episodes(batches: Batches) -> bool:
    """Whether a source of batches takes (t, k) rather than t alone: whether it has two required positional parameters.

    >>> of_episodes(lambda t, k: (t, k)), of_episodes(lambda t, scale=2: scale * t)
    (True, False)
    """
    try:
        parameters = inspect.signature(batches).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is inspect.Parameter.empty for p in parameters) >= 2


def cached(dataset: tf.data.Dataset, steps: int) -> Batches:
    """The first `steps` batches of a `tf.data.Dataset`, read once and kept in memory; index t gives batch t modulo `steps`.

    For pipelines whose batches cannot be computed from an index.

    >>> cached(tf.data.Dataset.range(10).batch(2), steps=3)(tf.constant(1)).numpy().tolist()
    [2, 3]
    """
    errors.check_count("steps", steps)
    taken = list(dataset.take(steps))
    if len(taken) < steps:
        raise ValueError(f"steps is {steps}, but the dataset has only {len(taken)} batches; add .repeat() to it.")
    shapes = {str(nest.signature(batch)) for batch in taken}
    if len(shapes) > 1:
        raise ValueError(f"dataset: batches differ in shape: {sorted(shapes)}; use .batch(n, drop_remainder=True).")
    errors.checked_batch("dataset", taken[0])
    stacked = nest.map(lambda *leaves: tf.stack(leaves), *taken)
    return lambda index: nest.map(lambda leaf: tf.gather(leaf, index % steps), stacked)


class Stream:
    """An unbounded source of batches for real time: see `stream`."""

    def __init__(self, dataset: tf.data.Dataset):
        self.dataset = dataset
        self.iterator = iter(dataset)

    def __call__(self, index: tf.Tensor) -> Nest:
        raise ValueError(
            "batches is a stream, which cannot be replayed: only rf.real_time accepts it. Use rf.batches.shuffled for "
            "arrays, or rf.batches.cached(dataset, steps) for a tf.data pipeline."
        )

    def take(self, count: int) -> Nest:
        """The next `count` batches, stacked along a new first axis."""
        try:
            taken = [next(self.iterator) for _ in range(count)]
            errors.checked_batch("batches", taken[0])
            return nest.map(lambda *leaves: tf.stack(leaves), *taken)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(
                f"batches: the streamed batches differ in shape; use .batch(n, drop_remainder=True). ({error.message})"
            ) from None
        except StopIteration:
            raise ValueError(
                "batches: the streamed dataset ended, but real time continues indefinitely: add .repeat() to it."
            ) from None

    def save(self, prefix: Path) -> None:
        """Writes the position of the iterator."""
        tf.train.Checkpoint(iterator=self.iterator).write(str(prefix))

    def restore(self, prefix: Path) -> None:
        """Returns the iterator to a position written by `save`."""
        tf.train.Checkpoint(iterator=self.iterator).read(str(prefix)).assert_consumed()

    def check_resumable(self, directory: str | os.PathLike[str]) -> None:
        """Requires that a resumed run, with checkpoints in this directory, sees the same batches."""
        if self.unseeded():
            raise ValueError(
                f"checkpoint_dir is {str(directory)!r}, but the streamed dataset is shuffled without a seed: a resumed run "
                f"would see different batches. Give shuffle a seed, or run without checkpoint_dir."
            )
        if not self.can_be_saved():
            raise ValueError(
                f"checkpoint_dir is {str(directory)!r}, but TensorFlow cannot checkpoint the iterator of the streamed "
                f"dataset (it cannot look into Python generators and py_function), so a resumed run would see "
                f"different batches. Build the dataset from tensors or files, or run without checkpoint_dir."
            )

    def can_be_saved(self) -> bool:
        """Whether TensorFlow can checkpoint this iterator."""
        with tempfile.TemporaryDirectory() as directory:
            try:
                self.save(Path(directory) / "trial")
            except (tf.errors.OpError, ValueError):
                return False
        return True

    def unseeded(self) -> bool:
        """Whether something in the pipeline shuffles without a seed, so that its order differs in every process."""
        waiting = [self.dataset]  # TensorFlow has no public API for this
        while waiting:
            dataset = waiting.pop()
            if hasattr(dataset, "_seed") and int(dataset._seed) == int(dataset._seed2) == 0:
                return True
            waiting += dataset._inputs()
        return False

    @property
    def spec(self) -> Nest:
        """Shape and dtype of one batch."""
        return self.dataset.element_spec


def stream(dataset: tf.data.Dataset) -> Stream:
    """Batches in the order in which a `tf.data.Dataset` yields them, for `rf.real_time` only.

    The engine takes as many as it has steps in a hyper-iteration, outside the compiled function, and passes them in stacked.
    A resumed run is exact if TensorFlow can checkpoint the iterator; if it cannot (Python generators), checkpointing is
    refused.

    >>> stream(tf.data.Dataset.range(4).repeat().batch(2)).take(3).numpy().tolist()
    [[0, 1], [2, 3], [0, 1]]
    """
    return Stream(dataset)


def permutation(index: tf.Tensor, n: int, seed: int, epoch: tf.Tensor) -> tf.Tensor:
    """The image of `index` under a random permutation of 0..n-1, one per `epoch`; O(1) per entry.

    A Feistel network over Z_a x Z_b adds the halves to each other in turn through a keyed hash. This can be inverted, so it
    is a bijection of 0..ab-1. Entries that land at n or above are mapped again until they land below (cycle walking).
    """
    return _image(n)(index, tf.stack([tf.constant(seed, tf.int32), epoch]))


@functools.cache
def _image(n: int) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """(indices, seed and epoch) -> their images; a function of its own, because the graph of a training has it many times.

    It is traced once for each shape of the indices. The 300 ops would take half of the time to trace a small problem.
    """
    a, b = _factors(n)
    rounds = 12 if n < SMALL else 6

    def image(index: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        keys = tf.random.stateless_uniform([rounds], seed, minval=None, maxval=None, dtype=tf.int32)

        def network(x: tf.Tensor) -> tf.Tensor:
            left, right = tf.truncatediv(x, b), tf.truncatemod(x, b)
            for i in range(0, rounds, 2):
                left = _added(left, _hash(right, keys[i]), a)
                right = _added(right, _hash(left, keys[i + 1]), b)
            return left * b + right

        x = network(index)
        if a * b == n:
            return x
        (x,) = tf.while_loop(lambda x: tf.reduce_any(x >= n), lambda x: (tf.where(x >= n, network(x), x),), (x,))
        return x

    return tf.function(image, autograph=False)


def _factors(n: int) -> tuple[int, int]:
    """a, b >= 1 of similar size with a * b >= n as close to n as possible: the excess costs cycle walking."""
    root = math.isqrt(n - 1) + 1
    a = np.arange(root, root + 1 if n < SMALL else 3 * root // 2)
    b = -(-n // a)
    best = int(np.argmin(a * b - n))
    return int(a[best]), int(b[best])


def _added(x: tf.Tensor, y: tf.Tensor, n: int) -> tf.Tensor:
    """(x + y) mod n for x in 0..n-1 and any y; uses truncated remainders, which compile faster than Python's."""
    return tf.truncatemod(x + tf.truncatemod(y, n) + n, n)


def _hash(x: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """A keyed mixing of 32-bit integers (multiply and shift, wrapping around)."""
    x = (x + key) * tf.constant(0x2545F491, tf.int32)
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, 15))
    x = (x + key) * tf.constant(0x5BD1E995, tf.int32)
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, 13))


def _tensors(data: Nest) -> Nest:
    """Converts the leaves to tensors once: arrays captured by a graph would be copied into it as constants."""
    for path, leaf in nest.leaves_with_path(data):
        if isinstance(leaf, tf.RaggedTensor):
            raise TypeError(
                f"data: leaf '{path}' is a RaggedTensor; batches are dense. Pass leaf.to_tensor() and a padding mask."
            )
    return nest.map(tf.convert_to_tensor, data)

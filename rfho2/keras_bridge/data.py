"""Turns arrays and `tf.data` pipelines, as Keras's `fit` takes them, into batches of ((x, y), seed)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rfho2 import batches
from rfho2.core import errors, nest
from rfho2.core.types import Batches, Nest


class Source(NamedTuple):
    """Training batches, index -> ((x, y), int32[2]), and the number of batches in an epoch."""

    batches: Batches
    steps: int


def training_batches(x: Any, y: Any, batch_size: int, steps_per_epoch: int | None, seed: int) -> Source:
    """Shuffled batches of arrays, or the stream of a `tf.data.Dataset` of batches."""
    if isinstance(x, tf.data.Dataset):
        if y is not None:
            raise ValueError("x is a dataset, but y is passed too; the dataset itself must yield pairs (x, y).")
        return _streamed(x, steps_per_epoch, seed)
    x, y = _checked_arrays(x, y, "x and y")
    examples = len(nest.flatten(x)[0])
    errors.check_count("batch_size", batch_size, most=examples)
    steps = examples // batch_size if steps_per_epoch is None else errors.check_count("steps_per_epoch", steps_per_epoch)
    return Source(batches.seeded(batches.shuffled((x, y), batch_size, seed), seed + 1), steps)


def _streamed(dataset: tf.data.Dataset, steps_per_epoch: int | None, seed: int) -> Source:
    example = _first_batch(dataset, "x")
    size = int(nest.flatten(example)[0].shape[0])

    def has_full_size(*element: Any) -> tf.Tensor:
        return tf.equal(tf.shape(nest.flatten(element)[0])[0], size)

    def with_seed(i: tf.Tensor, element: Any) -> tuple[Nest, tf.Tensor]:
        fixed = nest.map(lambda leaf, like: tf.ensure_shape(leaf, like.shape), tuple(element), example)
        return fixed, tf.stack([tf.constant(seed + 1, tf.int32), tf.cast(i % 2**31, tf.int32)])

    full_batches = dataset.filter(has_full_size)  # a smaller last batch would need another compiled program
    steps = _steps(dataset, full_batches, steps_per_epoch)
    return Source(batches.stream(full_batches.repeat().enumerate().map(with_seed)), steps)


def _steps(dataset: tf.data.Dataset, full_batches: tf.data.Dataset, steps_per_epoch: int | None) -> int:
    """The number of batches in an epoch."""
    if steps_per_epoch is not None:
        return errors.check_count("steps_per_epoch", steps_per_epoch)
    count = int(dataset.cardinality())
    if count == tf.data.INFINITE_CARDINALITY:
        raise ValueError("x is an infinite dataset; pass steps_per_epoch, the number of batches that count as an epoch.")
    return count if count > 0 else sum(1 for _ in full_batches)


def _first_batch(dataset: tf.data.Dataset, argument: str) -> tuple[Nest, Nest]:
    """The first pair of a dataset, checked."""
    for element in dataset.take(1):
        if not isinstance(element, tuple) or len(element) != 2:
            parts = len(element) if isinstance(element, tuple) else "no"
            raise ValueError(
                f"{argument} is a dataset that yields {parts} parts; it must yield pairs (x, y). To learn weights of "
                f"examples, use rf.per_example_weights."
            )
        if nest.flatten(element)[0].shape.rank == 0 or not nest.flatten(element)[1].shape.rank:
            raise ValueError(f"{argument} is a dataset of single examples; add .batch(n).")
        return element
    raise ValueError(f"{argument} is a dataset that ended before its first batch: it is empty, or was exhausted elsewhere.")


def _checked_arrays(x: Any, y: Any, argument: str) -> tuple[Nest, Nest]:
    """Two nests of arrays with the same number of examples."""
    if y is None:
        raise ValueError(f"{argument}: there are no labels; pass arrays x and y, or a dataset of pairs (x, y).")
    both = nest.map(np.asarray, (x, y))
    lengths = {len(leaf) if leaf.ndim else 0 for leaf in nest.flatten(both)}
    if len(lengths) != 1 or lengths == {0}:
        shapes = [list(leaf.shape) for leaf in nest.flatten(both)]
        raise ValueError(f"{argument} have shapes {shapes}; all need the same number of examples, at least one.")
    return both


def in_memory(data: Any, argument: str) -> tuple[Nest, Nest]:
    """(x, y) as arrays, from a pair of arrays or from a finite dataset of batches."""
    if isinstance(data, tf.data.Dataset):
        _first_batch(data, argument)
        if int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise ValueError(f"{argument} is an infinite dataset, but it is read into memory: use .take(n).")
        parts = list(data.as_numpy_iterator())
        return nest.map(lambda *leaves: np.concatenate(leaves), *parts)
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(f"{argument} is {type(data).__name__}; pass a pair of arrays (x, y) or a dataset of such pairs.")
    return _checked_arrays(data[0], data[1], argument)


def validation_batches(data: tuple[Nest, Nest], batch_size: int, seed: int) -> Batches:
    """Hyper-iteration k -> a part of the validation examples, reshuffled in every pass; all of them if few enough."""
    examples = len(nest.flatten(data)[0])
    return batches.full(data) if batch_size >= examples else batches.shuffled(data, batch_size, seed)

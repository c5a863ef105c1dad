"""Arrays and `tf.data` pipelines, as Keras's `fit` takes them, to batches of ((x, y), seed)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rfho2 import batches
from rfho2.core import errors, nest
from rfho2.core.types import Batches, Nest


class Source(NamedTuple):
    """Training batches: index -> ((x, y), int32[2]), and how many make an epoch."""

    batches: Batches
    steps: int


def training(x: Any, y: Any, batch_size: int, steps_per_epoch: int | None, seed: int) -> Source:
    """From arrays, shuffled, or from a `tf.data.Dataset` of batches, streamed."""
    if isinstance(x, tf.data.Dataset):
        if y is not None:
            raise ValueError("y is given beside a dataset; the dataset itself has to give pairs (x, y).")
        return _streamed(x, steps_per_epoch, seed)
    x, y = arrays(x, y, "x and y")
    examples = len(nest.flatten(x)[0])
    errors.check_count("batch_size", batch_size, most=examples)
    steps = examples // batch_size if steps_per_epoch is None else errors.check_count("steps_per_epoch", steps_per_epoch)
    return Source(batches.seeded(batches.shuffled((x, y), batch_size, seed), seed + 1), steps)


def _streamed(dataset: tf.data.Dataset, steps_per_epoch: int | None, seed: int) -> Source:
    x, y = first(dataset, "x")
    size = int(nest.flatten(x)[0].shape[0])
    example = (x, y)

    def whole(*element: Any) -> tf.Tensor:
        return tf.equal(tf.shape(nest.flatten(element)[0])[0], size)

    def seeded(i: tf.Tensor, element: Any) -> tuple[Nest, tf.Tensor]:
        fixed = nest.map(lambda leaf, like: tf.ensure_shape(leaf, like.shape), tuple(element), example)
        return fixed, tf.stack([tf.constant(seed + 1, tf.int32), tf.cast(i % 2**31, tf.int32)])

    usable = dataset.filter(whole)  # the last batch of an epoch may be smaller, which would be another program
    if steps_per_epoch is None:
        count = int(dataset.cardinality())
        if count == tf.data.INFINITE_CARDINALITY:
            raise ValueError("x is a dataset without end; pass steps_per_epoch, the batches that count as an epoch.")
        steps = count if count > 0 else sum(1 for _ in usable)
    else:
        steps = errors.check_count("steps_per_epoch", steps_per_epoch)
    return Source(batches.stream(usable.repeat().enumerate().map(seeded)), steps)


def first(dataset: tf.data.Dataset, argument: str) -> tuple[Nest, Nest]:
    """The first pair of a dataset."""
    for element in dataset.take(1):
        if not isinstance(element, tuple) or len(element) != 2:
            parts = len(element) if isinstance(element, tuple) else "no"
            raise ValueError(
                f"{argument} is a dataset that gives {parts} parts; it has to give pairs (x, y). Weights of examples are "
                f"what rf.per_example_weights finds."
            )
        if nest.flatten(element)[0].shape.rank == 0 or not nest.flatten(element)[1].shape.rank:
            raise ValueError(f"{argument} is a dataset of single examples; add .batch(n).")
        return element
    raise ValueError(f"{argument} is a dataset that ended before its first batch: it is empty, or was used up elsewhere.")


def arrays(x: Any, y: Any, argument: str) -> tuple[Nest, Nest]:
    """Two nests of arrays with one number of examples."""
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
        first(data, argument)
        if int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise ValueError(f"{argument} is a dataset without end; it is read into memory: use .take(n).")
        parts = list(data.as_numpy_iterator())
        return nest.map(lambda *leaves: np.concatenate(leaves), *parts)
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(f"{argument} is {type(data).__name__}; pass a pair of arrays (x, y) or a dataset of such pairs.")
    return arrays(data[0], data[1], argument)


def validation(data: tuple[Nest, Nest], batch_size: int, seed: int) -> Batches:
    """Hyper-iteration k -> a part of the validation examples, shuffled anew at every pass."""
    examples = len(nest.flatten(data)[0])
    return batches.full(data) if batch_size >= examples else batches.shuffled(data, batch_size, seed)

"""Turns what Keras's `fit` takes into batches of (examples, seed), where examples are (x, y) or (x, y, weights)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2 import batches
from rfho2.core import errors, nest
from rfho2.core.types import Batches
from rfho2.keras_bridge.data import datasets
from rfho2.keras_bridge.data.datasets import ClassWeight, Features, Order, Source, as_dataset, is_dataset
from rfho2.keras_bridge.data.values import Examples, check_values, warn_unless_repeatable


def training_and_validation(
    x: Any,
    y: Any,
    order: Order,
    sample_weight: Any,
    class_weight: ClassWeight,
    validation_data: Any,
    share: float,
    features: Features | None,
) -> tuple[Source, Examples]:
    """Training batches, and validation arrays: those passed, or a share of the training arrays.

    `features` is applied to the inputs of the training examples, but not to those of the validation arrays.
    """
    datasets.refuse_iterator(x, "x")
    if not share:
        if validation_data is None:
            raise ValueError(
                "validation_data is None, but the hypers are tuned on it: pass arrays (x, y) or a dataset, or "
                "validation_split."
            )
        held_out = in_memory(validation_data, "validation_data")
        return training_batches(x, y, order, sample_weight, class_weight, features), held_out
    if is_dataset(x):
        raise ValueError("validation_split needs arrays, but x is a dataset; pass validation_data.")
    if validation_data is not None:
        raise ValueError("validation_split and validation_data are both given; pass one of the two.")
    examples, held_out = split(arrays(x, y, sample_weight, "x and y"), share)
    return of_arrays(examples, order, class_weight, features), held_out


def split(examples: Examples, fraction: float) -> tuple[Examples, Examples]:
    """The first examples, and the last ones, a given share of all, as Keras divides them."""
    number = len(nest.flatten(examples)[0])
    if not isinstance(fraction, int | float) or not 0 < fraction < 1:
        raise ValueError(f"validation_split is {fraction!r}; it has to be a number between 0 and 1.")
    first = int(number * (1 - fraction))
    if first in (0, number):
        raise ValueError(f"validation_split is {fraction}, which leaves one of the two parts of {number} examples empty.")
    return tuple(nest.map(lambda a: a[:first], examples)), tuple(nest.map(lambda a: a[first:], examples))


def arrays(x: Any, y: Any, sample_weight: Any, argument: str) -> Examples:
    """Arrays with the same number of examples."""
    if y is None:
        raise ValueError(f"{argument}: there are no labels; pass arrays x and y, or a dataset of pairs (x, y).")
    if isinstance(sample_weight, Mapping | list | tuple) and not np.isscalar(next(iter(sample_weight), 0)):
        raise ValueError("sample_weight has a part for each output; pass one array, with a number for each example.")
    weights = () if sample_weight is None else (np.asarray(sample_weight, np.float32),)
    examples: Examples = nest.map(np.asarray, (_listed(x), _listed(y), *weights))
    lengths = {len(leaf) if leaf.ndim else 0 for leaf in nest.flatten(examples)}
    if len(lengths) != 1 or lengths == {0}:
        shapes = [list(leaf.shape) for leaf in nest.flatten(examples)]
        raise ValueError(f"{argument} have shapes {shapes}; all need the same number of examples, at least one.")
    check_values(examples, argument)
    return examples


def _listed(data: Any) -> Any:
    """Converts a list of numbers, or of lists of them, to an array; a list of arrays has one for each input or output."""
    if isinstance(data, list) and data and isinstance(data[0], list | int | float | str | np.generic):
        return np.asarray(data)
    return data


def training_batches(
    x: Any,
    y: Any,
    order: Order,
    sample_weight: Any = None,
    class_weight: ClassWeight = None,
    features: Features | None = None,
) -> Source:
    """Batches of arrays, or the stream of a `tf.data.Dataset` or `PyDataset` of batches."""
    if is_dataset(x):
        for name, value in (("y", y), ("sample_weight", sample_weight)):
            if value is not None:
                raise ValueError(
                    f"x is a dataset, but {name} is passed too; the dataset itself must yield (x, y) or (x, y, w)."
                )
        return datasets.streamed(as_dataset(x, "x", order), as_dataset(x, "x"), order, class_weight, features)
    return of_arrays(arrays(x, y, sample_weight, "x and y"), order, class_weight, features)


def of_arrays(examples: Examples, order: Order, class_weight: ClassWeight, features: Features | None = None) -> Source:
    """Batches of arrays."""
    if features is not None:
        examples = (features.of_arrays(examples[0]), *examples[1:])
    if class_weight is not None:
        if len(examples) == 3:
            raise ValueError("class_weight and sample_weight are both given; multiply them, and pass one sample_weight.")
        examples = (*examples, datasets.weights_of_classes(examples[1], class_weight))
    number = len(nest.flatten(examples)[0])
    size = errors.check_count("batch_size", order.batch_size)
    if size > number:
        raise ValueError(f"batch_size is {size}, but there are only {number} training examples; pass at most {number}.")
    requested = order.steps_per_epoch
    steps = number // size if requested is None else errors.check_count("steps_per_epoch", requested)
    make = batches.shuffled(examples, size, order.seed) if order.shuffle else _in_order(examples, size)
    return Source(batches.seeded(make, order.seed + 1), steps, *examples[:2])


def _in_order(examples: Examples, size: int) -> Batches:
    tensors = nest.map(tf.constant, examples)
    count = len(nest.flatten(examples)[0]) // size
    return lambda index: nest.map(lambda a: tf.gather(a, (index % count) * size + tf.range(size)), tensors)


def in_memory(data: Any, argument: str) -> Examples:
    """Arrays, from a tuple of arrays or from a finite dataset of batches."""
    datasets.refuse_iterator(data, argument)
    if is_dataset(data):
        dataset = as_dataset(data, argument)
        datasets.first_batch(dataset, argument)
        if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise ValueError(f"{argument} is an infinite dataset, but it is read into memory: use .take(n).")
        examples = tuple(nest.map(lambda *leaves: np.concatenate(leaves), *dataset.as_numpy_iterator()))
        check_values(examples, argument)
        warn_unless_repeatable(dataset, examples, argument)
        return examples
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        raise ValueError(
            f"{argument} is {type(data).__name__}; pass arrays (x, y) or (x, y, sample_weight), or a dataset of batches."
        )
    return arrays(data[0], data[1], data[2] if len(data) == 3 else None, argument)


def validation_batches(data: Examples, batch_size: int, seed: int) -> Batches:
    """Hyper-iteration k -> a part of the validation examples, reshuffled in every pass; all of them if few enough."""
    examples = len(nest.flatten(data)[0])
    return batches.full(data) if batch_size >= examples else batches.shuffled(data, batch_size, seed)

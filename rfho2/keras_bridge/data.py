"""Turns what Keras's `fit` takes into batches of (examples, seed), where examples are (x, y) or (x, y, weights)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from rfho2 import batches
from rfho2.core import errors, nest
from rfho2.core.types import Batches, Nest

Examples = tuple[Nest, ...]
"""(x, y), or (x, y, weights) with a factor for the loss of each example."""


class Source(NamedTuple):
    """Training data.

    Attributes:
      batches: index -> (examples, int32[2]).
      steps: the number of batches in an epoch.
      inputs: arrays, or a dataset of one epoch, for the statistics of batch norm.
      labels: all of them, or None where they come from a dataset.
    """

    batches: Batches
    steps: int
    inputs: Any
    labels: Nest | None = None


class Order(NamedTuple):
    """How arrays are divided into batches.

    Attributes:
      batch_size: examples in a batch; a smaller last one is left out.
      shuffle: whether each epoch has an order of its own.
      seed: determines the order, and what random layers draw.
      steps_per_epoch: batches in an epoch; None means as many as there are.
    """

    batch_size: int
    shuffle: bool
    seed: int
    steps_per_epoch: int | None = None


def split(examples: Examples, fraction: float, argument: str = "validation_split") -> tuple[Examples, Examples]:
    """The first examples, and the last ones, a given share of all, as Keras divides them."""
    number = len(nest.flatten(examples)[0])
    if not isinstance(fraction, int | float) or not 0 < fraction < 1:
        raise ValueError(f"{argument} is {fraction!r}; it has to be a number between 0 and 1.")
    first = int(number * (1 - fraction))
    if first in (0, number):
        raise ValueError(f"{argument} is {fraction}, which leaves one of the two parts of {number} examples empty.")
    return tuple(nest.map(lambda a: a[:first], examples)), tuple(nest.map(lambda a: a[first:], examples))


def is_dataset(x: Any) -> bool:
    """Whether x yields batches by itself."""
    return isinstance(x, tf.data.Dataset | keras.utils.PyDataset)


def refuse_iterator(x: Any, argument: str) -> None:
    """Refuses what can be read only once."""
    if isinstance(x, Iterator):
        raise TypeError(
            f"{argument} is a {type(x).__name__}, which can be read only once, but steps after which the loss explodes are "
            f"repeated. Pass a keras.utils.PyDataset, or tf.data.Dataset.from_generator(make, output_signature=...), where "
            f"make() returns a new generator."
        )


def arrays(x: Any, y: Any, sample_weight: Any, argument: str) -> Examples:
    """Arrays with the same number of examples."""
    if y is None:
        raise ValueError(f"{argument}: there are no labels; pass arrays x and y, or a dataset of pairs (x, y).")
    if isinstance(sample_weight, Mapping | list | tuple) and not np.isscalar(next(iter(sample_weight), 0)):
        raise ValueError("sample_weight has a part for each output; pass one array, with a number for each example.")
    weights = () if sample_weight is None else (np.asarray(sample_weight, np.float32),)
    found: Examples = nest.map(np.asarray, (_listed(x), _listed(y), *weights))
    lengths = {len(leaf) if leaf.ndim else 0 for leaf in nest.flatten(found)}
    if len(lengths) != 1 or lengths == {0}:
        shapes = [list(leaf.shape) for leaf in nest.flatten(found)]
        raise ValueError(f"{argument} have shapes {shapes}; all need the same number of examples, at least one.")
    return found


def _listed(data: Any) -> Any:
    """A list of numbers, or of lists of them, as an array; a list of arrays has one for each input or output."""
    return (
        np.asarray(data)
        if isinstance(data, list) and data and isinstance(data[0], list | int | float | str | np.generic)
        else data
    )


def with_class_weights(examples: Examples, class_weight: Mapping[int, float] | None) -> Examples:
    """The examples with the weights of their classes."""
    if class_weight is None:
        return examples
    if len(examples) == 3:
        raise ValueError("class_weight and sample_weight are both given; multiply them, and pass one sample_weight.")
    return (*examples, weights_of_classes(examples[1], class_weight))


def weights_of_classes(y: Nest, class_weight: Mapping[int, float]) -> np.ndarray:
    """The weight of each example by its class; a class that is not named has weight 1."""
    leaves = nest.flatten(y)
    if len(leaves) != 1:
        raise ValueError(f"class_weight is given, but the model has {len(leaves)} outputs; pass sample_weight instead.")
    labels = np.asarray(leaves[0])
    if labels.ndim > 1:
        labels = labels[..., 0] if labels.shape[-1] == 1 else labels.argmax(-1)
    if labels.ndim != 1:
        raise ValueError(f"class_weight needs one class for each example, but the labels have shape {labels.shape}.")
    labels = labels.astype(np.int64)
    table = np.ones(int(max([labels.max(initial=0), *class_weight])) + 1, np.float32)
    for label, weight in class_weight.items():
        table[int(label)] = weight
    return table[labels]


def training_batches(
    x: Any, y: Any, order: Order, sample_weight: Any = None, class_weight: Mapping[int, float] | None = None
) -> Source:
    """Batches of arrays, or the stream of a `tf.data.Dataset` or `PyDataset` of batches."""
    refuse_iterator(x, "x")
    if is_dataset(x):
        for name, value in (("y", y), ("sample_weight", sample_weight)):
            if value is not None:
                raise ValueError(
                    f"x is a dataset, but {name} is passed too; the dataset itself must yield (x, y) or (x, y, w)."
                )
        return _streamed(_as_dataset(x, "x", order), order, class_weight)
    return of_arrays(with_class_weights(arrays(x, y, sample_weight, "x and y"), class_weight), order)


def of_arrays(examples: Examples, order: Order) -> Source:
    """Batches of arrays."""
    number = len(nest.flatten(examples)[0])
    size = errors.check_count("batch_size", order.batch_size, most=number)
    given = order.steps_per_epoch
    steps = number // size if given is None else errors.check_count("steps_per_epoch", given)
    make = batches.shuffled(examples, size, order.seed) if order.shuffle else _in_order(examples, size)
    return Source(batches.seeded(make, order.seed + 1), steps, *examples[:2])


def _in_order(examples: Examples, size: int) -> Batches:
    tensors = nest.map(tf.constant, examples)
    count = len(nest.flatten(examples)[0]) // size
    return lambda index: nest.map(lambda a: tf.gather(a, (index % count) * size + tf.range(size)), tensors)


def _as_dataset(data: Any, argument: str, order: Order | None = None) -> tf.data.Dataset:
    """A dataset of batches; the batches of a `PyDataset` are shuffled in each epoch if the order says so, as in Keras."""
    if isinstance(data, tf.data.Dataset):
        return data
    try:
        number = data.num_batches
    except NotImplementedError:
        number = None
    if not number:
        raise ValueError(f"{argument} is a PyDataset without a length, or without batches; give it a __len__ above 0.")
    epochs = itertools.count()

    def epoch() -> Iterator[Examples]:
        seed = [0 if order is None else order.seed, next(epochs)]
        shuffled = order is not None and order.shuffle
        data.on_epoch_begin()
        for i in np.random.default_rng(seed).permutation(number) if shuffled else range(number):
            yield _tupled(_pair(data[int(i)], argument))
        data.on_epoch_end()

    first = _tupled(_pair(data[0], argument))
    spec = nest.map(lambda a: tf.TensorSpec([None, *np.shape(a)[1:]], np.asarray(a).dtype), first)
    dataset = tf.data.Dataset.from_generator(epoch, output_signature=spec)
    return dataset.apply(tf.data.experimental.assert_cardinality(number))


def _streamed(dataset: tf.data.Dataset, order: Order, class_weight: Mapping[int, float] | None) -> Source:
    if class_weight is not None:
        dataset = dataset.map(lambda *element: _weighted(element, class_weight))
    example = _first_batch(dataset, "x")
    size = int(nest.flatten(example)[0].shape[0])

    def has_full_size(*element: Any) -> tf.Tensor:
        return tf.equal(tf.shape(nest.flatten(element)[0])[0], size)

    def with_seed(i: tf.Tensor, element: Any) -> tuple[Nest, tf.Tensor]:
        fixed = nest.map(lambda leaf, like: tf.ensure_shape(leaf, like.shape), tuple(element), example)
        return fixed, tf.stack([tf.constant(order.seed + 1, tf.int32), tf.cast(i % 2**31, tf.int32)])

    full_batches = dataset.filter(has_full_size)  # a smaller last batch would need another compiled program
    steps = _steps(dataset, full_batches, order.steps_per_epoch)
    return Source(batches.stream(full_batches.repeat().enumerate().map(with_seed)), steps, dataset.take(steps))


def _weighted(element: tuple[Any, ...], class_weight: Mapping[int, float]) -> tuple[Any, ...]:
    """`with_class_weights` inside a dataset."""
    if len(element) != 2:
        raise ValueError("class_weight is given, but the dataset yields weights already; multiply them there.")
    x, y = element
    leaves = nest.flatten(y)
    if len(leaves) != 1:
        raise ValueError(f"class_weight is given, but the model has {len(leaves)} outputs; pass sample_weight instead.")
    weights = tf.numpy_function(lambda labels: weights_of_classes(labels, class_weight), leaves, tf.float32)
    weights.set_shape(leaves[0].shape[:1])
    return x, y, weights


def _steps(dataset: tf.data.Dataset, full_batches: tf.data.Dataset, steps_per_epoch: int | None) -> int:
    """The number of batches in an epoch."""
    if steps_per_epoch is not None:
        return errors.check_count("steps_per_epoch", steps_per_epoch)
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError("x is an infinite dataset; pass steps_per_epoch, the number of batches that count as an epoch.")
    count = int(dataset.cardinality())
    all_full = nest.flatten(dataset.element_spec)[0].shape[0] is not None
    return count if all_full and count > 0 else sum(1 for _ in full_batches)


def _pair(element: Any, argument: str) -> Examples:
    """An element of a dataset, checked."""
    if not isinstance(element, tuple | list) or len(element) not in (2, 3):
        parts = len(element) if isinstance(element, tuple | list) else "no"
        raise ValueError(
            f"{argument} is a dataset that yields {parts} parts; it must yield (x, y) or (x, y, sample_weight). To learn "
            f"weights of examples, use rf.per_example_weights."
        )
    return tuple(element)


def _tupled(nested: Any) -> Any:
    """Lists as tuples: tf.data takes a list for an array."""
    if isinstance(nested, list | tuple):
        return tuple(_tupled(part) for part in nested)
    return {name: _tupled(part) for name, part in nested.items()} if isinstance(nested, dict) else np.asarray(nested)


def _first_batch(dataset: tf.data.Dataset, argument: str) -> Examples:
    """The first element of a dataset, checked."""
    for element in dataset.take(1):
        if nest.flatten(_pair(element, argument))[0].shape.rank == 0 or not nest.flatten(element)[1].shape.rank:
            raise ValueError(f"{argument} is a dataset of single examples; add .batch(n).")
        return tuple(element)
    raise ValueError(f"{argument} is a dataset that ended before its first batch: it is empty, or was exhausted elsewhere.")


def in_memory(data: Any, argument: str) -> Examples:
    """Arrays, from a tuple of arrays or from a finite dataset of batches."""
    refuse_iterator(data, argument)
    if is_dataset(data):
        dataset = _as_dataset(data, argument)
        _first_batch(dataset, argument)
        if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise ValueError(f"{argument} is an infinite dataset, but it is read into memory: use .take(n).")
        parts = list(dataset.as_numpy_iterator())
        return tuple(nest.map(lambda *leaves: np.concatenate(leaves), *parts))
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        raise ValueError(
            f"{argument} is {type(data).__name__}; pass arrays (x, y) or (x, y, sample_weight), or a dataset of batches."
        )
    return arrays(data[0], data[1], data[2] if len(data) == 3 else None, argument)


def validation_batches(data: Examples, batch_size: int, seed: int) -> Batches:
    """Hyper-iteration k -> a part of the validation examples, reshuffled in every pass; all of them if few enough."""
    examples = len(nest.flatten(data)[0])
    return batches.full(data) if batch_size >= examples else batches.shuffled(data, batch_size, seed)

"""Datasets that yield batches by themselves, `tf.data` or Keras's `PyDataset`, as streams of training batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np
import tensorflow as tf

from rfho2 import batches
from rfho2.core import errors, nest
from rfho2.core.types import Batches, Nest
from rfho2.keras_bridge.data.values import Examples, check_values

ClassWeight = Mapping[int, float] | None
"""The weights of classes, as Keras's `fit` takes them."""


class Source(NamedTuple):
    """Training data.

    Attributes:
      batches: index -> (examples, int32[2]).
      steps: the number of batches in an epoch.
      inputs: arrays, or a dataset of one epoch of examples, for the statistics of batch norm and for metrics.
      labels: all of them, or those of the first batch of a dataset.
    """

    batches: Batches
    steps: int
    inputs: Any
    labels: Nest


class Features(Protocol):
    """The first part of a model, which is not trained: its outputs are the inputs of the rest."""

    def of_arrays(self, x: Nest) -> Nest:
        """The outputs for all examples, in memory."""
        ...

    def of_tensors(self, x: Nest) -> Nest:
        """The outputs for a batch, in the graph of a dataset."""
        ...


class Order(NamedTuple):
    """The division of arrays into batches.

    Attributes:
      batch_size: examples in a batch; a smaller last one is left out.
      shuffle: whether each epoch has a different order.
      seed: determines the order, and what random layers draw.
      steps_per_epoch: batches in an epoch; None means as many as there are.
    """

    batch_size: int
    shuffle: bool
    seed: int
    steps_per_epoch: int | None = None


def is_dataset(x: Any) -> bool:
    """Whether x yields batches by itself."""
    return isinstance(x, tf.data.Dataset | keras.utils.PyDataset)


def refuse_iterator(x: Any, argument: str) -> None:
    """Refuses data that can be read only once."""
    if isinstance(x, Iterator):
        raise TypeError(
            f"{argument} is a {type(x).__name__}, which can be read only once, but diverged steps are re-run. "
            f"Pass a keras.utils.PyDataset, or tf.data.Dataset.from_generator(make, output_signature=...), where "
            f"make() returns a new generator."
        )


def as_dataset(data: Any, argument: str, order: Order | None = None) -> tf.data.Dataset:
    """A dataset of batches.

    As in Keras, a `PyDataset` is told when epochs begin and end, and its batches are shuffled if `order` says so. Without an
    order it is read as it is.
    """
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
        if order is None:
            yield from (_tupled(_pair(data[i], argument)) for i in range(number))
            return
        data.on_epoch_begin()
        shuffled = np.random.default_rng([order.seed, next(epochs)]).permutation(number)
        yield from (_tupled(_pair(data[int(i)], argument)) for i in (shuffled if order.shuffle else range(number)))
        data.on_epoch_end()

    first = _tupled(_pair(data[0], argument))
    spec = nest.map(lambda a: tf.TensorSpec([None, *np.shape(a)[1:]], np.asarray(a).dtype), first)
    dataset = tf.data.Dataset.from_generator(epoch, output_signature=spec)
    return dataset.apply(tf.data.experimental.assert_cardinality(number))


def streamed(
    dataset: tf.data.Dataset,
    plain: tf.data.Dataset,
    order: Order,
    class_weight: ClassWeight,
    features: Features | None = None,
) -> Source:
    """The batches of a dataset; `plain` has the same batches, and may be read during the training."""
    if features is not None:
        dataset, plain = (d.map(lambda x, *rest: (features.of_tensors(x), *rest)) for d in (dataset, plain))
    if class_weight is not None:
        dataset, plain = (d.map(lambda *element: _weighted(element, class_weight)) for d in (dataset, plain))
    example = first_batch(plain, "x")
    check_values(example, "the first batch of x")
    size = int(nest.flatten(example)[0].shape[0])

    def has_full_size(*element: Any) -> tf.Tensor:
        return tf.equal(tf.shape(nest.flatten(element)[0])[0], size)

    def with_seed(i: tf.Tensor, element: Any) -> tuple[Nest, tf.Tensor]:
        fixed = nest.map(lambda leaf, like: tf.ensure_shape(leaf, like.shape), tuple(element), example)
        return fixed, tf.stack([tf.constant(order.seed + 1, tf.int32), tf.cast(i % 2**31, tf.int32)])

    # A smaller last batch would need another compiled program.
    full_batches, counted = dataset.filter(has_full_size), plain.filter(has_full_size)
    steps = _steps(plain, counted, order.steps_per_epoch)
    stream = batches.stream(full_batches.repeat().enumerate().map(with_seed))
    return Source(stream, steps, counted.take(steps), nest.map(lambda leaf: leaf.numpy(), example[1]))


def _weighted(element: tuple[Any, ...], class_weight: Mapping[int, float]) -> tuple[Any, ...]:
    """An element of a dataset, with the weights of its classes."""
    if len(element) != 2:
        raise ValueError("class_weight is given, but the dataset yields weights already; multiply them there.")
    labels = _only_labels(element[1])
    weights = tf.numpy_function(lambda labels: weights_of_classes(labels, class_weight), [labels], tf.float32)
    weights.set_shape(labels.shape[:1])
    return *element, weights


def weights_of_classes(y: Nest, class_weight: Mapping[int, float]) -> np.ndarray:
    """The weight of each example by its class; a class that is not named has weight 1."""
    labels = np.asarray(_only_labels(y))
    if labels.ndim > 1:
        labels = labels[..., 0] if labels.shape[-1] == 1 else labels.argmax(-1)
    if labels.ndim != 1:
        raise ValueError(f"class_weight needs one class for each example, but the labels have shape {labels.shape}.")
    table = {int(label): weight for label, weight in class_weight.items()}
    return np.array([table.get(label, 1.0) for label in labels.astype(np.int64).tolist()], np.float32)


def _only_labels(y: Nest) -> Any:
    leaves = nest.flatten(y)
    if len(leaves) != 1:
        raise ValueError(f"class_weight is given, but the model has {len(leaves)} outputs; pass sample_weight instead.")
    return leaves[0]


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


def first_batch(dataset: tf.data.Dataset, argument: str) -> Examples:
    """The first element of a dataset, checked."""
    for element in dataset.take(1):
        if nest.flatten(_pair(element, argument))[0].shape.rank == 0 or not nest.flatten(element)[1].shape.rank:
            raise ValueError(f"{argument} is a dataset of single examples; add .batch(n).")
        return tuple(element)
    raise ValueError(f"{argument} is a dataset that ended before its first batch: it is empty, or was exhausted elsewhere.")

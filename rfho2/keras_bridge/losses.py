"""Keras losses as functions of (labels, outputs), and the labels that they want."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Nest

SPARSE = {"SparseCategoricalCrossentropy", "sparse_categorical_crossentropy"}
ONE_HOT = {"CategoricalCrossentropy", "categorical_crossentropy"}


def cross_entropy(targets: tf.Tensor, logits: tf.Tensor, from_logits: bool = True) -> tf.Tensor:
    """-sum_c targets_c log softmax(logits)_c, with the right derivatives by the targets too, to every order.

    TensorFlow's own (`tf.nn.softmax_cross_entropy_with_logits`, and Keras's by way of it) leaves out the mixed second
    derivative by targets and logits, of which the hypergradient of anything in the labels consists.

    Args:
      targets: probabilities, classes along the last axis.
      logits: of the same shape; or probabilities.
      from_logits: False if the `logits` are probabilities.

    >>> float(cross_entropy(tf.constant([0.5, 0.5]), tf.constant([0.0, 0.0])))  # log 2
    0.6931471824645996
    """
    tiny = np.finfo(logits.dtype.as_numpy_dtype).eps
    logs = tf.nn.log_softmax(logits) if from_logits else tf.math.log(tf.maximum(logits, tf.cast(tiny, logits.dtype)))
    return -tf.reduce_sum(targets * logs, axis=-1)


class OneLoss(NamedTuple):
    """One output's loss.

    Attributes:
      name: as the user knows it.
      values: (labels, outputs) -> a number for each example, or a scalar.
      total: whether values are summed over the batch instead of averaged.
      from_logits: of a cross-entropy.
    """

    name: str
    values: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    total: bool = False
    from_logits: bool = False

    def __call__(self, labels: tf.Tensor, outputs: tf.Tensor, weights: tf.Tensor | None = None) -> tf.Tensor:
        """The loss of a batch; `weights` multiply the examples."""
        mask = getattr(outputs, "_keras_mask", None)  # of padded sequences: steps that do not count
        if outputs.dtype in (tf.float16, tf.bfloat16):  # of a model in mixed precision; its params are float32
            outputs = tf.cast(outputs, tf.float32)
        values = self.values(tf.cast(labels, outputs.dtype), outputs)  # cast as Keras does before it calls a loss
        if mask is not None and values.shape.rank == mask.shape.rank:
            mask = tf.cast(mask, values.dtype)
            scale = tf.math.divide_no_nan(tf.cast(tf.size(mask), values.dtype), tf.reduce_sum(mask))
            values *= mask * (1.0 if self.total else scale)
        if weights is not None:
            if values.shape.rank == 0:
                raise ValueError(
                    f"loss {self.name} gives one number for the whole batch; weights need one for each example."
                )
            values *= tf.reshape(weights, [-1] + [1] * (values.shape.rank - 1))
        return tf.reduce_sum(values) if self.total else tf.reduce_mean(values)


def one_loss(loss: Any) -> OneLoss:
    """From a `keras.losses.Loss`, its name, or a function (labels, outputs) -> numbers."""
    if isinstance(loss, keras.metrics.Metric) or (isinstance(loss, str) and "accuracy" in loss):
        raise TypeError(
            f"loss is the metric {_name(loss)}, which has no gradient; pass a loss, such as "
            f"'sparse_categorical_crossentropy', and the metric as metrics=[...]."
        )
    try:
        found = keras.losses.get(loss)
    except ValueError as error:
        raise ValueError(f"loss is {loss!r}, which Keras does not know: {error}") from None
    if isinstance(found, keras.losses.Loss):
        settings = getattr(found, "_fn_kwargs", {})
        if settings.get("ignore_class") is not None or settings.get("axis", -1) != -1:
            raise ValueError(
                f"loss {type(found).__name__} has ignore_class, or an axis that is not the last; neither is supported: "
                f"leave such examples out of the data, or move the classes to the last axis."
            )
        total, from_logits = found.reduction == "sum", bool(settings.get("from_logits", False))
        return OneLoss(type(found).__name__, found.call, total, from_logits)  # .call: the call itself would cast to float32
    if not callable(found):
        raise TypeError(f"loss is {loss!r}; pass a keras.losses.Loss, its name, or a function (labels, outputs) -> numbers.")
    return OneLoss(_name(found), lambda labels, outputs: found(_of_rank(labels, outputs), outputs))


def _name(loss: Any) -> str:
    return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)


class Losses(NamedTuple):
    """The losses of all outputs, in the order of `nest.flatten(outputs)`."""

    each: tuple[OneLoss, ...]

    def __call__(
        self,
        labels: Nest,
        outputs: Nest,
        weights: tf.Tensor | None = None,
        smoothing: tf.Tensor | None = None,
        of_outputs: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Their sum.

        Args:
          labels, outputs: nests of one structure.
          weights: a factor for each example.
          smoothing: the label smoothing, where that is a hyper.
          of_outputs: a factor for each output.
        """
        label_leaves, leaves = nest.flatten(labels), nest.flatten(outputs)
        if len(label_leaves) != len(leaves) or len(self.each) not in (1, len(leaves)):
            raise ValueError(
                f"the model has {len(leaves)} outputs, there are labels for {len(label_leaves)} and {len(self.each)} "
                f"losses; pass as many of each, in the same structure."
            )
        each = self.each * (len(leaves) if len(self.each) == 1 else 1)
        if smoothing is not None:
            each = tuple(smoothed(loss, smoothing) for loss in each)
        values = [one(y, out, weights) for one, y, out in zip(each, label_leaves, leaves, strict=True)]
        if of_outputs is not None:
            values = [value * of_outputs[i] for i, value in enumerate(values)]
        return tf.add_n(values)


def _of_rank(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Labels with an axis of size 1 more or less, where the outputs have it: or (N,) and (N, 1) would make (N, N)."""
    if labels.shape.rank == outputs.shape.rank - 1 and outputs.shape[-1] == 1:
        return labels[..., None]
    if labels.shape.rank == outputs.shape.rank + 1 and labels.shape[-1] == 1:
        return labels[..., 0]
    return labels


def losses(loss: Any, names: Sequence[str] | None = None) -> Losses:
    """From one loss, or a list or dict of one for each output.

    Args:
      loss: what a user gave.
      names: of the outputs of a model that has a list of them, in its order; for one with a dict, None.
    """
    if isinstance(loss, Mapping):
        if names is not None and set(names) != set(loss):
            raise ValueError(f"loss is for outputs {sorted(loss)}, but the model's are {list(names)}; give each one.")
        return Losses(tuple(one_loss(loss[name]) for name in (sorted(loss) if names is None else names)))
    return Losses(tuple(map(one_loss, loss)) if isinstance(loss, list | tuple) else (one_loss(loss),))


def smoothed(loss: OneLoss, smoothing: tf.Tensor) -> OneLoss:
    """Cross-entropy with targets (1 - smoothing) one_hot + smoothing / classes, by our own, because of its derivatives."""
    if loss.name not in SPARSE | ONE_HOT:
        raise ValueError(
            f"label_smoothing is a hyper, but the loss is {loss.name}; only SparseCategoricalCrossentropy and "
            f"CategoricalCrossentropy have labels to smooth, and rfho2 computes them itself: Keras's {loss.name} cannot be "
            f"differentiated by its labels."
        )

    def values(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        classes = outputs.shape[-1]
        if loss.name in SPARSE:
            flat = tf.reshape(tf.cast(labels, tf.int32), tf.shape(outputs)[:-1])
            targets = tf.one_hot(flat, classes, dtype=outputs.dtype)
        else:
            targets = tf.cast(labels, outputs.dtype)
        targets = (1 - smoothing) * targets + smoothing / classes
        return cross_entropy(targets, outputs, loss.from_logits)

    return loss._replace(values=values)


def check_labels(loss: Losses, labels: Nest, outputs: Nest) -> None:
    """Refuses labels of another kind than the loss wants, before Keras broadcasts them to something wrong.

    Args:
      labels: arrays of labels, all of them or a batch.
      outputs: the model's outputs for a batch.
    """
    leaves = nest.flatten(outputs)
    each = loss.each * (len(leaves) if len(loss.each) == 1 else 1)
    for one, y, out in zip(each, nest.flatten(labels), leaves, strict=False):
        y = np.asarray(y)
        classes = out.shape[-1] if out.shape.rank else 1
        if one.name in ONE_HOT and (y.ndim != out.shape.rank or y.shape[-1] != classes):
            raise ValueError(
                f"loss {one.name} wants one-hot labels of {classes} classes, but the labels have shape {y.shape} "
                f"({y.dtype}). Use SparseCategoricalCrossentropy, or keras.utils.to_categorical(y, {classes})."
            )
        if one.name in SPARSE:
            if y.ndim == out.shape.rank and y.shape[-1] != 1:
                raise ValueError(
                    f"loss {one.name} wants a class index for each example, but the labels have shape {y.shape}. Use "
                    f"CategoricalCrossentropy for one-hot labels, or y.argmax(-1)."
                )
            if y.size and not (y.min() >= 0 and y.max() < classes):
                raise ValueError(
                    f"the labels go from {y.min()} to {y.max()}, but the model has {classes} outputs: classes 0 to "
                    f"{classes - 1}."
                )

"""Keras losses as functions of (labels, outputs)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.ops import cross_entropy
from rfho2.core.types import Nest

SPARSE = {"SparseCategoricalCrossentropy", "sparse_categorical_crossentropy"}
ONE_HOT = {"CategoricalCrossentropy", "categorical_crossentropy"}
BINARY = {"BinaryCrossentropy", "binary_crossentropy"}
ELEMENTWISE = BINARY | {
    "MeanSquaredError", "mean_squared_error", "MeanAbsoluteError", "mean_absolute_error", "Huber", "huber", "LogCosh",
    "log_cosh", "MeanSquaredLogarithmicError", "mean_squared_logarithmic_error", "MeanAbsolutePercentageError",
    "mean_absolute_percentage_error", "Poisson", "poisson", "BinaryFocalCrossentropy", "binary_focal_crossentropy",
}  # fmt: skip
BOUND = 5.0  # the least bound of a cross-entropy: 5 is the plain loss of a label that has a probability of 0.7 %
OF_FIRST = 1.5  # times the first loss: the bound for models whose loss starts high


class OutputLoss(NamedTuple):
    """The loss of one output.

    Attributes:
      name: as the user knows it.
      values: (labels, outputs) -> one number per example, or a scalar.
      total: whether the values are summed over the batch instead of averaged.
      from_logits: whether the outputs of a cross-entropy are logits.
      smoothing: the label smoothing that the values include.
      by_weights: whether the mean of weighted values is divided by the sum of the weights instead of their number.
      ignored: the label of examples that do not count, if there is one.
    """

    name: str
    values: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    total: bool = False
    from_logits: bool = False
    smoothing: float = 0.0
    by_weights: bool = False
    ignored: int | None = None

    def __call__(self, labels: tf.Tensor, outputs: tf.Tensor, weights: tf.Tensor | None = None) -> tf.Tensor:
        """The loss of a batch; `weights` multiply the examples."""
        values = self.of_examples(labels, outputs)
        if weights is not None:
            if values.shape.rank == 0:
                raise ValueError(
                    f"loss {self.name} gives one number for the whole batch; weights need one number per example."
                )
            weights = self._aligned(tf.cast(weights, values.dtype), values)
            values *= weights
            if self.by_weights:
                return tf.math.divide_no_nan(tf.reduce_sum(values), tf.reduce_sum(tf.broadcast_to(weights, values.shape)))
        return tf.reduce_sum(values) if self.total else tf.reduce_mean(values)

    def of_examples(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """The values that the loss averages or sums: one number per example (or per step of a sequence), or a scalar."""
        mask = getattr(outputs, "_keras_mask", None)  # is false for the padding of sequences, which does not count
        if outputs.dtype in (tf.float16, tf.bfloat16):  # a model in mixed precision, whose params are float32
            outputs = tf.cast(outputs, tf.float32)
        values = self.values(tf.cast(labels, outputs.dtype), outputs)  # Keras, too, casts the labels before it calls a loss
        counted = getattr(values, "_keras_mask", None)  # is false for a label that the loss ignores
        mask = counted if mask is None else mask if counted is None else tf.cast(mask, tf.bool) & tf.cast(counted, tf.bool)
        if mask is not None and values.shape.rank == mask.shape.rank:
            mask = tf.cast(mask, values.dtype)
            scale = tf.math.divide_no_nan(tf.cast(tf.size(mask), values.dtype), tf.reduce_sum(mask))
            values *= mask * (1.0 if self.total else scale)
        return values

    def _aligned(self, weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """The weights with as many axes as the values: (N,) and (N, 1) would otherwise broadcast to (N, N)."""
        missing = values.shape.rank - weights.shape.rank
        if missing == -1 and weights.shape[-1] == 1:
            return weights[..., 0]
        if missing < 0:
            raise ValueError(
                f"the weights have shape {list(weights.shape)}, but loss {self.name} gives numbers of shape "
                f"{list(values.shape)}; pass one weight per example."
            )
        return weights[(..., *[tf.newaxis] * missing)]


def output_loss(loss: Any) -> OutputLoss:
    """Wraps a `keras.losses.Loss`, the name of one, or a function (labels, outputs) -> numbers."""
    if isinstance(loss, keras.metrics.Metric) or (isinstance(loss, str) and "accuracy" in loss):
        raise TypeError(
            f"loss is the metric {_name(loss)}, which has no gradient; pass a loss, such as "
            f"'sparse_categorical_crossentropy', and the metric as metrics=[...]."
        )
    try:
        resolved = keras.losses.get(loss)
    except ValueError as error:
        raise ValueError(f"loss is {loss!r}, which Keras does not know: {error}") from None
    if isinstance(resolved, keras.losses.Loss):
        return _from_loss_object(resolved)
    if not callable(resolved):
        raise TypeError(f"loss is {loss!r}; pass a keras.losses.Loss, its name, or a function (labels, outputs) -> numbers.")
    return OutputLoss(_name(resolved), lambda labels, outputs: resolved(_match_rank(labels, outputs), outputs))


def _from_loss_object(loss: keras.losses.Loss) -> OutputLoss:
    settings = getattr(loss, "_fn_kwargs", {})
    name = type(loss).__name__
    if name in SPARSE | ONE_HOT | BINARY and settings.get("axis", -1) not in (-1, None):
        raise ValueError(f"loss {name} has axis={settings['axis']}; move the classes to the last axis.")
    if loss.reduction not in ("sum", "sum_over_batch_size", "mean", "mean_with_sample_weight"):
        raise ValueError(f"loss {name} has reduction={loss.reduction!r}; choose 'sum' or 'sum_over_batch_size'.")
    return OutputLoss(
        name,
        loss.call,  # loss(...) would cast to float32
        total=loss.reduction == "sum",
        from_logits=bool(settings.get("from_logits", False)),
        smoothing=float(settings.get("label_smoothing", 0.0)),
        by_weights=loss.reduction == "mean_with_sample_weight",
        ignored=settings.get("ignore_class"),
    )


NO_LOSS = OutputLoss("no loss", lambda labels, outputs: tf.zeros(tf.shape(outputs)[:1], outputs.dtype))
"""Of an output that is not trained."""


def _name(loss: Any) -> str:
    return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)


def _match_rank(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Adds or drops a last axis of size 1 of the labels: shapes (N,) and (N, 1) would broadcast to (N, N)."""
    if labels.shape.rank == outputs.shape.rank - 1 and outputs.shape[-1] == 1:
        return labels[..., None]
    if labels.shape.rank == outputs.shape.rank + 1 and labels.shape[-1] == 1:
        return labels[..., 0]
    return labels


class Losses(NamedTuple):
    """The losses of all outputs, in the order of `nest.flatten(outputs)`; a single one serves every output.

    Attributes:
      each: the losses.
      names: those of the outputs, if the model has several.
    """

    each: tuple[OutputLoss, ...]
    names: tuple[str, ...] | None = None

    @property
    def used(self) -> list[OutputLoss]:
        """The losses of the outputs that are trained."""
        return [loss for loss in self.each if loss is not NO_LOSS]

    def arranged(self, labels: Nest, outputs: Nest) -> list[Any]:
        """The labels of each output, in the order of `nest.flatten(outputs)`; an output without a loss needs none."""
        leaves = nest.flatten(outputs)
        each = self.per_output(len(leaves))
        if isinstance(labels, Mapping) and self.names is not None:
            trained = [name for name, loss in zip(self.names, each, strict=True) if loss is not NO_LOSS]
            if not set(trained) <= set(labels) <= set(self.names):
                raise ValueError(
                    f"the labels are a dict with {sorted(labels)}, but the model's outputs are {list(self.names)}; pass "
                    f"labels for {trained}."
                )
            return [labels.get(name, leaf) for name, leaf in zip(self.names, leaves, strict=True)]
        given = nest.flatten(labels)
        if len(given) != len(leaves) or len(self.each) not in (1, len(leaves)):
            raise ValueError(
                f"the model has {len(leaves)} output{'s' * (len(leaves) != 1)}, but there are labels "
                f"for {len(given)} and {len(self.each)} losses; pass the same number of each, in the same structure."
            )
        return given

    def per_output(self, count: int) -> tuple[OutputLoss, ...]:
        """One loss for each of `count` outputs."""
        return self.each * (count if len(self.each) == 1 else 1)

    def per_example(self, labels: Nest, outputs: Nest, of_outputs: Sequence[float] | None = None) -> tf.Tensor:
        """The sum of all losses, for each example; `of_outputs` has a factor for each output."""
        leaves = nest.flatten(outputs)
        triples = zip(self.per_output(len(leaves)), self.arranged(labels, outputs), leaves, strict=True)
        values = [one.of_examples(y, out) for one, y, out in triples]
        means = [tf.reduce_mean(v, axis=range(1, v.shape.rank)) for v in values]
        return tf.add_n([mean * (1.0 if of_outputs is None else of_outputs[i]) for i, mean in enumerate(means)])

    def __call__(
        self,
        labels: Nest,
        outputs: Nest,
        weights: tf.Tensor | None = None,
        smoothing: tf.Tensor | None = None,
        of_outputs: tf.Tensor | Sequence[float] | None = None,
    ) -> tf.Tensor:
        """The sum of all losses.

        `weights` and `of_outputs` have a factor for each example and each output; `smoothing` is the label smoothing, if it
        is a hyper.
        """
        label_leaves, leaves = self.arranged(labels, outputs), nest.flatten(outputs)
        each = self.per_output(len(leaves))
        if smoothing is not None:
            each = tuple(loss if loss is NO_LOSS else smoothed(loss, smoothing) for loss in each)
        values = [one(y, out, weights) for one, y, out in zip(each, label_leaves, leaves, strict=True)]
        if of_outputs is not None:
            values = [value * of_outputs[i] for i, value in enumerate(values)]
        return tf.add_n(values)


def losses(loss: Any, names: Sequence[str] | None = None) -> Losses:
    """Wraps one loss, or a list or dict with one loss for each output; an output with None is not trained.

    `names` are those of the outputs, in the order in which `nest.flatten` has them, if they are known.
    """
    order = tuple(names) if names is not None else tuple(sorted(loss)) if isinstance(loss, Mapping) else None
    if isinstance(loss, Mapping):
        assert order is not None
        if set(loss) != set(order):
            raise ValueError(
                f"loss is for outputs {sorted(loss)}, but the model's are {list(order)}; name each one, with None for an "
                f"output that is not trained."
            )
        loss = [loss[name] for name in order]
    if not isinstance(loss, list | tuple):
        return Losses((output_loss(loss),), order)
    return Losses(tuple(NO_LOSS if one is None else output_loss(one) for one in loss), order)


def bounded(every: Losses, first: float) -> Losses:
    """Losses whose cross-entropies l are replaced by b (1 - exp(-l / b)), so that a few wrong labels cannot dominate them.

    Otherwise one wrong label that a confident classifier contradicts costs more than it gains on many other examples. A loss
    that is not finite stays so. b is at least 1.5 times the first loss, the mean before training, so that losses above that
    one can be distinguished.
    """
    bound = max(BOUND, OF_FIRST * first) if math.isfinite(first) else BOUND
    each = [_bounded(one, bound) if one.name in SPARSE | ONE_HOT | BINARY else one for one in every.each]
    return every._replace(each=tuple(each))


def _bounded(loss: OutputLoss, bound: float) -> OutputLoss:
    def values(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        plain = loss.values(labels, outputs)
        values = tf.where(tf.math.is_finite(plain), -bound * tf.math.expm1(-plain / bound), plain)
        values._keras_mask = getattr(plain, "_keras_mask", None)  # which labels count
        return values

    return loss._replace(values=values)


def smoothed(loss: OutputLoss, smoothing: tf.Tensor) -> OutputLoss:
    """Cross-entropy with targets (1 - smoothing) one_hot + smoothing / classes.

    It uses `rf.cross_entropy`, because Keras's loss lacks the derivative with respect to the labels.
    """
    if loss.ignored is not None:
        raise ValueError(f"label_smoothing is a hyper, but the loss ignores class {loss.ignored}; use one of the two.")
    if loss.name not in SPARSE | ONE_HOT:
        raise ValueError(
            f"label_smoothing is a hyper, but the loss is {loss.name}; only SparseCategoricalCrossentropy and "
            f"CategoricalCrossentropy have labels to smooth, and rfho2 computes them itself: Keras's {loss.name} cannot be "
            f"differentiated with respect to its labels."
        )

    def values(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        classes = outputs.shape[-1]
        if loss.name in SPARSE:
            indices = tf.reshape(tf.cast(labels, tf.int32), tf.shape(outputs)[:-1])
            targets = tf.one_hot(indices, classes, dtype=outputs.dtype)
        else:
            targets = tf.cast(labels, outputs.dtype)
        targets = (1 - smoothing) * targets + smoothing / classes
        return cross_entropy(targets, outputs, loss.from_logits)

    return loss._replace(values=values)

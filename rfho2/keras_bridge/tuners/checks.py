"""Refuses a model, loss or labels that cannot be tuned, with a clear message before TensorFlow builds a graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Nest
from rfho2.core.warn import warn
from rfho2.keras_bridge.training.keras_training import ANY_SEED, KerasTraining, current_params, losses_of
from rfho2.keras_bridge.training.losses import BINARY, ELEMENTWISE, ONE_HOT, SPARSE, Losses, OutputLoss
from rfho2.keras_bridge.tuners.epochs import EVALUATED, evaluate
from rfho2.keras_bridge.wrapping.model import EXAMPLES, Params, check_derivatives


def check_training(
    model: keras.Model,
    training: KerasTraining,
    examples: tuple[Nest, ...],
    labels: Nest | None = None,
    check: bool = True,
    names: tuple[str, str] = ("validation_data", "y"),
    objective: Losses | None = None,
) -> None:
    """Checks the model's second derivatives, if `check`, the kind of the labels, and that the loss has a gradient.

    So has the objective, if it is another loss.

    The model is tried on the first few examples; their labels and the further `labels` are all checked.
    """
    few = nest.map(lambda a: a[:EXAMPLES], examples)
    params = current_params(model, training.model.params)
    if check:
        check_derivatives(training.model.apply, params, few[0], model.name)
    outputs, penalties = training.model.apply(params, few[0], seed=tf.constant(ANY_SEED), return_losses=True)
    regularised = float(penalties) != 0 or any(variable.regularizer for variable in model.trainable_variables)
    if "regularization" in training.tunables.start and not regularised:
        raise ValueError(
            f"hyper 'regularization' multiplies the layers' regularisers, but model '{model.name}' has none. Build layers "
            f"with kernel_regularizer='l2', or tune 'weight_decay'."
        )
    for y, name in ((examples[1], names[0]), (labels, names[1])):
        if y is not None:
            check_labels(training.loss, y, outputs, name)
    _check_probabilities(training.loss, outputs)
    _check_gradient(model, training, params, few)
    if objective is not None:
        with about("objective"):
            check_labels(objective, examples[1], outputs, names[0])
            _check_gradient(model, training._replace(loss=objective), params, few)


def objective_of(model: keras.Model, objective: Any) -> Losses | None:
    """The losses that an objective names, if there is one."""
    with about("objective"):
        return None if objective is None else losses_of(model, objective)


@contextlib.contextmanager
def about(argument: str) -> Iterator[None]:
    """Puts the name of an argument before the messages of errors."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise (TypeError if isinstance(error, TypeError) else ValueError)(f"{argument}: {error}") from error


def check_metrics(model: keras.Model, examples: tuple[Nest, ...]) -> None:
    """Refuses metrics that Keras cannot compute, now rather than after the first epoch."""
    try:
        evaluate(model, nest.map(lambda a: a[:EVALUATED], examples))
    except Exception as error:
        raise ValueError(
            f"model '{model.name}' cannot be evaluated on the validation data with its loss and metrics: "
            f"{str(error).splitlines()[0][:300]}"
        ) from error


def _check_gradient(model: keras.Model, training: KerasTraining, params: Params, examples: tuple[Nest, ...]) -> None:
    """Refuses a loss that does not depend on the params, or that depends on weights that are not among them."""
    with tf.GradientTape() as tape:
        tape.watch(params)
        value = training.objective(params, {}, examples)
    _check_variables(model, tape.watched_variables())
    if all(g is None for g in nest.flatten(tape.gradient(value, params))):
        names = ", ".join(loss.name for loss in training.loss.used)
        raise ValueError(
            f"loss {names} has no gradient with respect to the model's weights: a metric such as accuracy is piecewise "
            f"constant. Pass a differentiable loss, and the metric as metrics=[...]."
        )


def _check_variables(model: keras.Model, accessed: Sequence[tf.Variable]) -> None:
    """Refuses trainable variables that the model reads directly, because the params cannot take their place."""
    frozen = {id(variable.value) for variable in model.non_trainable_variables}
    lost = [variable.name for variable in accessed if id(variable) not in frozen]
    if lost:
        raise ValueError(
            f"model '{model.name}' reads its variable '{lost[0]}' directly (a TFSMLayer or a layer with a tf.Variable "
            f"does), and would never train it. Use Keras layers and add_weight, or freeze it: layer.trainable = False."
        )


def _fits(label: Sequence[int], output: Sequence[int | None]) -> bool:
    """Whether a label has the shape of an output, but for axes of size 1, or of unknown size."""
    pair = [[size for size in shape if size != 1] for shape in (label, output)]
    return len(pair[0]) == len(pair[1]) and all(b is None or a == b for a, b in zip(*pair, strict=True))


def check_labels(loss: Losses, labels: Nest, outputs: Nest, argument: str = "y") -> None:
    """Refuses labels of the wrong kind for the loss and the outputs, before Keras broadcasts them to something wrong."""
    leaves = nest.flatten(outputs)
    for one, y, out in zip(loss.per_output(len(leaves)), loss.arranged(labels, outputs), leaves, strict=True):
        _check_output_labels(one, np.asarray(y), out, argument)


def _check_probabilities(loss: Losses, outputs: Nest) -> None:
    """Warns of logits where a loss expects probabilities, because Keras clips them without a word."""
    leaves = nest.flatten(outputs)
    for one, out in zip(loss.per_output(len(leaves)), leaves, strict=True):
        if one.from_logits or one.name not in SPARSE | ONE_HOT | BINARY:
            continue
        least, largest = float(tf.reduce_min(out)), float(tf.reduce_max(out))
        if least < 0 or (largest > 1.001 and one.name not in ONE_HOT):  # Keras divides one-hot losses' outputs by their sum
            last = "sigmoid" if one.name in BINARY else "softmax"
            warn(
                f"loss {one.name} expects probabilities, but the model's outputs range from {least:.3g} to {largest:.3g}. "
                f"Pass the loss with from_logits=True, or end the model with a {last}."
            )


def _check_output_labels(loss: OutputLoss, y: np.ndarray, outputs: tf.Tensor, argument: str) -> None:
    classes = outputs.shape[-1] if outputs.shape.rank else 1
    if loss.name in ONE_HOT and (y.ndim != outputs.shape.rank or y.shape[-1] != classes):
        raise ValueError(
            f"{argument}: loss {loss.name} needs one-hot labels of {classes} classes, but the labels have shape {y.shape} "
            f"({y.dtype}). Use SparseCategoricalCrossentropy, or keras.utils.to_categorical(y, {classes})."
        )
    if loss.name in ELEMENTWISE and not _fits(y.shape[1:], outputs.shape[1:]):
        raise ValueError(
            f"{argument}: loss {loss.name} compares labels and outputs entry by entry, but a label has shape "
            f"{list(y.shape[1:])} and an output {list(outputs.shape[1:])}. Give the last layer as many units as a label has "
            f"numbers, or, if the labels are one-hot, use another loss."
        )
    if loss.name not in SPARSE:
        return
    if y.ndim == outputs.shape.rank and y.shape[-1] != 1:
        raise ValueError(
            f"{argument}: loss {loss.name} needs one class index per example, but the labels have shape {y.shape}. Use "
            f"CategoricalCrossentropy for one-hot labels, or y.argmax(-1)."
        )
    y = y[y != loss.ignored]
    if y.size and not (y.min() >= 0 and y.max() < classes):
        raise ValueError(
            f"{argument}: the labels range from {y.min()} to {y.max()}, but the model has {classes} outputs, for classes 0 "
            f"to {classes - 1}."
        )

"""The inner problem of a Keras model: its loss with the hypers in their places, and the objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics import Dynamics
from rfho2.dynamics.base import Loss
from rfho2.keras_bridge.losses import Losses, check_labels, losses
from rfho2.keras_bridge.model import EXAMPLES, KerasModel, Params, check_model, from_keras
from rfho2.keras_bridge.tunables import KNOBS, PER_LAYER, SETTINGS, Knobs, knobs


class Training(NamedTuple):
    """A Keras model to train.

    Attributes:
      model: as pure functions.
      loss: of labels and outputs.
      knobs: the hypers.
      optimizer: a key of `knobs.SETTINGS`.
      fixed: values of the optimiser's settings that are no hypers.
      layers: for each param, its layer's number, if layers have learning rates of their own.

    It is made by `train_with`.
    """

    model: KerasModel
    loss: Losses
    knobs: Knobs
    optimizer: str
    fixed: dict[str, float]
    layers: dict[str, int] | None = None

    def value(self, params: Params, hypers: Hypers, batch: Nest) -> tf.Tensor:
        """What training minimises; the batch is ((x, y), seed)."""
        (x, y), seed = batch
        known = self.knobs.outside(hypers)
        outputs, penalties = self.model.apply(params, x, training=True, seed=seed, return_losses=True)
        value = self.loss(y, outputs, None, known.get("label_smoothing"), known.get("loss_weights"))
        if "weight_decay" in known and self.optimizer != "adamw":
            value += self._decay(params, known["weight_decay"])
        return value + known.get("regularization", 1.0) * penalties

    def _decay(self, params: Params, rate: tf.Tensor) -> tf.Tensor:
        """rate / 2 |kernels|^2; biases and scales are left alone."""
        layers = self.layers or {}
        rates = {path: rate[layers[path]] if layers else rate for path in params}
        kernels = {path: p for path, p in params.items() if decayed(path, p)}
        terms = [0.5 * rates[path] * tf.reduce_sum(tf.square(p)) for path, p in kernels.items()]
        return tf.add_n([0.0 * tf.reduce_sum(rate), *terms])

    def objective(self, params: Params, hypers: Hypers, batch: Nest) -> tf.Tensor:
        """What the hypers minimise: the plain loss, without penalties, of outputs as in use."""
        x, y = batch
        return self.loss(y, self.model.apply(params, x, training=False))

    def dynamics(self, loss: Loss | None = None) -> Dynamics:
        """The optimiser, whose settings are hypers or numbers.

        Args:
          loss: instead of `value`.
        """
        make, settings = SETTINGS[self.optimizer]

        def setting(name: str) -> Callable[[Hypers, tf.Tensor], Any]:
            def at(hypers: Hypers, t: tf.Tensor) -> Any:
                value = self.knobs.outside({name: hypers[name]})[name]
                each = {path: value[layer] for path, layer in (self.layers or {}).items()} if name in PER_LAYER else {}
                if name == "weight_decay":
                    return {
                        path: each.get(path, value) if decayed(path, p) else 0.0 for path, p in self.model.params.items()
                    }
                return each or value

            return at

        chosen = {name: setting(name) if name in self.knobs.start else self.fixed[name] for name in settings}
        return make(loss or self.value, **chosen)


def decayed(path: str, param: tf.Tensor) -> bool:
    """Whether weight decay is for this param: kernels and embeddings, not biases and scales."""
    return param.shape.rank > 1 and "bias" not in path.rsplit("/", 1)[-1]


def train_with(
    model: keras.Model,
    loss: Any,
    hypers: Sequence[str] | Mapping[str, Any],
    optimizer: str,
    per_layer: bool,
    ranges: Mapping[str, tuple[float, float]] | None,
    batch_norm: str,
    fixed: Mapping[str, float] | None = None,
) -> Training:
    """From what a user asks for; `check` looks at the data.

    Args:
      fixed: settings of the optimiser that are no hypers and have other values than usual.
    """
    pure = from_keras(model, batch_norm=batch_norm, check=False)
    layers = layers_of(model, pure.params) if per_layer else {}
    names = {number: path.rsplit("/", 1)[0] for path, number in layers.items()}
    outputs = list(getattr(model, "output_names", None) or ["output"])
    chosen = knobs(hypers, ranges, optimizer, [names[i] for i in sorted(names)], outputs)
    settings = {name: KNOBS[name].start for name in SETTINGS[optimizer][1]} | dict(fixed or {})
    listed = isinstance(getattr(model, "_outputs_struct", None), list | tuple)
    return Training(pure, losses(loss, outputs if listed else None), chosen, optimizer, settings, layers or None)


def layers_of(model: keras.Model, params: Params) -> dict[str, int]:
    """For each param, the number of the layer that owns it, among those that have params, in the model's order."""
    owners: dict[int, int] = {}
    for number, layer in enumerate(model._flatten_layers(include_self=False)):
        if not list(layer._flatten_layers(include_self=False)):  # no other layer inside
            owners |= {id(variable): number for variable in layer.trainable_variables}
    found = [owners.get(id(variable), -1) for variable in model.trainable_variables]
    numbers = sorted(set(found))
    return {path: numbers.index(number) for path, number in zip(params, found, strict=True)}


def values_of(model: keras.Model, params: Params) -> Params:
    """The model's weights as they are now, with the paths of `params`."""
    return {path: tf.identity(v.value) for path, v in zip(params, model.trainable_variables, strict=True)}


def check(model: keras.Model, training: Training, examples: tuple[Nest, Nest], labels: Nest | None = None) -> None:
    """What is wrong with model, loss or labels is said here, before a graph is built, and not by TensorFlow.

    Args:
      examples: (x, y), of which a few are tried, and all labels looked at.
      labels: more of them.
    """
    few = nest.map(lambda a: a[:EXAMPLES], examples)
    params = values_of(model, training.model.params)
    check_model(training.model.apply, params, few[0], model.name)
    outputs = training.model.apply(params, few[0])
    for y in (examples[1], labels):
        if y is not None:
            check_labels(training.loss, y, outputs)
    check_gradient(training, params, few)


def check_gradient(training: Training, params: Params, examples: tuple[Nest, Nest]) -> None:
    """Refuses a loss that the params do not reach."""
    with tf.GradientTape() as tape:
        tape.watch(params)
        value = training.objective(params, {}, examples)
    if all(g is None for g in nest.flatten(tape.gradient(value, params))):
        names = ", ".join(one.name for one in training.loss.each)
        raise ValueError(
            f"loss {names} has no gradient by the model's weights: a metric such as accuracy counts, it does not slope. "
            f"Pass a differentiable loss, and the metric as metrics=[...]."
        )

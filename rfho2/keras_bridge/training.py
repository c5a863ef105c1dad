"""The training of a Keras model as an inner problem: loss and optimiser with the hypers in place, and the objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Dynamics, Loss
from rfho2.keras_bridge.losses import Losses, losses
from rfho2.keras_bridge.model import KerasModel, from_keras
from rfho2.keras_bridge.pure_model import Params
from rfho2.keras_bridge.tunables import OPTIMIZERS, PER_LAYER, TUNABLES, Tunables, select_tunables


class KerasTraining(NamedTuple):
    """A Keras model with a loss, an optimiser and hypers; `make_training` builds one.

    Attributes:
      model: the model as pure functions.
      loss: the losses of all outputs.
      tunables: the hypers.
      optimizer: a key of `tunables.OPTIMIZERS`.
      fixed: values of the optimiser's settings that are not hypers.
      layers: the layer number of each param, if layers have separate learning rates.
    """

    model: KerasModel
    loss: Losses
    tunables: Tunables
    optimizer: str
    fixed: dict[str, float]
    layers: dict[str, int] | None = None

    def training_loss(self, params: Params, hypers: Hypers, batch: Nest) -> tf.Tensor:
        """What training minimises; the batch is ((x, y), seed)."""
        (x, y), seed = batch
        values = self.tunables.to_user(hypers)
        outputs, penalties = self.model.apply(params, x, training=True, seed=seed, return_losses=True)
        loss = self.loss(y, outputs, None, values.get("label_smoothing"), values.get("loss_weights"))
        if "weight_decay" in values and self.optimizer != "adamw":
            loss += self._decay(params, values["weight_decay"])
        return loss + values.get("regularization", 1.0) * penalties

    def _decay(self, params: Params, rate: tf.Tensor) -> tf.Tensor:
        """rate / 2 |kernels|^2; biases and scales do not decay."""
        layers = self.layers or {}
        rates = {path: rate[layers[path]] if layers else rate for path in params}
        kernels = {path: p for path, p in params.items() if _decays(path, p)}
        terms = [0.5 * rates[path] * tf.reduce_sum(tf.square(p)) for path, p in kernels.items()]
        return tf.add_n([0.0 * tf.reduce_sum(rate), *terms])

    def objective(self, params: Params, hypers: Hypers, batch: Nest) -> tf.Tensor:
        """What the hypers minimise: the plain loss, without penalties, of the outputs in inference mode."""
        x, y = batch
        return self.loss(y, self.model.apply(params, x, training=False))

    def dynamics(self, loss: Loss | None = None) -> Dynamics:
        """The optimiser, whose settings are hypers or constants.

        Args:
          loss: replaces `training_loss`.
        """
        make, settings = OPTIMIZERS[self.optimizer]
        chosen = {name: self._setting(name) if name in self.tunables.start else self.fixed[name] for name in settings}
        return make(loss or self.training_loss, **chosen)

    def _setting(self, name: str) -> Callable[[Hypers, tf.Tensor], Any]:
        """A tuned setting as the function (hypers, t) -> one value, or one value per param."""

        def setting(hypers: Hypers, t: tf.Tensor) -> Any:
            value = self.tunables.to_user({name: hypers[name]})[name]
            layers = (self.layers or {}) if name in PER_LAYER else {}
            per_param = {path: value[layer] for path, layer in layers.items()}
            if name == "weight_decay":
                params = self.model.params
                return {path: per_param.get(path, value) if _decays(path, p) else 0.0 for path, p in params.items()}
            return per_param or value

        return setting


def _decays(path: str, param: tf.Tensor) -> bool:
    """Whether weight decay applies to this param: to kernels and embeddings, not to biases and scales."""
    return param.shape.rank > 1 and "bias" not in path.rsplit("/", 1)[-1]


def make_training(
    model: keras.Model,
    loss: Any,
    hypers: Sequence[str] | Mapping[str, Any],
    optimizer: str,
    per_layer: bool,
    ranges: Mapping[str, tuple[float, float]] | None,
    batch_norm: str,
    fixed: Mapping[str, float] | None = None,
) -> KerasTraining:
    """Builds the training from the user's arguments; `checks.check_training` checks it on data.

    Args:
      fixed: optimiser settings that are not hypers and differ from their defaults.
    """
    pure = from_keras(model, batch_norm=batch_norm, check=False)
    layers = layers_of(model, pure.params) if per_layer else {}
    names = {number: path.rsplit("/", 1)[0] for path, number in layers.items()}
    outputs = list(getattr(model, "output_names", None) or ["output"])
    tunables = select_tunables(hypers, ranges, optimizer, [names[i] for i in sorted(names)], outputs)
    settings = {name: TUNABLES[name].start for name in OPTIMIZERS[optimizer][1]} | dict(fixed or {})
    listed = isinstance(getattr(model, "_outputs_struct", None), list | tuple)
    return KerasTraining(pure, losses(loss, outputs if listed else None), tunables, optimizer, settings, layers or None)


def layers_of(model: keras.Model, params: Params) -> dict[str, int]:
    """The number of the layer that owns each param, counting the layers with params in the model's order."""
    owners: dict[int, int] = {}
    for number, layer in enumerate(model._flatten_layers(include_self=False)):
        if not list(layer._flatten_layers(include_self=False)):  # contains no other layer
            owners |= {id(variable): number for variable in layer.trainable_variables}
    owner_of_param = [owners.get(id(variable), -1) for variable in model.trainable_variables]
    numbers = sorted(set(owner_of_param))
    return {path: numbers.index(number) for path, number in zip(params, owner_of_param, strict=True)}


def current_params(model: keras.Model, params: Params) -> Params:
    """The model's current weights, under the paths of `params`."""
    return {path: tf.identity(v.value) for path, v in zip(params, model.trainable_variables, strict=True)}

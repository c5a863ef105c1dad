"""The training of a Keras model as an inner problem: loss and optimiser with the hypers in place, and the objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Batches, Hypers, Nest
from rfho2.core.warn import warn
from rfho2.dynamics.base import Dynamics, Loss
from rfho2.keras_bridge.training.losses import Losses, losses
from rfho2.keras_bridge.training.optimizers import Optimizer, resolve_optimizer, to_keras
from rfho2.keras_bridge.training.tunables import OPTIMIZERS, Tunables, select_tunables, separate_hypers
from rfho2.keras_bridge.training.weight_constraints import Projection, constrained, projections
from rfho2.keras_bridge.wrapping.model import KerasModel, from_keras
from rfho2.keras_bridge.wrapping.pure_model import Params, UnseededError

ANY_SEED = (0, 0)


class Seeded(NamedTuple):
    """Validation examples, and a seed for layers that draw random numbers in inference too."""

    examples: Nest
    seed: tf.Tensor


class KerasTraining(NamedTuple):
    """A Keras model with a loss, an optimiser and hypers; `make_training` builds one.

    Attributes:
      model: the model as pure functions.
      loss, tunables, optimizer: the losses of all outputs, the hypers, and the optimiser with its settings.
      projections: the constraints on weights, by path.
      loss_weights: a factor for each output, if the model was compiled with them.
      layers: the layer number of each param, if layers have separate hypers.
    """

    model: KerasModel
    loss: Losses
    tunables: Tunables
    optimizer: Optimizer
    projections: dict[str, Projection]
    loss_weights: list[float] | None = None
    layers: dict[str, int] | None = None

    def training_loss(self, params: Params, hypers: Hypers, batch: Nest) -> tf.Tensor:
        """The loss that training minimises; the batch is (examples, seed)."""
        return self.loss_and_outputs(params, hypers, batch)[0]

    def loss_and_outputs(self, params: Params, hypers: Hypers, batch: Nest) -> tuple[tf.Tensor, Nest]:
        """`training_loss`, and the outputs of the model from which it was computed."""
        (x, y, *weights), seed = batch
        values = self.tunables.to_user(hypers)
        outputs, penalties = self.model.apply(params, x, training=True, seed=seed, return_losses=True)
        factors = weights[0] if weights else None
        loss = self.loss(y, outputs, factors, values.get("label_smoothing"), values.get("loss_weights", self.loss_weights))
        if "weight_decay" in values and self.optimizer.name != "adamw":
            loss += self._decay(params, values["weight_decay"])
        return loss + values.get("regularization", 1.0) * penalties, outputs

    def _decay(self, params: Params, rate: tf.Tensor) -> tf.Tensor:
        """rate / 2 |kernels|^2; biases and scales do not decay."""
        layers = self._layers_of("weight_decay")
        rates = {path: rate[layers[path]] if layers else rate for path in params}
        kernels = {path: p for path, p in params.items() if _decays(path, p)}
        terms = [0.5 * rates[path] * tf.reduce_sum(tf.square(p)) for path, p in kernels.items()]
        return tf.add_n([0.0 * tf.reduce_sum(rate), *terms])

    def _layers_of(self, name: str) -> dict[str, int]:
        """The layer number of each param, if layers have their own value of this hyper."""
        return (self.layers or {}) if name in self.tunables.labels else {}

    def objective(self, params: Params, hypers: Hypers, batch: Nest) -> tf.Tensor:
        """The objective of the hypers: the plain loss, without penalties, of the outputs in inference mode."""
        examples, seed = batch if isinstance(batch, Seeded) else (batch, ANY_SEED)
        x, y, *weights = examples
        return self.plain_loss(y, self.model.apply(params, x, training=False, seed=tf.convert_to_tensor(seed)), *weights)

    def plain_loss(self, y: Nest, outputs: Nest, weights: tf.Tensor | None = None) -> tf.Tensor:
        """The loss that Keras reports, with the weights of outputs given at compilation, unless those are tuned."""
        return self.loss(y, outputs, weights, None, None if "loss_weights" in self.tunables.start else self.loss_weights)

    def dynamics(self, loss: Loss | None = None) -> Dynamics:
        """The optimiser, whose settings are hypers or constants; `loss` replaces `training_loss`."""
        make, settings = OPTIMIZERS[self.optimizer.name]
        tuned = {name: self._setting(name) for name in settings if name in self.tunables.start}
        return constrained(make(loss or self.training_loss, **(self.optimizer.fixed | tuned)), self.projections)

    def _setting(self, name: str) -> Callable[[Hypers, tf.Tensor], Any]:
        """A tuned setting as the function (hypers, t) -> one value, or one value per param."""

        def setting(hypers: Hypers, t: tf.Tensor) -> Any:
            value = self.tunables.to_user({name: hypers[name]})[name]
            per_param = {path: value[layer] for path, layer in self._layers_of(name).items()}
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
    optimizer: Any,
    per_layer: bool | str | Sequence[str],
    ranges: Mapping[str, tuple[float, float]] | None,
    batch_norm: str,
) -> KerasTraining:
    """Builds the training from the user's arguments; `checks.check_training` checks it on data."""
    refuse_overrides(model)
    chosen = resolve_optimizer(optimizer, model)
    pure = from_keras(model, batch_norm=batch_norm, check=False)
    separate = separate_hypers(per_layer, hypers)
    layers = layers_of(model, pure.params) if separate else {}
    names = {number: path.rsplit("/", 1)[0] for path, number in layers.items()}
    outputs = list(getattr(model, "output_names", None) or ["output"])
    factors = None
    if loss is None:
        factors = compiled_loss_weights(model, outputs)
        if not model.compiled or model.loss is None:
            raise ValueError(f"loss is None, and model '{model.name}' is not compiled with one; pass loss=.")
        loss = model.loss
    settings = dict(chosen.settings) | ({} if factors is None else {"loss_weights": factors})
    structure = getattr(model, "_outputs_struct", None)
    listed = outputs if isinstance(structure, list | tuple) else None
    resolved = losses(loss, sorted(structure) if isinstance(structure, Mapping) else listed)
    smoothings = {one.smoothing for one in resolved.used}
    settings |= {"label_smoothing": max(smoothings)} if len(smoothings) == 1 and max(smoothings) else {}
    labels = [names[i] for i in sorted(names)]
    tunables = select_tunables(hypers, ranges, chosen.name, labels, outputs, settings, separate)
    constraints = projections(dict(zip(pure.params, model.trainable_variables, strict=True)))
    return KerasTraining(pure, resolved, tunables, chosen, constraints, factors, layers or None)


def seeded_validation(training: KerasTraining, validation: Batches, seed: int) -> Batches:
    """The validation batches, with a seed for each hyper-iteration if the model draws random numbers in inference too."""
    one_example = nest.map(lambda leaf: leaf[:1], validation(tf.constant(0))[0])
    try:
        training.model.apply(training.model.params, one_example)
    except UnseededError:
        return lambda k: Seeded(validation(k), tf.stack([tf.constant(seed, tf.int32), k]))
    return validation


def compile_with(model: keras.Model, training: KerasTraining, loss: Any, metrics: Any) -> None:
    """Compiles a model that is not compiled, so that Keras can evaluate it and train it further."""
    if model.compiled:
        if metrics:
            warn("metrics are ignored, because the model is compiled already; pass them to model.compile.")
        return
    listed = [metrics] if isinstance(metrics, str | keras.metrics.Metric) else metrics
    model.compile(optimizer=to_keras(training.optimizer), loss=loss, metrics=listed)


def compiled_loss_weights(model: keras.Model, outputs: Sequence[str]) -> list[float] | None:
    """The factors of the outputs that the model was compiled with, in the order of the outputs."""
    weights = getattr(getattr(model, "_compile_loss", None), "_user_loss_weights", None)
    if weights is None:
        return None
    structure = getattr(model, "_outputs_struct", None)
    names = sorted(structure) if isinstance(structure, Mapping) else list(outputs)
    if isinstance(weights, Mapping):
        if not set(weights) <= set(names):
            raise ValueError(f"loss_weights has {sorted(weights)}, but the model's outputs are {names}; compile it again.")
        return [float(weights.get(name, 1.0)) for name in names]
    if not isinstance(weights, list | tuple):
        return [float(weights)] * len(names)
    if len(weights) != len(names):
        raise ValueError(f"loss_weights has {len(weights)} factors for {len(names)} outputs; compile the model again.")
    return [float(factor) for factor in weights]


def refuse_overrides(model: keras.Model) -> None:
    """Refuses a model with a custom training step, which rfho2 would not follow."""
    for name in ("train_step", "compute_loss"):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise ValueError(
                f"model '{model.name}' ({type(model).__name__}) has its own {name}, which rfho2 does not call, so the "
                f"training would differ from Keras's. Move what it computes into a loss or a layer (add_loss), or use "
                f"rf.from_keras and write the loss yourself."
            )


def layers_of(model: keras.Model, params: Params) -> dict[str, int]:
    """The number of the layer that owns each param, counting the layers with params in the order of the model's weights."""
    owners: dict[int, int] = {}
    for number, layer in enumerate(model._flatten_layers(include_self=False)):
        if not list(layer._flatten_layers(include_self=False)):  # contains no other layer
            owners |= {id(variable): number for variable in layer.trainable_variables}
    owner_of_param = [owners.get(id(variable), -1) for variable in model.trainable_variables]
    numbers = list(dict.fromkeys(owner_of_param))  # _flatten_layers lists the layers of a submodel in reverse order
    return {path: numbers.index(number) for path, number in zip(params, owner_of_param, strict=True)}


def current_params(model: keras.Model, params: Params) -> Params:
    """The model's current weights, under the paths of `params`."""
    return {path: tf.identity(v.value) for path, v in zip(params, model.trainable_variables, strict=True)}

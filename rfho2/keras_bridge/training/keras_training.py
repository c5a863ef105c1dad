"""The training of a Keras model as an inner problem: loss and optimiser with the hypers in place, and the objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Batches, Hypers, Nest
from rfho2.core.warn import warn
from rfho2.dynamics.accumulation import accumulated
from rfho2.dynamics.averaging import averaged
from rfho2.dynamics.base import Dynamics, Loss, OwnGradient, Setting, gradient
from rfho2.dynamics.clipping import clipped
from rfho2.dynamics.decay import with_decay
from rfho2.dynamics.knots import with_knots
from rfho2.keras_bridge.training.keras_facts import check_kind, compiled_loss_weights, layers_of
from rfho2.keras_bridge.training.losses import Losses, losses
from rfho2.keras_bridge.training.optimizers import Optimizer, resolve_optimizer, to_keras
from rfho2.keras_bridge.training.schedules import peak, value_at
from rfho2.keras_bridge.training.tunables import OPTIMIZERS, Tunables, select_tunables, separate_hypers
from rfho2.keras_bridge.training.weight_constraints import Projection, constrained, projections
from rfho2.keras_bridge.wrapping.model import KerasModel, from_keras
from rfho2.keras_bridge.wrapping.pure_model import Params, UnseededError

ANY_SEED = (0, 0)
DECAYS = ("weight_decay", "adam_weight_decay")


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
      undecayed: paths of the params that the optimiser's weight decay leaves alone.
      knots: the hypers that change in the course of the training, which has so many `steps`.
    """

    model: KerasModel
    loss: Losses
    tunables: Tunables
    optimizer: Optimizer
    projections: dict[str, Projection]
    loss_weights: list[float] | None = None
    layers: dict[str, int] | None = None
    undecayed: frozenset[str] = frozenset()
    knots: frozenset[str] = frozenset()
    steps: int = 0

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
        if "weight_decay" in values and not self.optimizer.decoupled:
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
        optimizer, loss = self.optimizer, loss or self.training_loss
        if optimizer.accumulation > 1:
            dynamics = accumulated(self._steps_of_optimizer, loss, optimizer.accumulation)
        else:
            dynamics = self._steps_of_optimizer(loss)
        if optimizer.ema_momentum is not None:
            dynamics = averaged(dynamics, optimizer.ema_momentum, first=optimizer.accumulation)
        return with_knots(dynamics, self.knots, self.steps) if self.knots else dynamics

    def _steps_of_optimizer(self, loss: Loss) -> Dynamics:
        """One step for each call, with clipping, weight decay and constraints, in the order of Keras."""
        make, _ = OPTIMIZERS[self.optimizer.name]
        settings: dict[str, Any] = self.optimizer.fixed
        settings |= {name: self._setting(name) for name in self.optimizer.tunable if name in self.tunables.start}
        if self.optimizer.decays is not None:
            constant = [name for name in DECAYS if name in settings and not callable(settings[name])]
            settings |= {name: self._decay_by_path(settings[name]) for name in constant}
        loss = clipped(loss, **self.optimizer.clipping) if self.optimizer.clipping else loss
        return constrained(self._scheduled(make, loss, settings | dict(self.optimizer.options)), self.projections)

    def _scheduled(self, make: Callable[..., Dynamics], loss: Loss, settings: dict[str, Any]) -> Dynamics:
        """The optimiser, with the learning rate times the schedule, if there is one."""
        learning_rate, has_knots = settings["learning_rate"], "learning_rate" in self.knots
        if self.optimizer.schedule is None and not has_knots:
            return make(loss, **settings)
        rate = self._rate_times_schedule(learning_rate)
        if self.optimizer.name not in ("momentum", "nesterov"):
            return make(loss, **{**settings, "learning_rate": rate})
        # Keras's velocity contains the rates of earlier steps, ours only the gradients: so what changes scales those.
        decay = settings.pop("weight_decay", 0.0)
        scale, constant = (rate, 1.0) if has_knots else (self._rate_times_schedule(1.0), learning_rate)
        scaled = OwnGradient(loss, _scaled_gradient(loss, scale))
        return with_decay(make(scaled, **{**settings, "learning_rate": constant}), rate, decay)

    def _scheduled_rate(self, t: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """The rate of the schedule at a step of the optimiser, or 1; a schedule counts batches, as in Keras."""
        optimizer = self.optimizer
        if optimizer.schedule is None:
            return tf.ones([], dtype)
        step = optimizer.first_step + optimizer.accumulation * t + (optimizer.accumulation - 1)
        return tf.cast(value_at(optimizer.schedule, step), dtype)

    def _rate_times_schedule(self, factor: Any) -> Callable[[Hypers, tf.Tensor], Any]:
        """The learning rate as a setting: the factor, a number or a tuned setting, times the schedule."""

        def rate(hypers: Hypers, t: tf.Tensor) -> Any:
            value = factor(hypers, t) if callable(factor) else factor
            return nest.map(lambda f: f * self._scheduled_rate(t, tf.convert_to_tensor(f).dtype), value)

        return rate

    def _decay_by_path(self, decay: float) -> Setting:
        """A constant decay of those params that it applies to."""
        undecayed = self.undecayed
        return lambda hypers, t: {path: 0.0 if path in undecayed else decay for path in self.model.params}

    def _setting(self, name: str) -> Callable[[Hypers, tf.Tensor], Any]:
        """A tuned setting as the function (hypers, t) -> one value, or one value per param."""

        def setting(hypers: Hypers, t: tf.Tensor) -> Any:
            value = self.tunables.to_user({name: hypers[name]})[name]
            per_param = {path: value[layer] for path, layer in self._layers_of(name).items()}
            if name == "weight_decay":
                decaying = {path for path, p in self.model.params.items() if _decays(path, p)} - self.undecayed
                return {path: per_param.get(path, value) if path in decaying else 0.0 for path in self.model.params}
            return per_param or value

        return setting

    def named(self, hypers: Hypers, step: int) -> dict[str, float]:
        """Every tuned number by name; with a schedule, the learning rate is that of a step, and its factor follows."""
        numbers = self.tunables.named(hypers)
        if self.optimizer.schedule is None:
            return numbers
        rate = float(value_at(self.optimizer.schedule, tf.constant(self.optimizer.first_step + step)))
        factors = {name: value for name, value in numbers.items() if name.partition("/")[0] == "learning_rate"}
        named = {name.replace("learning_rate", "learning_rate_factor", 1): value for name, value in factors.items()}
        return {**numbers, **{name: rate * value for name, value in factors.items()}, **named}


def _scaled_gradient(loss: Loss, factor: Callable[[Hypers, tf.Tensor], tf.Tensor]) -> Callable[..., Nest]:
    def scaled(params: Nest, hypers: Hypers, batch: Nest, t: tf.Tensor) -> Nest:
        g = gradient(loss, params, hypers, batch, t)
        return nest.map(lambda g: g * tf.cast(factor(hypers, t), g.dtype), g)

    return scaled


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
    knots: Mapping[str, int] = MappingProxyType({}),
    steps: int = 0,
) -> KerasTraining:
    """Builds the training from the user's arguments; `checks.check_training` checks it on data."""
    check_kind(model)
    chosen = resolve_optimizer(optimizer, model)
    pure = from_keras(model, batch_norm=batch_norm, check=False)
    separate = separate_hypers(per_layer, hypers)
    layers = layers_of(model, pure.params) if separate else {}
    names = {number: path.rsplit("/", 1)[0] for path, number in layers.items()}
    outputs = _output_names(model)
    factors = None
    if loss is None:
        factors = compiled_loss_weights(model, outputs)
        if not model.compiled or model.loss is None:
            raise ValueError(f"loss is None, and model '{model.name}' is not compiled with one; pass loss=.")
        loss = model.loss
    settings = dict(chosen.settings) | ({} if factors is None else {"loss_weights": factors})
    resolved = losses_of(model, loss)
    smoothings = {one.smoothing for one in resolved.used}
    settings |= {"label_smoothing": max(smoothings)} if len(smoothings) == 1 and max(smoothings) else {}
    labels = [names[i] for i in sorted(names)]
    highest = None if chosen.schedule is None else peak(chosen.schedule)
    tunables = select_tunables(hypers, ranges, chosen.name, labels, outputs, settings, separate, highest, knots)
    variables = dict(zip(pure.params, model.trainable_variables, strict=True))
    undecayed = frozenset(path for path, v in variables.items() if chosen.decays is not None and not chosen.decays(v))
    constraints = projections(variables)
    changing = frozenset(knots)
    return KerasTraining(pure, resolved, tunables, chosen, constraints, factors, layers or None, undecayed, changing, steps)


def losses_of(model: keras.Model, loss: Any) -> Losses:
    """The losses of the model's outputs, from a loss, or a list or dict of losses."""
    structure = getattr(model, "_outputs_struct", None)
    listed = _output_names(model) if isinstance(structure, list | tuple) else None
    return losses(loss, sorted(structure) if isinstance(structure, Mapping) else listed)


def _output_names(model: keras.Model) -> list[str]:
    return list(getattr(model, "output_names", None) or ["output"])


def seeded_validation(training: KerasTraining, validation: Batches, seed: int) -> Batches:
    """The validation batches, with a seed for each hyper-iteration if the model draws random numbers in inference too."""
    one_example = nest.map(lambda leaf: leaf[:1], validation(tf.constant(0))[0])
    try:
        training.model.apply(training.model.params, one_example)
    except UnseededError:
        return lambda k: Seeded(validation(k), tf.stack([tf.constant(seed, tf.int32), k]))
    return validation


def compile_with(model: keras.Model, training: KerasTraining, optimizer: Any, loss: Any, metrics: Any) -> None:
    """Compiles a model that is not compiled, so that Keras can evaluate it and train it further.

    `optimizer` is what the user passed: a Keras optimizer is used as it is.
    """
    if model.compiled:
        if metrics:
            warn("metrics are ignored, because the model is compiled already; pass them to model.compile.")
        return
    listed = [metrics] if isinstance(metrics, str | keras.metrics.Metric) else metrics
    own = isinstance(optimizer, keras.optimizers.Optimizer)
    model.compile(optimizer=optimizer if own else to_keras(training.optimizer.name), loss=loss, metrics=listed)


def current_params(model: keras.Model, params: Params) -> Params:
    """The model's current weights, under the paths of `params`."""
    return {path: tf.identity(v.value) for path, v in zip(params, model.trainable_variables, strict=True)}

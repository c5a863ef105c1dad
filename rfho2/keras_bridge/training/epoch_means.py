"""Loss and metrics of an epoch as Keras's `fit` reports them: means over its batches, each measured before its step.

The training itself computes them: each step leaves its loss and outputs to the metrics, whose variables are part of the
state. No batch is computed twice, and steps that are undone are not counted.
"""

from __future__ import annotations

from typing import NamedTuple

import keras
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.compiled import graph_function
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Dynamics, replay_of, with_replay
from rfho2.keras_bridge.training.keras_training import KerasTraining
from rfho2.keras_bridge.training.metrics import Metrics
from rfho2.keras_bridge.wrapping.pure_model import Params


class Measured(NamedTuple):
    """The state of the optimiser, and the variables of the model's metrics."""

    state: Nest
    metrics: tuple[tf.Tensor, ...]


class EpochMeans:
    """Measures a training step by step.

    Args:
      model: compiled, and evaluated once, so that its metrics have variables.
      training: its loss, optimiser and hypers.
      steps: the number of batches in an epoch.
    """

    def __init__(self, model: keras.Model, training: KerasTraining, steps: int):
        self.training, self._steps, self._metrics = training, steps, Metrics(model)
        self._seen: tuple[tf.Tensor, Nest] | None = None  # the loss and outputs of the step being traced
        self._read = graph_function(lambda saved: self._metrics.results(self._restored(saved)))

    def dynamics(self) -> Dynamics:
        """The training, with a state that has the metrics' variables too."""
        inner = self.training.dynamics(self._observed_loss)
        replayed = replay_of(inner)

        def init(params: Params, hypers: Hypers) -> Measured:
            return Measured(inner.init(params, hypers), _saved(self._metrics.initial, nest.flatten(params)[0].dtype))

        def step(state: Measured, hypers: Hypers, batch: Nest, t: tf.Tensor) -> Measured:
            new = inner.step(state.state, hypers, batch, t)
            return Measured(new, self._updated(state.metrics, batch, t))

        def replay(state: Measured, hypers: Hypers, batch: Nest, t: tf.Tensor, new: Measured) -> Measured:
            assert replayed is not None
            return Measured(replayed(state.state, hypers, batch, t, new.state), new.metrics)

        measured = step if replayed is None else with_replay(step, replay)
        return Dynamics(init, measured, lambda state: inner.params(state.state))

    def read(self, state: Measured) -> dict[str, float]:
        """The means so far of the epoch."""
        return {name: float(value) for name, value in self._read(state.metrics).items()}

    def _observed_loss(self, params: Params, hypers: Hypers, batch: Nest) -> tf.Tensor:
        self._seen = self.training.loss_and_outputs(params, hypers, batch)
        return self._seen[0]

    def _updated(self, saved: tuple[tf.Tensor, ...], batch: Nest, t: tf.Tensor) -> tuple[tf.Tensor, ...]:
        assert self._seen is not None
        loss, outputs = nest.map(tf.stop_gradient, self._seen)
        (x, y, *weights), _ = batch
        pairs = zip(self._metrics.initial, self._restored(saved), strict=True)
        before = [tf.where(t % self._steps == 0, initial, value) for initial, value in pairs]
        return _saved(self._metrics.updated(before, x, y, outputs, weights, loss), loss.dtype)

    def _restored(self, saved: tuple[tf.Tensor, ...]) -> list[tf.Tensor]:
        return [tf.cast(value, initial.dtype) for value, initial in zip(saved, self._metrics.initial, strict=True)]


def _saved(values: list[tf.Tensor], dtype: tf.DType) -> tuple[tf.Tensor, ...]:
    """As parts of the state, which all have the dtype of the params, and no derivative."""
    return tuple(tf.stop_gradient(tf.cast(value, dtype)) for value in values)

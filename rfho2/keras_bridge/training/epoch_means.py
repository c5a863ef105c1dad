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
        self.model, self.training, self.steps = model, training, steps
        model.reset_metrics()
        self._variables = list(model.metrics_variables)
        self._initial = [tf.convert_to_tensor(variable.value) for variable in self._variables]
        self._seen: tuple[tf.Tensor, Nest] | None = None  # the loss and outputs of the step being traced
        self._read = graph_function(self._results)

    def dynamics(self) -> Dynamics:
        """The training, with a state that has the metrics' variables too."""
        inner = self.training.dynamics(self._observed_loss)
        replayed = replay_of(inner)

        def init(params: Params, hypers: Hypers) -> Measured:
            return Measured(inner.init(params, hypers), self._saved(self._initial, nest.flatten(params)[0].dtype))

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
        return {name: float(value) for name, value in self._read(state.metrics).items() if value.shape.rank == 0}

    def _observed_loss(self, params: Params, hypers: Hypers, batch: Nest) -> tf.Tensor:
        loss, outputs = self.training.loss_and_outputs(params, hypers, batch)
        self._seen = loss, outputs
        return loss

    def _updated(self, saved: tuple[tf.Tensor, ...], batch: Nest, t: tf.Tensor) -> tuple[tf.Tensor, ...]:
        assert self._seen is not None
        loss, outputs = nest.map(tf.stop_gradient, self._seen)
        (x, y, *weights), _ = batch
        begins = t % self.steps == 0
        before = [tf.where(begins, first, value) for first, value in zip(self._initial, self._restored(saved), strict=True)]
        with keras.StatelessScope(list(zip(self._variables, before, strict=True))) as scope:
            self.model._loss_tracker.update_state(loss, sample_weight=nest.flatten(x)[0].shape[0])
            if getattr(self.model._compile_loss, "metrics", ()):  # the losses of several outputs
                self.model._compile_loss(y, outputs, *weights)
            self.model.compute_metrics(x, y, outputs, *weights)
        after = [tf.convert_to_tensor(scope.get_current_value(variable)) for variable in self._variables]
        return self._saved(after, loss.dtype)

    def _results(self, saved: tuple[tf.Tensor, ...]) -> dict[str, tf.Tensor]:
        with keras.StatelessScope(list(zip(self._variables, self._restored(saved), strict=True))):
            return {name: tf.convert_to_tensor(value) for name, value in self.model.get_metrics_result().items()}

    def _saved(self, values: list[tf.Tensor], dtype: tf.DType) -> tuple[tf.Tensor, ...]:
        """As parts of the state, which all have the dtype of the params."""
        return tuple(tf.stop_gradient(tf.cast(value, dtype)) for value in values)

    def _restored(self, saved: tuple[tf.Tensor, ...]) -> list[tf.Tensor]:
        return [tf.cast(value, first.dtype) for value, first in zip(saved, self._initial, strict=True)]

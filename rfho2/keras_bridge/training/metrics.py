"""The metrics of a compiled Keras model as pure functions of their variables."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from rfho2.core.types import Nest

RISING = ("acc", "auc", "precision", "recall", "f1", "fbeta", "iou", "r2")  # parts of the names of metrics to maximise


class Metrics:
    """The metrics of a model.

    Args:
      model: compiled, and evaluated once, so that its metrics have variables.
    """

    def __init__(self, model: keras.Model):
        self._model = model
        model.reset_metrics()
        self._variables = list(model.metrics_variables)
        self.initial = [tf.convert_to_tensor(variable.value) for variable in self._variables]

    def updated(
        self, values: Sequence[tf.Tensor], x: Nest, y: Nest, outputs: Nest, weights: Sequence[tf.Tensor], loss: tf.Tensor
    ) -> list[tf.Tensor]:
        """The variables after one more batch, with this loss."""
        with self._scope(values) as scope:
            self._model._loss_tracker.update_state(loss, sample_weight=tf.shape(tf.nest.flatten(x)[0])[0])
            if getattr(self._model._compile_loss, "metrics", ()):  # the losses of several outputs
                self._model._compile_loss(y, outputs, *weights)
            self._model.compute_metrics(x, y, outputs, *weights)
        return [tf.convert_to_tensor(scope.get_current_value(variable)) for variable in self._variables]

    def results(self, values: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
        """Loss and metrics by name; those that are not single numbers are left out."""
        with self._scope(values):
            results = {name: tf.convert_to_tensor(v) for name, v in self._model.get_metrics_result().items()}
        return {name: value for name, value in results.items() if value.shape.rank == 0}

    def _scope(self, values: Sequence[tf.Tensor]) -> keras.StatelessScope:
        return keras.StatelessScope(list(zip(self._variables, values, strict=True)))


def rises(model: keras.Model, name: str) -> bool | None:
    """Whether a metric is to be maximised, as far as Keras or its name tells; None if neither does."""
    if name == "loss" or name.endswith("_loss"):
        return False
    each = getattr(model._compile_metrics, "metrics", ())
    directions = {getattr(metric, "_direction", None) for metric in each if name.endswith(metric.name)}
    if directions & {"up", "down"}:
        return "up" in directions
    return True if any(part in name.lower() for part in RISING) else None

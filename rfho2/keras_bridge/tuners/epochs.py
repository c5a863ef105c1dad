"""Translates the driver's hyper-iterations into Keras's epochs and callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from rfho2.batches import Stream
from rfho2.core.compiled import graph_function
from rfho2.core.types import HyperGradient, Hypers, Nest, Result, Run
from rfho2.keras_bridge.data.datasets import Examples, Source
from rfho2.keras_bridge.training.keras_training import KerasTraining

EVALUATED = 256  # examples per batch of an evaluation
REFUSED = {
    keras.callbacks.LearningRateScheduler: "the tuner sets the learning rate",
    keras.callbacks.ReduceLROnPlateau: "the tuner sets the learning rate",
    keras.callbacks.BackupAndRestore: "it does not know the hypers; pass checkpoint_dir to fit instead",
}


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Refuses callbacks that cannot work with the tuner."""
    for callback in callbacks:
        name = type(callback).__name__
        if not isinstance(callback, keras.callbacks.Callback):
            raise TypeError(f"callbacks has {name}, which is not a keras.callbacks.Callback.")
        for kind, reason in REFUSED.items():
            if isinstance(callback, kind):
                raise ValueError(f"callbacks has {name}, which does not work with the tuner: {reason}.")


def evaluate(model: keras.Model, examples: Examples) -> dict[str, float]:
    """Loss and metrics, as Keras computes them."""
    x, y, *weights = examples
    return model.evaluate(x, y, EVALUATED, 0, weights[0] if weights else None, return_dict=True)


class Epochs:
    """A callback of the driver that calls Keras's callbacks and, after each epoch, writes the weights into the model.

    Args:
      model: the model being trained.
      training: its loss, optimiser and hypers.
      source, held_out: the training data, and validation arrays.
      epochs: the numbers of the epochs.
      per_epoch: updates of the hypers in an epoch.
      callbacks, verbose: as in Keras's `fit`.
      keep_best: whether the model ends with the weights of lowest validation loss instead of the last ones.
    """

    def __init__(
        self,
        model: keras.Model,
        training: KerasTraining,
        source: Source,
        held_out: Examples,
        epochs: range,
        per_epoch: int,
        callbacks: Sequence[keras.callbacks.Callback],
        verbose: int,
        keep_best: bool,
    ):
        self.model, self.training, self.source, self.held_out = model, training, source, held_out
        self.initial_epoch, self.per_epoch, self.keep_best = epochs.start, per_epoch, keep_best
        self.iterations = len(epochs) * per_epoch
        self.callbacks = keras.callbacks.CallbackList(
            list(callbacks),
            add_history=True,
            add_progbar=verbose != 0,
            model=model,
            verbose=verbose,
            epochs=epochs.stop,
            steps=source.steps,
        )
        self._outputs = graph_function(self._batch_outputs)
        self._stream = iter(source.inputs.repeat()) if isinstance(source.batches, Stream) else None
        self._losses: list[float] = []  # in this epoch
        self._written: Nest = None  # the state whose weights the model has
        self.hypers: dict[str, np.ndarray] = {}  # final values, on the user's scale

    def _batch_outputs(self, params: Nest, examples: Examples) -> tuple[tf.Tensor, Nest]:
        x, y, *weights = examples
        outputs = self.training.model.apply(params, x, training=False)
        return self.training.plain_loss(y, outputs, *weights), outputs

    def metrics(self, state: Nest, hypers: Hypers, k: int) -> dict[str, float]:
        """The hypers on the user's scale, and the loss and the metrics on a training batch."""
        examples = next(self._stream) if self._stream is not None else self.source.batches(tf.constant(k))[0]
        loss, outputs = self._outputs(self.training.dynamics().params(state), examples)
        measured = self.model.compute_metrics(examples[0], examples[1], outputs, *examples[2:])
        losses = {"loss", *(metric.name for metric in getattr(self.model._compile_loss, "metrics", ()))}
        scalars = {name: float(v) for name, v in measured.items() if name not in losses and np.ndim(v) == 0}
        return {**self.training.tunables.named(hypers), **scalars, "loss": float(loss)}

    def on_start(self, run: Run) -> None:
        """Training begins or resumes."""
        self.model.reset_metrics()
        self.callbacks.on_train_begin()
        if run.first % self.per_epoch and run.first < self.iterations:
            self.callbacks.on_epoch_begin(self.initial_epoch + run.first // self.per_epoch)

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: HyperGradient, extra: dict[str, Any]) -> None:
        """A hyper-batch has ended, and perhaps an epoch."""
        epoch, batch = divmod(k, self.per_epoch)
        epoch += self.initial_epoch
        if batch == 0:
            self._losses = []
            self.callbacks.on_epoch_begin(epoch)
        step = self.source.steps * (batch + 1) // self.per_epoch - 1
        self.callbacks.on_train_batch_begin(step)
        self._losses.append(extra["loss"])
        logs = {**extra, "loss": float(np.mean(self._losses))}
        self.callbacks.on_train_batch_end(step, dict(logs))
        if batch == self.per_epoch - 1:
            self._write(hypergradient.state)
            metrics = evaluate(self.model, self.held_out)
            validation = {f"val_{name}": float(value) for name, value in metrics.items() if np.ndim(value) == 0}
            self.callbacks.on_epoch_end(epoch, {**logs, **validation})
            self.model.reset_metrics()

    def _write(self, state: Nest) -> None:
        params = self.training.dynamics().params(state)
        self.training.model.assign(params, self.source.inputs)
        self._written = state

    def on_end(self, result: Result) -> None:
        """Training ended: as planned, by a callback, by Ctrl-C in mid-epoch, or before this call."""
        final_state = result.best.state if self.keep_best and result.best is not None else result.state
        if self._written is not final_state:
            self._write(final_state)
        self.hypers = {name: value.numpy() for name, value in self.training.tunables.to_user(result.hypers).items()}
        self.callbacks.on_train_end()

    def history(self, result: Result) -> keras.callbacks.History:
        """Keras's history, with the values at every update as `.trajectories`; `.hyper_names` lists the hypers."""
        history = self.model.history
        last = result.history[-1] if result.history else {}
        names = [name for name in last if not name.startswith(("hypergradient/", "norm of "))]
        history.trajectories = {name: np.array([row[name] for row in result.history]) for name in names}
        history.hyper_names = list(self.training.tunables.named(result.hypers))
        return history

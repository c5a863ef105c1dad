"""Translates the driver's hyper-iterations into Keras's epochs and callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from rfho2.batches import Stream
from rfho2.core.types import HyperGradient, Hypers, Nest, Result, Run
from rfho2.keras_bridge.data import Source
from rfho2.keras_bridge.training import KerasTraining

REFUSED = {
    keras.callbacks.LearningRateScheduler: "the tuner sets the learning rate",
    keras.callbacks.ReduceLROnPlateau: "the tuner sets the learning rate",
    keras.callbacks.BackupAndRestore: "it does not know the hypers; pass checkpoint_dir to fit instead",
}


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Refuses callbacks that cannot do their job under the tuner."""
    for callback in callbacks:
        name = type(callback).__name__
        if not isinstance(callback, keras.callbacks.Callback):
            raise TypeError(f"callbacks has {name}, which is not a keras.callbacks.Callback.")
        for kind, reason in REFUSED.items():
            if isinstance(callback, kind):
                raise ValueError(f"callbacks has {name}, which cannot work here: {reason}.")


class Epochs:
    """A callback of the driver that calls Keras's callbacks and, after each epoch, writes the weights into the model.

    Args:
      model: the model being trained.
      training: its loss, optimiser and hypers.
      source: the training batches.
      x: inputs, for batch norm's moving statistics.
      held_out: validation arrays.
      epochs, per_epoch: the number of epochs, and of updates of the hypers in each.
      callbacks, verbose: as in Keras's `fit`.
      keep_best: whether the model ends with the weights of lowest validation loss instead of the last ones.
    """

    def __init__(
        self,
        model: keras.Model,
        training: KerasTraining,
        source: Source,
        x: Any,
        held_out: tuple[Nest, Nest],
        epochs: int,
        per_epoch: int,
        callbacks: Sequence[keras.callbacks.Callback] | None,
        verbose: str | int,
        keep_best: bool,
    ):
        self.model, self.training, self.source, self.held_out = model, training, source, held_out
        self.keep_best = keep_best
        self.x = x.take(source.steps) if isinstance(x, tf.data.Dataset) else x  # the dataset may be infinite
        self.per_epoch, self.iterations = per_epoch, epochs * per_epoch
        verbosity = 1 if verbose == "auto" else int(verbose)
        self.callbacks = keras.callbacks.CallbackList(
            list(callbacks or ()),
            add_history=True,
            add_progbar=verbosity != 0,
            model=model,
            verbose=verbosity,
            epochs=epochs,
            steps=per_epoch,
        )
        self._loss = tf.function(self._batch_loss, autograph=False)
        self._stream = iter(source.batches.dataset) if isinstance(source.batches, Stream) else None
        self._losses: list[float] = []  # in this epoch
        self._written: Nest = None  # the state whose weights the model has
        self.hypers: dict[str, np.ndarray] = {}  # final values, on the user's scale

    def _batch_loss(self, params: Nest, batch: Nest) -> tf.Tensor:
        examples, _ = batch
        return self.training.objective(params, {}, examples)

    def metrics(self, state: Nest, hypers: Hypers, k: int) -> dict[str, float]:
        """The hypers on the user's scale, and the loss on a training batch."""
        batch = next(self._stream) if self._stream is not None else self.source.batches(tf.constant(k))
        params = self.training.dynamics().params(state)
        return {**self.training.tunables.named(hypers), "loss": float(self._loss(params, batch))}

    def on_start(self, run: Run) -> None:
        """Training begins or resumes."""
        self.callbacks.on_train_begin()
        if run.first % self.per_epoch and run.first < self.iterations:
            self.callbacks.on_epoch_begin(run.first // self.per_epoch)

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: HyperGradient, extra: dict[str, Any]) -> None:
        """A hyper-batch has ended, and perhaps an epoch."""
        epoch, batch = divmod(k, self.per_epoch)
        if batch == 0:
            self._losses = []
            self.callbacks.on_epoch_begin(epoch)
        self.callbacks.on_train_batch_begin(batch)
        self._losses.append(extra["loss"])
        logs = {**extra, "loss": float(np.mean(self._losses))}
        self.callbacks.on_train_batch_end(batch, dict(logs))
        if batch == self.per_epoch - 1:
            self._write(hypergradient.state)
            self.callbacks.on_epoch_end(epoch, {**logs, **self._evaluated()})

    def _write(self, state: Nest) -> None:
        params = self.training.dynamics().params(state)
        self.training.model.assign(params, self.x)
        self._written = state

    def _evaluated(self) -> dict[str, float]:
        x, y = self.held_out
        metrics = self.model.evaluate(x, y, batch_size=256, verbose=0, return_dict=True)
        return {f"val_{name}": float(value) for name, value in metrics.items()}

    def on_end(self, result: Result) -> None:
        """Training ended: as planned, by a callback, by Ctrl-C in mid-epoch, or before this call."""
        kept = result.best.state if self.keep_best and result.best is not None else result.state
        if self._written is not kept:
            self._write(kept)
        self.hypers = {name: value.numpy() for name, value in self.training.tunables.to_user(result.hypers).items()}
        self.callbacks.on_train_end()

    def history(self, result: Result) -> keras.callbacks.History:
        """Keras's history, with the values at every update as `.trajectories`."""
        history = self.model.history
        last = result.history[-1] if result.history else {}
        names = [name for name in last if not name.startswith(("hypergradient/", "norm of "))]
        history.trajectories = {name: np.array([row[name] for row in result.history]) for name in names}
        return history

"""Translates the driver's hyper-iterations into Keras's epochs and callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from rfho2.core.types import HyperGradient, Hypers, Nest, Result, Run
from rfho2.core.warn import warn
from rfho2.keras_bridge.data.datasets import Examples, Source
from rfho2.keras_bridge.training.epoch_means import EpochMeans
from rfho2.keras_bridge.tuners.model_settings import ModelSettings
from rfho2.keras_bridge.wrapping.frozen import for_keras

FEW = 3  # updates: with fewer, the hypers have hardly been tuned
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
            similar = name if hasattr(keras.callbacks, name) else "Callback"
            raise TypeError(f"callbacks has {name}, which is not a Keras callback; use keras.callbacks.{similar} instead.")
        for kind, reason in REFUSED.items():
            if isinstance(callback, kind):
                raise ValueError(f"callbacks has {name}, which does not work with the tuner: {reason}.")


def evaluate(model: keras.Model, examples: Examples) -> dict[str, float]:
    """Loss and metrics, as Keras computes them."""
    x, y, *weights = examples
    return model.evaluate(for_keras(x), y, EVALUATED, 0, weights[0] if weights else None, return_dict=True)


class Epochs:
    """A callback of the driver that calls Keras's callbacks and, after each epoch, writes the weights into the model.

    Args:
      model: the model being trained.
      means: its training, with the loss and the metrics of an epoch.
      source, held_out: the training data, and validation arrays.
      epochs: the numbers of the epochs.
      per_epoch: updates of the hypers in an epoch.
      callbacks, verbose: as in Keras's `fit`.
      keep_best: whether the model ends with the weights of the lowest objective instead of the last ones.
    """

    def __init__(
        self,
        model: keras.Model,
        means: EpochMeans,
        source: Source,
        held_out: Examples,
        epochs: range,
        per_epoch: int,
        callbacks: Sequence[keras.callbacks.Callback],
        verbose: int,
        keep_best: bool,
    ):
        self.model, self.means, self.source, self.held_out = model, means, source, held_out
        self.training, self.params_of = means.training, means.dynamics().params
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
        self.settings = ModelSettings(model, means.training.optimizer)
        self._written: Nest = None  # the state whose weights the model has
        self._used: Hypers = {}  # in the last hyper-batch
        self.updates = 0  # hyper-batches that have ended
        self.hypers: dict[str, np.ndarray] = {}  # on the user's scale: the final values
        self.next_hypers: dict[str, np.ndarray] = {}  # those with which another fit continues

    def metrics(self, state: Nest, hypers: Hypers, k: int) -> dict[str, float]:
        """The hypers on the user's scale, and the means of the loss and the metrics since the epoch began."""
        return {**self.training.named(hypers, self.steps(k + 1) - 1), **self.means.read(state)}

    def steps(self, updates: int) -> int:
        """The number of training steps in so many hyper-batches."""
        return self.source.steps * updates // self.per_epoch

    def on_start(self, run: Run) -> None:
        """Training begins or resumes."""
        self.updates = run.first
        self.model.reset_metrics()
        self.callbacks.on_train_begin()
        if run.first % self.per_epoch and run.first < self.iterations:
            self.callbacks.on_epoch_begin(self.initial_epoch + run.first // self.per_epoch)

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: HyperGradient, extra: dict[str, Any]) -> None:
        """A hyper-batch has ended, and perhaps an epoch."""
        epoch, batch = divmod(k, self.per_epoch)
        epoch += self.initial_epoch
        self._used, self.updates = hypers, k + 1
        self.settings.show(self._on_users_scale(hypers), self.steps(k + 1))
        if batch == 0:
            self.callbacks.on_epoch_begin(epoch)
        step = self.source.steps * (batch + 1) // self.per_epoch - 1
        self.callbacks.on_train_batch_begin(step)
        self.callbacks.on_train_batch_end(step, dict(extra))
        if batch == self.per_epoch - 1:
            self._write(hypergradient.state)
            metrics = evaluate(self.model, self.held_out)
            validation = {f"val_{name}": float(value) for name, value in metrics.items() if np.ndim(value) == 0}
            self.callbacks.on_epoch_end(epoch, {**extra, **validation})
            self.model.reset_metrics()

    def _write(self, state: Nest) -> None:
        self.training.model.assign(self.params_of(state), self.source.inputs)
        self._written = state

    def on_end(self, result: Result) -> None:
        """Training ended: as planned, by a callback, by Ctrl-C in mid-epoch, or before this call."""
        final_state = result.best.state if self.keep_best and result.best is not None else result.state
        if self._written is not final_state:
            self._write(final_state)
        self.hypers = self.next_hypers = self._on_users_scale(result.hypers)
        if result.history and len(result.history) < FEW:
            used = result.best.hypers if self.keep_best and result.best is not None else self._used
            self.hypers = self._on_users_scale(used or result.hypers)
            self._warn_of_few_updates(len(result.history))
        self.callbacks.on_train_end()

    def _on_users_scale(self, hypers: Hypers) -> dict[str, np.ndarray]:
        return {name: value.numpy() for name, value in self.training.tunables.to_user(hypers).items()}

    def _warn_of_few_updates(self, updates: int) -> None:
        times = "only once, at the end" if updates == 1 else f"only {updates} times"
        warn(
            f"the hypers were updated {times}: the model has trained with values at or near those from which they started, "
            f"and these are reported. An update takes {self.source.steps / self.per_epoch:.0f} steps: train for more epochs "
            f"or pass a smaller hyper_batch to the tuner."
        )

    def history(self, result: Result) -> keras.callbacks.History:
        """Keras's history, with the values at every update as `.trajectories`; `.hyper_names` lists the hypers."""
        history = self.model.history
        last = result.history[-1] if result.history else {}
        names = [name for name in last if not name.startswith(("hypergradient/", "norm of "))]
        history.trajectories = {name: np.array([row[name] for row in result.history]) for name in names}
        history.hyper_names = list(self.training.named(result.hypers, 0))
        return history

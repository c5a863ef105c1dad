"""Training of a task's model: by Keras with a rate or a schedule, by the tuner, or with a tuned schedule."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

import rfho2 as rf
from experiments.common.pool import Row
from experiments.keras_tasks.tasks import Parts, Task

OPTIMIZERS = {"SGD": keras.optimizers.SGD, "Adam": keras.optimizers.Adam}
USUAL = {"SGD": 0.01, "Adam": 0.001}  # Keras's defaults
KNOTS, ITERATIONS = 6, 10  # as in experiments.long_training


class Cosine(keras.callbacks.Callback):
    """Lowers the learning rate to 0 along half a cosine, a step at a time."""

    def __init__(self, steps: int):
        super().__init__()
        self._steps = steps

    def on_train_begin(self, logs: Any = None) -> None:
        self._rate, self._step = float(self.model.optimizer.learning_rate), 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate = 0.5 * self._rate * (1 + np.cos(np.pi * self._step / self._steps))
        self._step += 1


class KerasFits:
    """Trainings of one model by Keras, all from the same weights; the weights of the best epoch are kept.

    Args:
      task, parts: what is learned.
      optimizer: a key of `OPTIMIZERS`.
      seed: determines the weights and the order of the examples.
    """

    def __init__(self, task: Task, parts: Parts, optimizer: str, seed: int):
        self._task, self._parts, self._seed = task, parts, seed
        self._began: float | None = time.perf_counter()
        keras.utils.set_random_seed(seed)
        self._model = task.build()
        self._model.compile(OPTIMIZERS[optimizer](), task.loss)
        self._model.optimizer.build(self._model.trainable_variables)
        self._initial = [(v, v.numpy()) for v in [*self._model.variables, *self._model.optimizer.variables]]

    def __call__(self, rate: float, plan: str = "constant") -> Row:
        """One training; the seconds of the first one include building and compiling.

        Args:
          rate: the learning rate, at first.
          plan: "constant", "cosine" or "plateau".
        """
        began, self._began = self._began or time.perf_counter(), None
        for variable, value in self._initial:
            variable.assign(value)
        self._model.optimizer.learning_rate = rate
        keras.utils.set_random_seed(self._seed)
        task, (train, validation, test) = self._task, self._parts
        keep = keras.callbacks.EarlyStopping(patience=task.epochs, restore_best_weights=True)
        steps = task.epochs * -(-len(train[0]) // task.batch_size)
        plans = {"constant": [], "cosine": [Cosine(steps)], "plateau": [keras.callbacks.ReduceLROnPlateau(patience=3)]}
        history = self._model.fit(
            *train,
            validation_data=validation,
            epochs=task.epochs,
            batch_size=task.batch_size,
            callbacks=[keep, *plans[plan]],
            verbose=0,
        ).history
        seconds = time.perf_counter() - began
        losses = np.nan_to_num(history["val_loss"], nan=np.inf)
        return {
            "validation": float(np.min(losses)),
            "test": task.score(self._model, test),
            "seconds": seconds,
        }


def tuned(task: Task, parts: Parts, optimizer: str, seed: int, rate: float, options: Mapping[str, Any]) -> Row:
    """One training that tunes its learning rate, with the tuner's defaults but for the `options`."""
    began = time.perf_counter()
    keras.utils.set_random_seed(seed)
    model = task.build()
    model.compile(OPTIMIZERS[optimizer](rate), task.loss)
    tuner = rf.RealTimeTuner(model, seed=seed, **options)
    history = tuner.fit(
        *parts.train, validation_data=parts.validation, epochs=task.epochs, batch_size=task.batch_size, verbose=0
    )
    seconds = time.perf_counter() - began
    trajectory = {name: history.trajectories[name].tolist() for name in ("learning_rate", "value")}
    return {
        "validation": min(history.history["val_loss"]),
        "validation score": task.score(model, parts.validation),
        "test": task.score(model, parts.test),
        "seconds": seconds,
        "way": trajectory,
    }


def with_knots(task: Task, parts: Parts, optimizer: str, seed: int, rate: float) -> Row:
    """Ten hyper-iterations on a schedule of six knots: the weights of the best one, by validation loss."""
    began = time.perf_counter()
    keras.utils.set_random_seed(seed)
    model = task.build()
    model.compile(OPTIMIZERS[optimizer](rate), task.loss)
    tuned = rf.tune(
        model, train=parts.train, validation=parts.validation, schedule={"learning_rate": KNOTS}, iterations=ITERATIONS,
        steps=task.epochs * (len(parts.train[0]) // task.batch_size), batch_size=task.batch_size, hyper_rate=0.5,
        refit=False, seed=seed, verbose=0,
    )  # fmt: skip
    assert tuned.result.best is not None
    seconds = time.perf_counter() - began
    return {"validation": tuned.result.best.value, "test": task.score(tuned.model, parts.test), "seconds": seconds}

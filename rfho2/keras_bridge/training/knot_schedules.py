"""Tuned schedules as Keras uses them: of the learning rate, and of other settings of an optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from rfho2.core import errors
from rfho2.dynamics.knots import interpolated
from rfho2.keras_bridge.training.optimizers import inner_optimizer
from rfho2.keras_bridge.training.schedules import Schedule, value_at
from rfho2.keras_bridge.training.tunables import TUNABLES

SETTINGS = ("momentum", "weight_decay")  # of Keras's optimizers, which a callback can change


@keras.saving.register_keras_serializable("rfho2")
class KnotSchedule(Schedule):
    """A learning rate that passes through a few values, the *knots*, at equal distances; its logarithm is linear in between.

    The first knot is the rate of the first step, and the last one that of the last step and of all later ones. To load a
    saved model that has one in another process, pass the class to Keras:
    `keras.saving.load_model(path, custom_objects={"KnotSchedule": rf.KnotSchedule})`.

    Args:
      knots: the rates; if there is a `schedule`, factors on it.
      steps: the length of the training.
      schedule: one of Keras's, or your own, which the knots multiply.
      schedule_steps: the length of the training for which the schedule was made; `steps` by default.
      name: as in Keras.

    >>> import rfho2 as rf
    >>> schedule = rf.KnotSchedule([0.1, 0.001], steps=101)
    >>> [round(float(schedule(step)), 4) for step in (0, 50, 100)]
    [0.1, 0.01, 0.001]
    >>> round(float(schedule.stretched(1001)(500)), 4)
    0.01
    """

    def __init__(
        self,
        knots: Sequence[float],
        steps: int,
        schedule: Schedule | None = None,
        schedule_steps: int | None = None,
        name: str = "KnotSchedule",
    ):
        super().__init__()
        self.knots, self.steps = _checked_knots("learning_rate", knots), errors.check_count("steps", steps)
        self.schedule, self.schedule_steps, self.name = schedule, int(schedule_steps or steps), name

    def __repr__(self) -> str:
        return f"KnotSchedule([{', '.join(f'{knot:.4g}' for knot in self.knots)}], steps={self.steps})"

    def __call__(self, step: Any) -> tf.Tensor:
        """The rate of a step."""
        rate = _value("learning_rate", self.knots, step, self.steps)
        if self.schedule is None:
            return rate
        if self.schedule_steps != self.steps:
            step = tf.cast(step, tf.float64) * ((self.schedule_steps - 1) / max(self.steps - 1, 1))
        return rate * tf.cast(value_at(self.schedule, tf.cast(step, tf.int64)), rate.dtype)

    def stretched(self, steps: int) -> KnotSchedule:
        """The same schedule for a training of another length."""
        return KnotSchedule(self.knots, steps, self.schedule, self.schedule_steps, self.name)

    def get_config(self) -> dict[str, Any]:
        """What the schedule is made from."""
        schedule = None if self.schedule is None else keras.saving.serialize_keras_object(self.schedule)
        lengths = {"steps": self.steps, "schedule_steps": self.schedule_steps}
        return {"knots": self.knots, **lengths, "schedule": schedule, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> KnotSchedule:
        """The schedule that `get_config` describes."""
        schedule = config["schedule"] and keras.saving.deserialize_keras_object(config["schedule"])
        return cls(**{**config, "schedule": schedule})


class KnotCallback(keras.callbacks.Callback):
    """Changes a setting of the model's optimizer at every batch of `model.fit`, as `KnotSchedule` does the learning rate.

    The interpolation is linear in the logarithm of weight decay, or of 1 - momentum. It counts the batches that it has seen:
    make another one for another training. At the end of a fit, the setting has its last value.

    Args:
      setting: "momentum" or "weight_decay".
      knots: the values.
      steps: the length of the training.
    """

    def __init__(self, setting: str, knots: Sequence[float], steps: int):
        super().__init__()
        if setting not in SETTINGS:
            raise ValueError(f"setting is {setting!r}; choose one of {SETTINGS}, or use rf.KnotSchedule.")
        self.setting, self.knots = setting, _checked_knots(setting, knots)
        self.steps, self._step = errors.check_count("steps", steps), 0

    def __call__(self, step: Any) -> tf.Tensor:
        """The value of the setting at a step."""
        return _value(self.setting, self.knots, step, self.steps)

    def stretched(self, steps: int) -> KnotCallback:
        """The same schedule for a training of another length, from its beginning."""
        return KnotCallback(self.setting, self.knots, steps)

    def on_train_begin(self, logs: Any = None) -> None:
        """Makes the setting a variable, because a compiled training function would keep a number for ever."""
        optimizer = inner_optimizer(self.model.optimizer)
        before = getattr(optimizer, self.setting, None)
        if not isinstance(before, _Changing) and not before:  # a fit that was interrupted leaves the variable
            raise ValueError(
                f"optimizer {type(optimizer).__name__} has no {self.setting} that rf.KnotCallback could change; build it "
                f"with {self.setting}={self.knots[0]:.3g}."
            )
        optimizer.build(self.model.trainable_variables)
        self._variable = _Changing(float(self(self._step)), trainable=False, dtype="float32")
        setattr(optimizer, self.setting, self._variable)
        self.model.make_train_function(force=True)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the value of this batch."""
        self._variable.assign(self(self._step))
        self._step += 1

    def on_train_end(self, logs: Any = None) -> None:
        """Makes the setting a number again, as Keras saves it."""
        setattr(inner_optimizer(self.model.optimizer), self.setting, float(self._variable))
        self.model.make_train_function(force=True)


class _Changing(keras.Variable):
    """A variable in place of a number that Keras compares with 0 to see whether it is used."""

    def __ne__(self, other: object) -> bool:
        return True


def keras_schedules(
    knots: dict[str, np.ndarray], steps: int, schedule: Schedule | None
) -> dict[str, KnotSchedule | KnotCallback]:
    """The tuned schedules; the knots of the learning rate multiply the schedule that the model was compiled with."""
    return {
        name: KnotSchedule(values.tolist(), steps, schedule)
        if name == "learning_rate"
        else KnotCallback(name, values.tolist(), steps)
        for name, values in knots.items()
    }


def _value(setting: str, knots: Sequence[float], step: Any, steps: int) -> tf.Tensor:
    scale = TUNABLES[setting]
    return scale.to_user(interpolated(tf.constant(scale.to_internal(knots), tf.float32), tf.cast(step, tf.float32), steps))


def _checked_knots(setting: str, knots: Sequence[float]) -> list[float]:
    values = np.asarray(knots, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        usable = values.ndim == 1 and values.size and np.all(np.isfinite(TUNABLES[setting].to_internal(values)))
    if not usable:
        least = "from 0 to below 1" if setting == "momentum" else "above 0"
        raise ValueError(f"knots is {knots!r:.80}; pass a list of numbers {least}.")
    return values.tolist()

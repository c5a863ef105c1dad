"""Learning-rate schedules of Keras: their values in a graph, their peak, and the schedule that a fit leaves behind."""

from __future__ import annotations

from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

Schedule: TypeAlias = keras.optimizers.schedules.LearningRateSchedule
LONGEST = 1_000_000  # steps in which the peak of a schedule is looked for
LOOKED_AT = 200  # of these steps, more of the early ones


@keras.saving.register_keras_serializable("rfho2")
class ScaledSchedule(Schedule):
    """A schedule times a factor, beginning at one of its later steps: what a tuner leaves in an optimizer with a schedule.

    To load a saved model that has one in another process, pass the class to Keras:
    `keras.saving.load_model(path, custom_objects={"ScaledSchedule": rf.ScaledSchedule})`.

    Args:
      schedule: Keras's, or one of your own.
      factor: what its rates are multiplied by.
      first_step: the step of the schedule at which this one begins.
      name: as in Keras.
    """

    def __init__(self, schedule: Schedule, factor: float, first_step: int = 0, name: str = "ScaledSchedule"):
        super().__init__()
        self.schedule, self.factor, self.first_step, self.name = schedule, float(factor), int(first_step), name

    def __call__(self, step: Any) -> tf.Tensor:
        """The rate of a step."""
        return self.factor * value_at(self.schedule, tf.cast(step, tf.int64) + self.first_step)

    def get_config(self) -> dict[str, Any]:
        """What the schedule is made from."""
        inner = keras.saving.serialize_keras_object(self.schedule)
        return {"schedule": inner, "factor": self.factor, "first_step": self.first_step, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> ScaledSchedule:
        """The schedule that `get_config` describes."""
        return cls(**{**config, "schedule": keras.saving.deserialize_keras_object(config["schedule"])})


def is_schedule(rate: Any) -> bool:
    """Whether a learning rate is a schedule."""
    return isinstance(rate, keras.optimizers.schedules.LearningRateSchedule)


def value_at(schedule: Schedule, step: Any) -> tf.Tensor:
    """The rate of a step, as a tensor."""
    return tf.convert_to_tensor(schedule(step))


def scaled(schedule: Schedule, factor: float, first_step: int) -> ScaledSchedule:
    """The schedule times the factor; of a scaled one, the original is scaled."""
    if isinstance(schedule, ScaledSchedule):
        return ScaledSchedule(schedule.schedule, schedule.factor * factor, schedule.first_step + first_step)
    return ScaledSchedule(schedule, factor, first_step)


def peak(schedule: Schedule) -> float:
    """The highest rate of a schedule, as far as it can be found."""
    steps = np.unique(np.concatenate([[0], np.geomspace(1, LONGEST, LOOKED_AT)]).astype(np.int64))
    rates = [float(value_at(schedule, tf.constant(step))) for step in steps]
    highest = max(rates)
    if not np.isfinite(highest) or highest <= 0:
        raise ValueError(
            f"the learning-rate schedule {type(schedule).__name__} has no positive rate in its first {LONGEST} steps; the "
            f"tuner multiplies it by a factor. Compile the model with another schedule, or with a constant rate."
        )
    return highest

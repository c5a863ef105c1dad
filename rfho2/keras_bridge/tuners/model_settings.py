"""The tuned settings in the model's optimizer: during a fit, where callbacks read them, and after it, for `model.fit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from rfho2.core.warn import warn
from rfho2.keras_bridge.training.optimizers import Optimizer, inner_optimizer, is_kind, schedule_of, steps_taken
from rfho2.keras_bridge.training.schedules import scaled

SETTINGS = ("learning_rate", "momentum")


class ModelSettings:
    """Writes the settings of the tuner into the optimizer of a model.

    Args:
      model: compiled. If its optimizer is of another kind than the tuner's, it shows the learning rate while a fit runs, and
        has its settings back afterwards.
      tuned: the tuner's optimizer.
    """

    def __init__(self, model: keras.Model, tuned: Optimizer):
        self._model, self._optimizer, self._tuned = model, inner_optimizer(model.optimizer), tuned
        scheduled = schedule_of(self._optimizer) is not None
        self._same = is_kind(model.optimizer, tuned.name) and (tuned.schedule is not None) == scheduled
        names = SETTINGS if self._same else SETTINGS[:1]
        assignable = hasattr(getattr(self._optimizer, "_learning_rate", None), "assign")  # not a schedule
        self._before = {name: float(getattr(self._optimizer, name)) for name in names if assignable and self._has(name)}
        self._shown: dict[str, float] = {}
        self._warned = False

    def _has(self, name: str) -> bool:
        return isinstance(getattr(self._optimizer, name, None), float | keras.Variable)

    def show(self, values: Mapping[str, float | np.ndarray], step: int) -> None:
        """Writes those values that are single numbers; warns if a callback has changed what was written before.

        Args:
          values: the hypers on the user's scale.
          step: the number of steps taken, from which a schedule goes on.
        """
        self._warn_of_changes()
        factor: Any = values.get("learning_rate", 1.0)
        if self._same and self._tuned.schedule is not None and np.ndim(factor) == 0:
            ahead = self._tuned.first_step - steps_taken(self._optimizer)  # Keras's counter does not know of earlier fits
            self._optimizer.learning_rate = scaled(self._tuned.schedule, float(factor), ahead + step)
        for name in self._before:
            if name in values and np.ndim(values[name]) == 0:
                setattr(self._optimizer, name, float(values[name]))
                self._shown[name] = float(getattr(self._optimizer, name))  # rounded to the variable's dtype

    def end(self, values: Mapping[str, np.ndarray], step: int) -> None:
        """Leaves the tuned settings in an optimizer of the same kind, and their old values in another one."""
        self.show(values if self._same else self._before, step)
        if self._same:
            self._model.make_train_function(force=True)

    def _warn_of_changes(self) -> None:
        for name, shown in self._shown.items():
            now = float(getattr(self._optimizer, name))
            if now != shown and not self._warned:
                self._warned = True
                warn(
                    f"a callback set the optimizer's {name} to {now:g}, which has no effect: the tuner sets it. Leave the "
                    f"callback out, or do not tune '{name}'."
                )

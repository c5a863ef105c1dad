"""Keras models as pure functions; tuning them in real time or offline; cleaning their training data."""

from rfho2.core.ops import cross_entropy
from rfho2.keras_bridge.training.knot_schedules import KnotCallback, KnotSchedule
from rfho2.keras_bridge.training.schedules import ScaledSchedule
from rfho2.keras_bridge.tuners.cleaning import Cleaned, per_example_weights
from rfho2.keras_bridge.tuners.offline import Tuned, tune
from rfho2.keras_bridge.tuners.real_time_tuner import RealTimeTuner
from rfho2.keras_bridge.wrapping.model import KerasModel, from_keras

__all__ = [
    "Cleaned",
    "KerasModel",
    "KnotCallback",
    "KnotSchedule",
    "RealTimeTuner",
    "ScaledSchedule",
    "Tuned",
    "cross_entropy",
    "from_keras",
    "per_example_weights",
    "tune",
]

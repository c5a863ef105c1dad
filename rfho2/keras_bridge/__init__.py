"""Keras models: as pure functions, tuned in real time or offline, and their training data cleaned."""

from rfho2.keras_bridge.cleaning import Cleaned, per_example_weights
from rfho2.keras_bridge.losses import cross_entropy
from rfho2.keras_bridge.model import KerasModel, from_keras
from rfho2.keras_bridge.offline import Tuned, tune
from rfho2.keras_bridge.real_time_tuner import RealTimeTuner

__all__ = [
    "Cleaned",
    "KerasModel",
    "RealTimeTuner",
    "Tuned",
    "cross_entropy",
    "from_keras",
    "per_example_weights",
    "tune",
]

"""Callbacks that display and record a run."""

from rfho2.monitor.base import Callback
from rfho2.monitor.csv_logger import CSVLogger
from rfho2.monitor.progress import ProgressBar
from rfho2.monitor.tensorboard import TensorBoard

__all__ = ["CSVLogger", "Callback", "ProgressBar", "TensorBoard"]

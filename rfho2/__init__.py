"""rfho2: gradient-based hyperparameter optimisation for TensorFlow 2.

Training is a dynamical system s_t = Phi_t(s_{t-1}, lambda). The gradient of a validation error with respect to the
hyperparameters lambda is computed exactly: backwards, forwards, or in real time while training continues.

"The paper" is Forward and Reverse Gradient-Based Hyperparameter Optimization, by Franceschi, Donini, Frasconi and Pontil,
ICML 2017.
"""

from typing import TYPE_CHECKING, Any

from rfho2 import batches, distribute, memory
from rfho2.constraints.sets import Box, BoxL1Ball, Constraint, L1Ball, L2Ball, NonNegative, Simplex, SymmetricNonNegative
from rfho2.core.errors import DivergenceError
from rfho2.core.ops import cross_entropy, fixed_product
from rfho2.core.recompute import recompute
from rfho2.core.recompute_layers import recompute_layers
from rfho2.core.types import Best, HyperGradient, Hypers, Nest, Result, Run
from rfho2.driver.checkpoint_store import CheckpointError
from rfho2.driver.hyper_optimizer import HyperOptimizer
from rfho2.driver.locks import InUseError
from rfho2.driver.projected_adam import HyperUpdate, projected_adam
from rfho2.dynamics.accumulation import accumulated
from rfho2.dynamics.adadelta import adadelta
from rfho2.dynamics.adafactor import adafactor
from rfho2.dynamics.adagrad import adagrad
from rfho2.dynamics.adam import adam, adamw
from rfho2.dynamics.adamax import adamax
from rfho2.dynamics.averaging import averaged
from rfho2.dynamics.base import Dynamics
from rfho2.dynamics.clipping import clipped
from rfho2.dynamics.gradient_descent import gradient_descent
from rfho2.dynamics.lamb import lamb
from rfho2.dynamics.lion import lion
from rfho2.dynamics.momentum import momentum, nesterov
from rfho2.dynamics.muon import muon
from rfho2.dynamics.nadam import nadam
from rfho2.dynamics.rmsprop import rmsprop
from rfho2.hypergradients.average import average
from rfho2.hypergradients.check import Check, check_hypergradient
from rfho2.hypergradients.engine import Engine
from rfho2.hypergradients.forward import forward
from rfho2.hypergradients.implicit import implicit
from rfho2.hypergradients.real_time import real_time
from rfho2.hypergradients.reverse import reverse
from rfho2.monitor.base import Callback
from rfho2.monitor.csv_logger import CSVLogger
from rfho2.monitor.plot import plot
from rfho2.monitor.progress_bar import ProgressBar
from rfho2.monitor.tensorboard import TensorBoard
from rfho2.planning.auto import auto
from rfho2.planning.plan import Plan, plan
from rfho2.problem import Objective, Problem, RunningCost

if TYPE_CHECKING:
    from rfho2.keras_bridge import (
        Cleaned,
        KerasModel,
        KnotCallback,
        KnotSchedule,
        RealTimeTuner,
        ScaledSchedule,
        Tuned,
        from_keras,
        per_example_weights,
        tune,
    )

__version__ = "1.1.0"

__all__ = [
    "Best",
    "Box",
    "BoxL1Ball",
    "CSVLogger",
    "Callback",
    "Check",
    "CheckpointError",
    "Cleaned",
    "Constraint",
    "DivergenceError",
    "Dynamics",
    "Engine",
    "HyperGradient",
    "HyperOptimizer",
    "HyperUpdate",
    "Hypers",
    "InUseError",
    "KerasModel",
    "KnotCallback",
    "KnotSchedule",
    "L1Ball",
    "L2Ball",
    "Nest",
    "NonNegative",
    "Objective",
    "Plan",
    "Problem",
    "ProgressBar",
    "RealTimeTuner",
    "Result",
    "Run",
    "RunningCost",
    "ScaledSchedule",
    "Simplex",
    "SymmetricNonNegative",
    "TensorBoard",
    "Tuned",
    "accumulated",
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "auto",
    "average",
    "averaged",
    "batches",
    "check_hypergradient",
    "clipped",
    "cross_entropy",
    "distribute",
    "fixed_product",
    "forward",
    "from_keras",
    "gradient_descent",
    "implicit",
    "lamb",
    "lion",
    "memory",
    "momentum",
    "muon",
    "nadam",
    "nesterov",
    "per_example_weights",
    "plan",
    "plot",
    "projected_adam",
    "real_time",
    "recompute",
    "recompute_layers",
    "reverse",
    "rmsprop",
    "tune",
]


def __dir__() -> list[str]:
    """The public names, with those of the Keras bridge."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Imports the Keras bridge when one of its names is first used, because Keras takes long to import."""
    if name in __all__:
        from rfho2 import keras_bridge

        return getattr(keras_bridge, name)
    raise AttributeError(f"module 'rfho2' has no attribute '{name}'")

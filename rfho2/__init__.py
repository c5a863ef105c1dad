"""rfho2: gradient-based hyperparameter optimisation for TensorFlow 2.

Training is a dynamical system s_t = Phi_t(s_{t-1}, lambda); the gradient of a validation error by the hyperparameters lambda
is computed exactly, backwards, forwards, or in real time while training goes on.

"The paper" is Forward and Reverse Gradient-Based Hyperparameter Optimization, by Franceschi, Donini, Frasconi and Pontil,
ICML 2017.
"""

from rfho2 import batches
from rfho2.constraints import (
    Box,
    BoxL1Ball,
    Constraint,
    L1Ball,
    L2Ball,
    NonNegative,
    Simplex,
    SymmetricNonNegative,
)
from rfho2.dynamics import Dynamics, adagrad, adam, adamw, fixed_product, gradient_descent, momentum, nesterov, rmsprop
from rfho2.errors import DivergenceError
from rfho2.hyper_optimizer import HyperOptimizer
from rfho2.hypergradients import Check, Engine, check_hypergradient, forward, real_time, reverse
from rfho2.monitor import Callback, CSVLogger, ProgressBar, TensorBoard
from rfho2.planner import Plan, auto, plan
from rfho2.problem import Objective, Problem, RunningCost
from rfho2.projected_adam import HyperUpdate, projected_adam
from rfho2.types import Best, HyperGradient, Result, Run

__version__ = "0.1.0"

__all__ = [
    "Best",
    "Box",
    "BoxL1Ball",
    "CSVLogger",
    "Callback",
    "Check",
    "Constraint",
    "DivergenceError",
    "Dynamics",
    "Engine",
    "HyperGradient",
    "HyperOptimizer",
    "HyperUpdate",
    "L1Ball",
    "L2Ball",
    "NonNegative",
    "Objective",
    "Plan",
    "Problem",
    "ProgressBar",
    "Result",
    "Run",
    "RunningCost",
    "Simplex",
    "SymmetricNonNegative",
    "TensorBoard",
    "adagrad",
    "adam",
    "adamw",
    "auto",
    "batches",
    "check_hypergradient",
    "fixed_product",
    "forward",
    "gradient_descent",
    "momentum",
    "nesterov",
    "plan",
    "projected_adam",
    "real_time",
    "reverse",
    "rmsprop",
]

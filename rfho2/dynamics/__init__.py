"""Inner optimisers, each a pure step whose settings are all differentiable."""

from rfho2.core.ops import fixed_product
from rfho2.dynamics.adagrad import AdagradState, adagrad
from rfho2.dynamics.adam import AdamState, adam, adamw
from rfho2.dynamics.base import Dynamics
from rfho2.dynamics.gradient_descent import MomentumState, gradient_descent, momentum, nesterov
from rfho2.dynamics.rmsprop import RMSPropState, rmsprop

__all__ = [
    "AdagradState",
    "AdamState",
    "Dynamics",
    "MomentumState",
    "RMSPropState",
    "adagrad",
    "adam",
    "adamw",
    "fixed_product",
    "gradient_descent",
    "momentum",
    "nesterov",
    "rmsprop",
]

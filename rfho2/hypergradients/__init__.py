"""Hypergradient methods, each one file with the same signature."""

from rfho2.hypergradients.check import Check, check_hypergradient
from rfho2.hypergradients.engine import Engine
from rfho2.hypergradients.forward import forward
from rfho2.hypergradients.real_time import RealTimeCarry, real_time
from rfho2.hypergradients.reverse import reverse

__all__ = ["Check", "Engine", "RealTimeCarry", "check_hypergradient", "forward", "real_time", "reverse"]

"""The outer loop: hypergradients in, updated hypers out, with checkpoints, recovery and clean interruption."""

from rfho2.driver.checkpoint_store import CheckpointError
from rfho2.driver.hyper_optimizer import HyperOptimizer
from rfho2.driver.locks import InUseError
from rfho2.driver.projected_adam import HyperUpdate, projected_adam

__all__ = ["CheckpointError", "HyperOptimizer", "HyperUpdate", "InUseError", "projected_adam"]

"""Training with fixed hypers, and in real time.

The methods see only the training and validation speakers. Their caller tests the result once, after they have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tensorflow.experimental.dtensor import Mesh

import rfho2 as rf
from experiments.common.networks import Params
from experiments.common.plain_training import fixed, plain_training
from experiments.phone_classification import network
from experiments.phone_classification.config import PhoneTraining
from experiments.phone_classification.network import Speech
from experiments.phone_classification.stopping import History, Stop, any_of, learning_rate_gone, out_of_time, stalled
from rfho2.core.types import Hypers, Nest

TAUGHT = {"rho": 1.6, "eta": 0.075, "mu": 0.5}  # Badino (2016)
ALONE = {"rho": 0.0, "eta": 0.075, "mu": 0.5}
NULL_TEACHER = {"rho": 0.0, "eta": 0.0, "mu": 0.0}
CONSTRAINTS = {"rho": rf.NonNegative(), "eta": rf.NonNegative(), "mu": rf.Box(0.0, 1.0)}
UNLIMITED = 10**9  # hyper-batches, where minutes are the budget


class Outcome(NamedTuple):
    """The result of a method.

    Attributes:
      kept: the params of the best validation accuracy; last: those at the end (of a search: the same).
      hypers: those that led to `kept`.
      curve: rows of {"steps", "seconds", "validation accuracy", ...}; of a search, the best so far.
    """

    kept: Params
    last: Params
    hypers: dict[str, float]
    curve: History


class Trainer:
    """Trains one network on one split with one seed, plainly (`plain`) or in real time (`tuned`)."""

    def __init__(
        self,
        training: PhoneTraining,
        data: Speech,
        seed: int,
        jit_compile: bool | None = None,
        mesh: Mesh | None = None,
        dynamics: rf.Dynamics | None = None,
        discount: float = 1.0,
    ):
        self.training, self.seed = training, seed
        sizes = training.batch_size, training.validation_size, seed
        self.problem = network.problem(data, *sizes, dynamics)
        self.metrics = _metrics(self.problem, data)
        inputs, outputs = data.inputs(data.train[:1]).shape[1], data.table.shape[1]
        self.params = network.initial_params(inputs, outputs, training.width, training.layers, seed)
        self.plain = plain_training(self.problem, training.hyper_batch, jit_compile)
        if mesh is None:
            self.tuned: rf.Engine = rf.real_time(
                self.problem, training.hyper_batch, training.carry, jit_compile, discount=discount
            )
        else:
            divided = network.divided(data, *sizes, mesh)
            engine = rf.real_time(divided, training.hyper_batch, training.carry, jit_compile)
            self.tuned = rf.distribute.on_mesh(engine, mesh)

    def run(
        self,
        engine: Any,
        update: rf.HyperUpdate,
        hypers: Hypers,
        stop: Stop | None,
        iterations: int,
        callbacks: Sequence[rf.Callback] = (),
        directory: Path | None = None,
    ) -> rf.Result:
        """One training; if it diverges, the result up to there."""
        tuner = rf.HyperOptimizer(engine, update, callbacks, self.metrics, best_by="validation error rate", stop=stop)
        checkpoints = directory and directory / "checkpoints"
        try:
            return tuner.run(self.params, hypers, iterations, checkpoints, checkpoint_every=self.training.checkpoint_every)
        except rf.DivergenceError as error:
            if error.result is None:
                raise
            return error.result

    def outcome(self, result: rf.Result) -> Outcome:
        """The outcome of one training."""
        if result.best is None:  # it diverged at once: only the initial network is left
            return Outcome(self.params, self.params, {k: float(h) for k, h in result.hypers.items()}, [])
        rows = [row | {"steps": (row["iteration"] + 1) * self.training.hyper_batch} for row in result.history]
        kept, last = (self.problem.dynamics.params(state) for state in (result.best.state, result.state))
        return Outcome(kept, last, {k: float(h) for k, h in result.best.hypers.items()}, rows)

    def iterations(self, factor: int) -> int:
        """Hyper-batches in `factor` times the budget of steps."""
        training = self.training
        return UNLIMITED if training.minutes is not None else -(-factor * training.steps // training.hyper_batch)


def _metrics(problem: rf.Problem, data: Speech) -> Callable[[Nest, Hypers, int], dict[str, Any]]:
    """Accuracies on the validation frames and on a fixed subset of the training frames."""
    accuracy = network.accuracy_on(data)
    subset = data.train[:: max(1, len(data.train) // network.CHUNK)][: network.CHUNK]

    def metrics(state: Nest, hypers: Hypers, k: int) -> dict[str, Any]:
        p = problem.dynamics.params(state)
        training, validation = float(accuracy(p, subset)), float(accuracy(p, data.validation))
        return {
            "training accuracy": training,
            "validation accuracy": validation,
            "validation error rate": 1 - validation,
        }

    return metrics


def fixed_hypers(
    trainer: Trainer,
    hypers: Hypers,
    callbacks: Sequence[rf.Callback] = (),
    directory: Path | None = None,
    early: bool = True,
) -> Outcome:
    """Training with these hypers until early stopping, or without that to the end of the budget."""
    stop = any_of(out_of_time(trainer.training), *([stalled(trainer.training)] if early else []))
    iterations = trainer.iterations(trainer.training.plain_factor)
    return trainer.outcome(trainer.run(trainer.plain, fixed, hypers, stop, iterations, callbacks, directory))


def real_time(
    trainer: Trainer, hypers: Hypers, callbacks: Sequence[rf.Callback] = (), directory: Path | None = None
) -> Outcome:
    """Training that tunes the hypers along the way, until the learning rate stays 0 or the budget is used up."""
    update = rf.projected_adam(trainer.training.hyper_rate, CONSTRAINTS)
    stop = any_of(out_of_time(trainer.training), learning_rate_gone)
    return trainer.outcome(trainer.run(trainer.tuned, update, hypers, stop, trainer.iterations(1), callbacks, directory))

"""The methods that are compared on phone classification: fixed hypers, searches over them, and real time.

All see the training and validation speakers only. What they keep is tested by the caller, once, when they have ended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tensorflow.experimental.dtensor import Mesh

import rfho2 as rf
from experiments.common.plain_training import PlainTraining, fixed
from experiments.phone_classification import network as phone_network
from experiments.phone_classification.network import Params, Speech
from rfho2.core.types import Hypers, Nest

History = list[dict[str, float]]
TAUGHT = {"rho": 1.6, "eta": 0.075, "mu": 0.5}  # Badino (2016)
ALONE = {"rho": 0.0, "eta": 0.075, "mu": 0.5}
NULL_TEACHER = {"rho": 0.0, "eta": 0.0, "mu": 0.0}
CONSTRAINTS = {"rho": rf.NonNegative(), "eta": rf.NonNegative(), "mu": rf.Box(0.0, 1.0)}
GONE = 5  # hyper-batches with a learning rate of 0, after which real time ends


@dataclasses.dataclass(frozen=True)
class Training:
    """What all methods share.

    Attributes:
      width, layers: of the shared part of the network.
      batch_size: frames in a minibatch.
      hyper_batch: Delta, the steps between two hypergradients, and between two looks at the validation set.
      hyper_rate: learning rate of projected Adam on the hypers.
      validation_size: frames of the fresh subset that each hypergradient looks at.
      carry: keep Z across updates of the hypers, as the paper's code does; without it the learning rate decays sooner.
      steps: the budget: training steps in real time.
      plain_factor: runs with fixed hypers, and searches over them, have so many times as many steps, because a step in real
        time takes about so many times as long.
      minutes: the budget in time instead, the same for every method; None counts steps.
      patience, improvement: early stopping of runs with fixed hypers, after so many looks at the validation set without a
        relative improvement of its accuracy by so much.
      checkpoint_every: hyper-batches between checkpoints; nothing else depends on it.
    """

    width: int = 64
    layers: int = 4
    batch_size: int = 500
    hyper_batch: int = 20
    hyper_rate: float = 0.01
    validation_size: int = 1000
    carry: bool = False
    steps: int = 1000
    plain_factor: int = 6
    minutes: float | None = None
    patience: int = 10
    improvement: float = 0.01
    checkpoint_every: int = 10


class Outcome(NamedTuple):
    """What a method came to.

    Attributes:
      kept: the params of best validation accuracy; last: those at its end (of a search: the same).
      hypers: those that led to `kept`.
      curve: rows of {"steps", "seconds", "validation accuracy", ...}; of a search, the best so far.
    """

    kept: Params
    last: Params
    hypers: dict[str, float]
    curve: History


class Bench:
    """One network on one split with one seed: what the methods run on."""

    def __init__(
        self, training: Training, data: Speech, seed: int, jit_compile: bool | None = None, mesh: Mesh | None = None
    ):
        self.training, self.seed = training, seed
        sizes = training.batch_size, training.validation_size, seed
        self.problem = phone_network.problem(data, *sizes)
        inputs, outputs = data.inputs(data.train[:1]).shape[1], data.table.shape[1]
        self.params = phone_network.network(inputs, outputs, training.width, training.layers, seed)
        accuracy, some = phone_network.accuracy_on(data), data.train[:: max(1, len(data.train) // phone_network.CHUNK)]

        def metrics(state: Nest, hypers: Hypers, k: int) -> dict[str, Any]:
            p = self.problem.dynamics.params(state)
            found = float(accuracy(p, data.validation))
            train = float(accuracy(p, some[: phone_network.CHUNK]))
            return {"training accuracy": train, "validation accuracy": found, "validation error rate": 1 - found}

        self.metrics = metrics
        self.plain = PlainTraining(self.problem, training.hyper_batch, jit_compile)
        if mesh is None:
            self.tuned: rf.Engine = rf.real_time(self.problem, training.hyper_batch, training.carry, jit_compile)
        else:
            divided = phone_network.divided(data, *sizes, mesh)
            engine = rf.real_time(divided, training.hyper_batch, training.carry, jit_compile)
            self.tuned = rf.distribute.on_mesh(engine, mesh)

    def run(
        self,
        engine: Any,
        update: rf.HyperUpdate,
        hypers: Hypers,
        stop: Callable[[History], bool] | None,
        iterations: int,
        callbacks: Sequence[rf.Callback] = (),
        directory: Path | None = None,
    ) -> rf.Result:
        """One training; what diverges ends there, with what it had."""
        tuner = rf.HyperOptimizer(engine, update, callbacks, self.metrics, best_by="validation error rate", stop=stop)
        place = directory and directory / "checkpoints"
        try:
            return tuner.run(self.params, hypers, iterations, place, checkpoint_every=self.training.checkpoint_every)
        except rf.DivergenceError as error:
            if error.result is None:
                raise
            return error.result

    def outcome(self, result: rf.Result) -> Outcome:
        """Of one training."""
        if result.best is None:  # diverged at once: nothing but the initial network is left
            return Outcome(self.params, self.params, {k: float(h) for k, h in result.hypers.items()}, [])
        rows = [row | {"steps": (row["iteration"] + 1) * self.training.hyper_batch} for row in result.history]
        kept, last = (self.problem.dynamics.params(state) for state in (result.best.state, result.state))
        return Outcome(kept, last, {k: float(h) for k, h in result.best.hypers.items()}, rows)

    def iterations(self, factor: int) -> int:
        """Hyper-batches in the budget, which has `factor` times as many steps."""
        t = self.training
        return 10**9 if t.minutes is not None else -(-factor * t.steps // t.hyper_batch)


def fixed_hypers(
    bench: Bench, hypers: Hypers, callbacks: Sequence[rf.Callback] = (), directory: Path | None = None, early: bool = True
) -> Outcome:
    """Training with these hypers: until early stopping, or to the end of the budget."""
    stop = any_of(out_of_time(bench.training), *([stalled(bench.training)] if early else []))
    iterations = bench.iterations(bench.training.plain_factor)
    return bench.outcome(bench.run(bench.plain, fixed, hypers, stop, iterations, callbacks, directory))


def real_time(bench: Bench, hypers: Hypers, callbacks: Sequence[rf.Callback] = (), directory: Path | None = None) -> Outcome:
    """Hypers that move while the network trains, until the learning rate is gone or the budget is."""
    update = rf.projected_adam(bench.training.hyper_rate, CONSTRAINTS)
    stop = any_of(out_of_time(bench.training), learning_rate_gone)
    return bench.outcome(bench.run(bench.tuned, update, hypers, stop, bench.iterations(1), callbacks, directory))


def any_of(*reasons: Callable[[History], bool]) -> Callable[[History], bool]:
    """Stops for any of these."""
    return lambda history: any(reason(history) for reason in reasons)


def out_of_time(training: Training) -> Callable[[History], bool]:
    """Whether the minutes are over, if they count."""
    return lambda history: training.minutes is not None and bool(history) and history[-1]["seconds"] >= 60 * training.minutes


def stalled(training: Training) -> Callable[[History], bool]:
    """Early stopping: no look at the validation set, of the last few, was better than those before by enough."""

    def stop(history: History) -> bool:
        best, since = 0.0, 0
        for row in history:
            better = row["validation accuracy"] > best * (1 + training.improvement)
            best, since = (row["validation accuracy"], 0) if better else (best, since + 1)
        return since >= training.patience

    return stop


def learning_rate_gone(history: History) -> bool:
    """Whether eta, once positive, has been exactly 0 for the last hyper-batches: nothing moves any more."""
    rates = [row["eta"] for row in history]
    return len(rates) > GONE and not any(rates[-GONE:]) and any(rates)

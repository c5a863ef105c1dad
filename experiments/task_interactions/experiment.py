"""Learning task interactions: a few validation examples decide which classes should have similar weights.

A linear classifier has few examples of each class. Its classes are tasks: the regulariser pulls the weights of classes j and
k together by C_jk, and rho pulls all weights to 0. C and rho minimise the error on a few validation examples, by Reverse-HG
and projected Adam. The hypers of the best validation accuracy are kept (the first, in a tie). Their model is tested as it
is, and after a re-fit on the training and validation examples together.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rfho2 as rf
from data import cifar_features
from data.errors import DataError
from experiments.common import meshes
from experiments.common.config import setting
from experiments.task_interactions import models, output_kernels
from rfho2.core.types import Hypers, Nest

COMPARED: dict[str, Callable[..., output_kernels.Fitted]] = {
    "Dinuzzo": output_kernels.dinuzzo,
    "Jawanpuria p=2": functools.partial(output_kernels.jawanpuria, p=2.0),
    "Jawanpuria p=4/3": functools.partial(output_kernels.jawanpuria, p=4 / 3),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results on one data set depend on."""

    dataset: str = setting("cifar10", "One data set instead of all of the preset.", choices=sorted(cifar_features.CLASSES))
    methods: tuple[str, ...] = setting(
        ("STL", "NMTL", "HMTL", "HMTL-S"), "Repeat the flag for several methods.", choices=(*models.METHODS, *COMPARED)
    )
    seeds: tuple[int, ...] = setting((0, 1), "Seeds of the splits; every method runs on each split.", at_least=0)
    per_class: int = setting(5, "Examples of each class to train on, and as many to validate on.", at_least=1)
    steps: int = setting(300, "T: inner steps.", at_least=1)
    learning_rate: float = setting(0.1, "Inner learning rate.", at_least=0.0)
    momentum: float = setting(0.9, "Inner momentum.", at_least=0.0, at_most=1.0)
    hyper_iterations: int = setting(150, "Updates of the hypers.", at_least=1)
    rate: float = setting(1e-3, "Learning rate of projected Adam on rho; C's is derived from it.", at_least=0.0)
    totals: tuple[float, ...] = setting((1e-3,), "Bounds R on the sum of C, one HMTL-S run for each.", at_least=0.0)
    tune_optimizer: bool = setting(False, "Also tune the learning rate and the momentum, on the training error.")
    source: str = setting("embedded", "Where the features come from.", choices=cifar_features.SOURCES)
    features_file: str | None = setting(None, "With --source=file: an .npz file of features.")

    @property
    def name(self) -> str:
        """The name of the data set in tables and directories."""
        return f"{self.dataset}, {self.per_class} per class"

    @property
    def settings(self) -> dict[str, Any]:
        """What a single run depends on, apart from its method, split and R, which its directory is named after.

        `hyper_iterations` is not part of it, because a finished run can be extended.
        """
        omitted = ("methods", "seeds", "totals", "hyper_iterations")
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in omitted}

    @property
    def training(self) -> models.Training:
        """The inner training."""
        return models.Training(self.steps, self.learning_rate, self.momentum, self.tune_optimizer)


PRESETS = {
    "quick": (Config(),),
    "paper": (
        Config(methods=(*models.METHODS, *COMPARED), seeds=tuple(range(20))),
        Config("cifar100", models.METHODS, tuple(range(5)), 3, hyper_iterations=100, source="file"),
    ),
    "totals": (Config(methods=("STL-1", "HMTL-S"), seeds=tuple(range(5)), totals=(1e-4, 1e-3, 1e-2, 1e-1, 1.0)),),
}
FULL = {"steps": 3000, "learning_rate": 0.01, "hyper_iterations": 250}

Row = dict[str, Any]
Callbacks = Callable[[str, int, Path | None], Sequence[rf.Callback]]
"""(method, seed, directory of the run) -> callbacks for the run."""


class MethodRun(NamedTuple):
    """One method on one split: its row of the results file, its interactions if it learns any, and how long it took.

    `pace` is the median number of seconds of a hyper-iteration, None for methods that have no hyper-iterations.
    """

    method: str
    seed: int
    row: Row
    interactions: np.ndarray | None
    seconds: float
    pace: float | None

    @property
    def title(self) -> str:
        """Its name among the times."""
        return f"{self.method} seed {self.seed}"


class Outcome(NamedTuple):
    """Rows of the results file; the kept C by (method, seed); seconds of each run, and of a hyper-iteration in it."""

    results: list[Row]
    interactions: dict[tuple[str, int], np.ndarray]
    timing: dict[str, float]
    pace: dict[str, float]


def choose_configs(preset: Sequence[Config], changes: dict[str, Any]) -> tuple[Config, ...]:
    """The data sets of a preset (or the one that `changes` asks for), with the changed settings."""
    chosen = [c for c in preset if c.dataset == changes.get("dataset", c.dataset)]
    if not chosen:  # the preset does not have it
        chosen = [Config(per_class=cifar_features.PER_CLASS[changes["dataset"]])]
    if "features_file" in changes and "source" not in changes:
        if "dataset" not in changes:  # one file cannot be all data sets
            chosen = [c for c in chosen if c.source == "file"] or chosen
        changes = {**changes, "source": "file"}
    changed = [dataclasses.replace(config, **changes) for config in chosen]
    return tuple({config.name: config for config in reversed(changed)}.values())[::-1]  # the first of each name


def find_features(config: Config) -> cifar_features.Features:
    """The features of a data set. CIFAR-100 is not distributed: the error then tells how to do without it."""
    try:
        return cifar_features.find(config.dataset, config.source, config.features_file)
    except DataError as error:
        raise DataError(f"{error} Or leave it out: --dataset=cifar10.") if config.dataset == "cifar100" else error from None


def tune(
    config: Config,
    method: models.Method,
    split: cifar_features.Split,
    callbacks: Sequence[rf.Callback] = (),
    directory: Path | None = None,
    resume: bool = True,
    engine: rf.Engine | None = None,
) -> rf.Result:
    """Tunes the hypers of one method on one split; `best` is the hyper-iteration with the fewest validation errors.

    Args:
      engine: computes the hypergradients of this split, if it was made before.
    """
    tuned = models.with_optimizer(method, config.training, config.rate) if config.tune_optimizer else method
    if engine is None:
        problem = models.problem(config.training, split.train, split.validation, tuple(method.hypers), meshes.divided)
        engine = meshes.on_mesh(rf.reverse(problem))
    params_of = engine.problem.dynamics.params

    def metrics(state: Nest, hypers: Hypers, k: int) -> dict[str, Any]:
        return _measured(params_of(state), hypers, split)

    tuner = rf.HyperOptimizer(
        engine,
        rf.projected_adam(tuned.rates, tuned.constraints),
        callbacks,
        metrics,
        best_by="validation errors",
    )
    checkpoints = directory and directory / "checkpoints"
    start = models.zeros(split.train, models.classes(split))
    return tuner.run(start, tuned.hypers, config.hyper_iterations, checkpoints, resume, checkpoint_every=10)


def _measured(p: Nest, hypers: Hypers, split: cifar_features.Split) -> dict[str, Any]:
    """Accuracies, and the constraints on C as they hold in floating point."""
    share = models.accuracy(p, split.validation)
    measured = {
        "validation accuracy": share,
        "validation errors": round((1 - share) * len(split.validation.labels)),
        "test accuracy": models.accuracy(p, split.test),
    }
    if "C" in hypers:
        c = hypers["C"].numpy()
        measured |= {"C/sum": c.sum(dtype=np.float64), "C/least": c.min(), "C/asymmetry": np.abs(c - c.T).max()}
    return measured


def run(
    config: Config,
    data: Callable[[int], cifar_features.Split],
    callbacks: Callbacks = lambda method, seed, directory: (),
    output: Path | None = None,
    resume: bool = True,
) -> Outcome:
    """Runs all methods on all splits; `data` maps a seed to its split."""
    runs = []
    for seed in config.seeds:
        split = data(seed)
        for name, total in _methods_and_totals(config):
            if name in COMPARED:
                runs.append(run_compared(config, name, seed, split))
            else:
                label = name if len(config.totals) == 1 or name != "HMTL-S" else f"HMTL-S R={total:g}"
                method = models.method(name, models.classes(split), config.rate, total)
                directory = output and output / "runs" / f"{label}-split-{seed}"
                result = tune(config, method, split, callbacks(label, seed, directory), directory, resume)
                runs.append(tested(config, label, seed, split, result, models.refit))
    return Outcome(
        [run.row for run in runs],
        {(run.method, run.seed): run.interactions for run in runs if run.interactions is not None},
        {run.title: run.seconds for run in runs},
        {run.title: run.pace for run in runs if run.pace is not None},
    )


def _methods_and_totals(config: Config) -> list[tuple[str, float]]:
    """(method, R) in the order of the table."""
    return [(m, r) for m in config.methods for r in (config.totals if m == "HMTL-S" else config.totals[:1])]


def run_compared(config: Config, name: str, seed: int, split: cifar_features.Split) -> MethodRun:
    """A method that learns its interactions as model parameters."""
    began = time.perf_counter()
    fitted = COMPARED[name](*split)
    row = _row(config, name, seed, fitted.validation_accuracy, fitted.accuracy, fitted.accuracy_refit)
    return MethodRun(name, seed, row, fitted.interactions, time.perf_counter() - began, None)


def tested(
    config: Config,
    name: str,
    seed: int,
    split: cifar_features.Split,
    result: rf.Result,
    refit: Callable[[models.Training, cifar_features.Split, Hypers], Nest],
) -> MethodRun:
    """The kept hypers of a tuned method, tested without and with a re-fit."""
    best = result.best
    assert best is not None
    kept = result.history[best.iteration]
    refitted = models.accuracy(refit(config.training, split, best.hypers), split.test)
    row = _row(config, name, seed, kept["validation accuracy"], kept["test accuracy"], refitted)
    row |= {"kept": best.iteration, "rho": float(np.mean(best.hypers["rho"])), "C/sum": kept.get("C/sum")}
    interactions = best.hypers["C"].numpy() if "C" in best.hypers else None
    seconds = [record["seconds"] for record in result.history]
    pace = float(np.median(np.diff([0.0, *seconds])))  # the median, because the first one compiles or resumes
    return MethodRun(name, seed, row, interactions, seconds[-1], pace)


def _row(config: Config, method: str, seed: int, validation: float, test: float, refitted: float) -> Row:
    accuracies = {"validation_accuracy": validation, "accuracy": test, "accuracy_refit": refitted}
    return {"data": config.name, "method": method, "seed": seed, **accuracies}

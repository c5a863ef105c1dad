"""Learning task interactions (paper, 5.2 and Appendix B): which classes help each other. Tables 2 and 4, Figure 3.

    python -m experiments.task_interactions --preset=quick
    python -m experiments.task_interactions --preset=paper --output_dir=results/task_interactions_paper

A linear classifier has few examples of each class. Its classes are tasks: the regulariser pulls the weights of classes j and
k together by C_jk, and rho pulls all to 0. C and rho minimise the error on a few validation examples, by Reverse-HG and
projected Adam. The hypers of the best validation accuracy (the first, if several have it) are kept; the model that they give
is tested as it is, and after a re-fit on training and validation examples together.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import flags

import rfho2 as rf
from data import cifar_features
from data.errors import DataError
from experiments.common import binary as common
from experiments.common import meshes
from experiments.task_interactions import models as multitask
from experiments.task_interactions import output_kernels, report
from rfho2.core.types import Hypers, Nest

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results on one data set depend on.

    Attributes:
      dataset: "cifar10" or "cifar100".
      methods: those of `multitask.METHODS` and `COMPARED`.
      seeds: splits, the same for all methods.
      per_class: examples of each class to train on, and as many for validation.
      steps, learning_rate, momentum: of the inner training.
      hyper_iterations: updates of the hypers.
      rate: of projected Adam on rho; C moves slower (`multitask.method`).
      totals: the bounds R on the sum of C, one HMTL-S run for each.
      tune_optimizer: learning rate and momentum are tuned as well, on the training error.
      source, features_file: see `cifar_features.find`.
    """

    dataset: str = "cifar10"
    methods: tuple[str, ...] = ("STL", "NMTL", "HMTL", "HMTL-S")
    seeds: tuple[int, ...] = (0, 1)
    per_class: int = 5
    steps: int = 300
    learning_rate: float = 0.1
    momentum: float = 0.9
    hyper_iterations: int = 150
    rate: float = 1e-3
    totals: tuple[float, ...] = (1e-3,)
    tune_optimizer: bool = False
    source: str = "embedded"
    features_file: str | None = None

    @property
    def name(self) -> str:
        """How tables and directories call it."""
        return f"{self.dataset}, {self.per_class} per class"

    @property
    def settings(self) -> dict[str, Any]:
        """What a run depends on, apart from its method, split and R, which its directory is named after."""
        free = ("methods", "seeds", "totals", "hyper_iterations")
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in free}

    @property
    def training(self) -> multitask.Training:
        """The inner training."""
        return multitask.Training(self.steps, self.learning_rate, self.momentum, self.tune_optimizer)


COMPARED: dict[str, Callable[..., output_kernels.Found]] = {
    "Dinuzzo": output_kernels.dinuzzo,
    "Jawanpuria p=2": functools.partial(output_kernels.jawanpuria, p=2.0),
    "Jawanpuria p=4/3": functools.partial(output_kernels.jawanpuria, p=4 / 3),
}

_PAPER = Config(methods=(*multitask.METHODS, *COMPARED), seeds=tuple(range(20)))
PRESETS = {
    "quick": (Config(),),
    "paper": (
        _PAPER,
        Config("cifar100", multitask.METHODS, tuple(range(5)), 3, hyper_iterations=100, source="file"),
    ),
    "totals": (Config(methods=("STL-1", "HMTL-S"), seeds=tuple(range(5)), totals=(1e-4, 1e-3, 1e-2, 1e-1, 1.0)),),
}
FULL = {"steps": 3000, "learning_rate": 0.01, "hyper_iterations": 250}

Callbacks = Callable[[str, int, Path | None], Sequence[rf.Callback]]
"""(method, seed, directory of the run) -> callbacks for it."""


class Outcome(NamedTuple):
    """Rows of the results file, the kept C by (method, seed), and seconds of each run and of a hyper-iteration of it."""

    results: list[dict[str, Any]]
    interactions: dict[tuple[str, int], np.ndarray]
    timing: dict[str, float]
    pace: dict[str, float]


def tune(
    config: Config,
    method: multitask.Method,
    split: cifar_features.Split,
    callbacks: Sequence[rf.Callback] = (),
    directory: Path | None = None,
    resume: bool = True,
) -> rf.Result:
    """One method on one split; `best` is the hyper-iteration of least validation errors."""
    m = multitask.with_optimizer(method, config.training, config.rate) if config.tune_optimizer else method
    problem = multitask.problem(config.training, split.train, split.validation, tuple(method.hypers), meshes.divided)
    engine = meshes.on_mesh(rf.reverse(problem))
    tasks = int(split.train.labels.max()) + 1

    def metrics(state: Nest, hypers: Hypers, k: int) -> dict[str, Any]:
        p = problem.dynamics.params(state)
        right = multitask.accuracy(p, split.validation)
        found = {
            "validation accuracy": right,
            "validation errors": round((1 - right) * len(split.validation.labels)),
            "test accuracy": multitask.accuracy(p, split.test),
        }
        if "C" in hypers:
            c = hypers["C"].numpy()
            found |= {"C/sum": c.sum(dtype=np.float64), "C/least": c.min(), "C/asymmetry": np.abs(c - c.T).max()}
        return found

    tuner = rf.HyperOptimizer(
        engine, rf.projected_adam(m.rates, m.constraints), callbacks, metrics, best_by="validation errors"
    )
    checkpoints = directory and directory / "checkpoints"
    start = multitask.zeros(split.train, tasks)
    return tuner.run(start, m.hypers, config.hyper_iterations, checkpoints, resume, checkpoint_every=10)


def run(
    config: Config,
    data: Callable[[int], cifar_features.Split],
    callbacks: Callbacks = lambda method, seed, directory: (),
    output: Path | None = None,
    resume: bool = True,
) -> Outcome:
    """All methods on all splits; `data` gives the split of a seed."""
    results: list[dict[str, Any]] = []
    interactions, timing, pace = {}, {}, {}
    for seed in config.seeds:
        split = data(seed)
        tasks = int(split.train.labels.max()) + 1
        for name, total in _runs(config):
            began = time.perf_counter()
            if name in COMPARED:
                found = COMPARED[name](*split)
                interactions[name, seed] = found.interactions
                row = _row(config, name, seed, found.validation_accuracy, found.accuracy, found.accuracy_refit)
                timing[f"{name} seed {seed}"] = time.perf_counter() - began
            else:
                label = name if len(config.totals) == 1 or name != "HMTL-S" else f"HMTL-S R={total:g}"
                directory = output and output / "runs" / f"{label}-split-{seed}"
                method = multitask.method(name, tasks, config.rate, total)
                result = tune(config, method, split, callbacks(label, seed, directory), directory, resume)
                row = _tested(config, label, seed, split, result)
                seconds = [row["seconds"] for row in result.history]
                timing[f"{label} seed {seed}"] = seconds[-1]
                pace[f"{label} seed {seed}"] = float(np.median(np.diff([0.0, *seconds])))  # a few compile or resume
                if "C" in method.hypers:
                    assert result.best is not None
                    interactions[label, seed] = result.best.hypers["C"].numpy()
            results.append(row)
    return Outcome(results, interactions, timing, pace)


def _runs(config: Config) -> list[tuple[str, float]]:
    """(method, R) in the order of the table."""
    return [(m, r) for m in config.methods for r in (config.totals if m == "HMTL-S" else config.totals[:1])]


def _tested(config: Config, name: str, seed: int, split: cifar_features.Split, result: rf.Result) -> dict[str, Any]:
    best = result.best
    assert best is not None
    kept = result.history[best.iteration]
    again = multitask.accuracy(multitask.refit(config.training, split, best.hypers), split.test)
    row = _row(config, name, seed, kept["validation accuracy"], kept["test accuracy"], again)
    return row | {"kept": best.iteration, "rho": float(np.mean(best.hypers["rho"])), "C/sum": kept.get("C/sum")}


def _row(config: Config, method: str, seed: int, validation: float, test: float, again: float) -> dict[str, Any]:
    accuracies = {"validation_accuracy": validation, "accuracy": test, "accuracy_refit": again}
    return {"data": config.name, "method": method, "seed": seed, **accuracies}


def configs_from_flags() -> tuple[Config, ...]:
    """The preset's data sets (or the one asked for), with every flag that was given in its place."""
    changes = (FULL if FLAGS.full else {}) | common.given(Config)
    chosen = [c for c in PRESETS[FLAGS.preset] if c.dataset == changes.get("dataset", c.dataset)]
    if not chosen:  # the preset does not have it
        chosen = [Config(per_class=cifar_features.PER_CLASS[changes["dataset"]])]
    if "features_file" in changes and "source" not in changes and "dataset" not in changes:
        chosen = [c for c in chosen if c.source == "file"] or chosen  # one file cannot be all data sets
    changes |= {"source": "file"} if "features_file" in changes and "source" not in changes else {}
    changed = [dataclasses.replace(config, **changes) for config in chosen]
    return tuple({config.name: config for config in reversed(changed)}.values())[::-1]  # the first of each name


def find(config: Config) -> cifar_features.Features:
    """The features of a data set; of CIFAR-100, which is not distributed, also how to do without."""
    try:
        return cifar_features.find(config.dataset, config.source, config.features_file)
    except DataError as error:
        raise DataError(f"{error} Or leave it out: --dataset=cifar10.") if config.dataset == "cifar100" else error from None


def main() -> None:
    """Flags to configs, run each, report."""
    output = Path(FLAGS.output_dir)
    configs = configs_from_flags()
    features = {c: find(c) for c in configs}  # bad files before hours

    def callbacks(method: str, seed: int, directory: Path | None) -> Sequence[rf.Callback]:
        assert directory is not None
        bar = rf.ProgressBar(("validation accuracy",), f"{directory.parts[-3]}: {method}, split {seed}")
        log = [rf.TensorBoard(directory / "tensorboard", every=10)] if FLAGS.tensorboard else []
        return [bar, rf.CSVLogger(directory / "history.csv"), *log]

    for config in configs:
        place = output / common.slug(config.name)
        split = functools.partial(cifar_features.split, features[config], per_class=config.per_class)
        common.keep_settings(place / "settings.json", config.settings, FLAGS.resume)
        began = time.perf_counter()
        outcome = run(config, split, callbacks, place, FLAGS.resume)
        if not meshes.writes():
            continue
        pace = {f"hyper-iteration of {name}": seconds for name, seconds in outcome.pace.items()}
        timing = {**outcome.timing, **pace, "whole run": time.perf_counter() - began}
        common.write_results(place / "results.json", config, outcome.results, timing)
        print(report.write(place, outcome.results, outcome.interactions, features[config].class_names))
        print(report.speed(outcome.pace))


def define_flags() -> None:
    """Every field of the config is a flag; those not given come from the preset."""
    flags.DEFINE_enum(
        "preset", "quick", sorted(PRESETS), "quick: CIFAR-10, two splits; paper: everything; totals: several R, five splits."
    )
    flags.DEFINE_string("output_dir", "results/task_interactions", "Where results go; a stopped run goes on from here.")
    flags.DEFINE_bool("resume", True, "Go on where a stopped run in output_dir was; --noresume starts afresh.")
    flags.DEFINE_bool("tensorboard", True, "Write TensorBoard logs to output_dir/*/runs/*/tensorboard.")
    meshes.define_flag()
    flags.DEFINE_bool("full", False, "The original's T = 3000 at rate 0.01 and 250 hyper-iterations.")
    flags.DEFINE_enum("dataset", None, sorted(cifar_features.CLASSES), "One data set instead of all of the preset.")
    flags.DEFINE_multi_enum("methods", None, [*multitask.METHODS, *COMPARED], "Give the flag again for each.")
    flags.DEFINE_list("seeds", None, "Seeds of the splits, one run of each method for each.")
    flags.DEFINE_integer("per_class", None, "Examples of each class to train on, and as many to validate on.", lower_bound=1)
    flags.DEFINE_integer("steps", None, "T: inner steps.", lower_bound=1)
    flags.DEFINE_float("learning_rate", None, "Inner learning rate.", lower_bound=0.0)
    flags.DEFINE_float("momentum", None, "Inner momentum.", lower_bound=0.0, upper_bound=1.0)
    flags.DEFINE_integer("hyper_iterations", None, "Updates of the hypers.", lower_bound=1)
    flags.DEFINE_float("rate", None, "Learning rate of projected Adam on rho; C's is derived from it.", lower_bound=0.0)
    flags.DEFINE_list("totals", None, "Bounds R on the sum of C, one HMTL-S run for each.")
    flags.DEFINE_bool("tune_optimizer", None, "Tune learning rate and momentum too, on the training error.")
    flags.DEFINE_enum("source", None, cifar_features.SOURCES, "Where the features come from.")
    flags.DEFINE_string("features_file", None, "With --source=file: an .npz of features.")


def command_line() -> None:
    """Defines the flags and runs."""
    define_flags()
    common.run_main(main)

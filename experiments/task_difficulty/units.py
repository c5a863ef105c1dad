"""One unit of work: one method on one split of one kind of features."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rfho2 as rf
from data import cifar_features
from data.errors import DataError
from experiments.common.figures import slug
from experiments.common.pool import Row
from experiments.task_difficulty import reuse
from experiments.task_difficulty.weaker import weaker
from experiments.task_interactions import experiment, models

TOTALS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # the bounds R among which HMTL-S, R chosen, chooses
CHOSEN = "HMTL-S, R chosen"


class Unit(NamedTuple):
    """What a row of the results depends on.

    Attributes:
      full: whether with the original's T = 3000 at rate 0.01 and 250 hyper-iterations.
      iterations: hyper-iterations otherwise.
    """

    dataset: str
    kind: str
    strength: float
    per_class: int
    seed: int
    method: str
    full: bool = False
    iterations: int = 150

    @property
    def name(self) -> str:
        """Identifies the unit."""
        features = self.kind + (f"={self.strength:g}" if self.strength else "")
        length = "full" if self.full else f"{self.iterations}"
        return f"{self.dataset} {features} {self.per_class} per class, {self.method}, split {self.seed}, {length}"

    @property
    def config(self) -> experiment.Config:
        """The settings of the experiment that it repeats."""
        changes: dict[str, Any] = experiment.FULL if self.full else {"hyper_iterations": self.iterations}
        return experiment.Config(self.dataset, per_class=self.per_class, **changes)


def compute(unit: Unit, output: Path) -> Row:
    """The row of a unit; its interactions go to a file."""
    split = cifar_features.split(_features(unit.dataset, unit.kind, unit.strength), unit.seed, unit.per_class)
    chosen: dict[str, Any] = {}
    if unit.method in experiment.COMPARED:
        made = experiment.run_compared(unit.config, unit.method, unit.seed, split)
    else:
        total = 1e-3
        if unit.method == CHOSEN:
            total, chosen = choose_total(unit.config, reuse.compact(split))
        result = _tuned(unit.config, unit.method, reuse.compact(split), total)
        made = experiment.tested(unit.config, unit.method, unit.seed, split, result, reuse.refit)
    if made.interactions is not None and unit.method not in experiment.COMPARED:
        path = interactions(output, unit)
        path.parent.mkdir(exist_ok=True)
        np.save(path, made.interactions)
    return {"unit": unit.name, **unit._asdict(), **made.row, **chosen}


def interactions(output: Path, unit: Unit) -> Path:
    """The file of the learned C."""
    return output / "interactions" / f"{slug(unit.name)}.npy"


def choose_total(config: experiment.Config, split: cifar_features.Split) -> tuple[float, dict[str, Any]]:
    """R by cross-validation: the hypers are tuned on one half of the validation examples, and judged on the other.

    The data that tune C always prefer the largest R. The criterion is the cross-entropy of the kept models, summed over
    both halves; accuracy has too few steps on so few examples.
    """
    scores = {total: sum(_held_out(config, fold, total) for fold in halves(split)) for total in TOTALS}
    total = min(scores, key=lambda total: scores[total])
    return total, {"R": total, "scores": [scores[total] for total in TOTALS]}


def halves(split: cifar_features.Split) -> list[tuple[cifar_features.Split, cifar_features.Part]]:
    """(split whose validation examples are one half, the other half), twice; every other example in the order of classes."""
    order = np.argsort(split.validation.labels, kind="stable")
    parts = [cifar_features.Part(*(array[order[i::2]] for array in split.validation)) for i in range(2)]
    return [(split._replace(validation=parts[i]), parts[1 - i]) for i in range(2)]


def _held_out(config: experiment.Config, fold: tuple[cifar_features.Split, cifar_features.Part], total: float) -> float:
    split, held_out = fold
    best = _tuned(config, "HMTL-S", split, total).best
    assert best is not None
    p = models.problem(config.training, split.train, split.validation, ()).dynamics.params(best.state)
    return float(models.error(held_out, lambda examples: examples)(p))


def _tuned(config: experiment.Config, name: str, split: cifar_features.Split, total: float) -> rf.Result:
    base = "HMTL-S" if name == CHOSEN else name
    method = models.method(base, models.classes(split), config.rate, total)
    return experiment.tune(config, method, split, engine=reuse.engine(config.training, split, method.hypers))


@functools.lru_cache(maxsize=4)
def _features(dataset: str, kind: str, strength: float) -> cifar_features.Features:
    return weaker(original(dataset), kind, strength)


def original(dataset: str) -> cifar_features.Features:
    """The features as they are; those of CIFAR-100 are in the file that an environment variable names."""
    try:
        return cifar_features.find(dataset, "embedded" if dataset == "cifar10" else "file")
    except DataError as error:
        raise DataError(f"{error} Or leave it out: name the other parts with --parts.") from None

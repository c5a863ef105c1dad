"""Fifteen tasks that are not MNIST: a learning rate tuned in real time, and what users do about it otherwise.

The protocol, fixed before the first run of the tuner:

- Each task is divided into training, validation and test examples by its seed. Every training has the same number of epochs
  and starts from the same weights. All methods keep the weights with the lowest validation loss (Keras's at the end of an
  epoch, the tuner's at the end of a hyper-batch), and choose between trainings by that loss. No method sees a test example.
- Baselines: Keras's default rate (SGD 0.01, Adam 0.001); the best of five rates (the default times 0.01, 0.1, 1, 10 and
  100); the default with cosine decay to 0; the default with `ReduceLROnPlateau(patience=3)`; the best of 20 rates drawn from
  the default times 0.01 to 100, uniformly on a logarithmic scale.
- `rf.RealTimeTuner(model)`, with nothing else given, starts from the default rate, and from 0.1 and 10 times that rate. From
  the default rate, it also runs with `discount=0.99`, its default until experiments.long_training chose another one.
- Six knots of the rate, tuned from the default rate in ten hyper-iterations through the whole training (`rf.tune`), as
  experiments.long_training chose on its development problems. They were added later, and nothing about them was chosen here.
- The tuner may be changed by what it does on the five development tasks. Then it is frozen, and runs once on the other five.
  (It was changed once more after that, and the page about this experiment shows both runs.)
- For accuracy, the objective of the tuner may be a stand-in for the error rate (`stand_ins`), by which weights are then kept
  too. One is chosen by the validation accuracy of the classifiers among the ten tasks, which favours what weights are kept
  by; so it runs once on five later ones. Unlike the default objective, stand-ins are not bounded.
- Compared are test scores (accuracy, or explained variance, in per cent), as differences between pairs with the same task,
  optimizer and seed. The standard error of their mean treats the optimizers as strata: sqrt(sum of s_o^2 / n_o) / 2. "As
  good as" means a mean difference of at least minus one standard error.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.common.config import setting
from experiments.common.pool import Row
from experiments.keras_tasks.later_tasks import LATER
from experiments.keras_tasks.stand_ins import STAND_INS, for_loss
from experiments.keras_tasks.tasks import DEVELOPMENT, FROZEN, SQUARES, Parts
from experiments.keras_tasks.trainings import OPTIMIZERS, USUAL, KerasFits, tuned, with_knots

TASKS = {**DEVELOPMENT, **FROZEN, **LATER}
FACTORS = (1.0, 0.01, 0.1, 10.0, 100.0)  # of the default rate; the default first, because its time is reported
PLANS = ("cosine", "plateau")
STARTS = (1.0, 0.1, 10.0)
SEARCHED = (0.01, 100.0)
RANDOM, TUNER, KNOTS = "random", "tuner", "knots"
SHORTER = "tuner, discount 0.99"  # looks back over fewer steps


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    tasks: tuple[str, ...] = setting(tuple(DEVELOPMENT), "Tasks to run.", choices=tuple(TASKS))
    seeds: tuple[int, ...] = setting((0, 1, 2), "Seeds of division, weights and order.", at_least=0)
    optimizers: tuple[str, ...] = setting(tuple(OPTIMIZERS), "Optimizers.", choices=tuple(OPTIMIZERS))
    trials: int = setting(20, "Trials of random search; 0 leaves it out.", at_least=0)
    epochs: int = setting(0, "Epochs of each training; 0: as many as the task has.", at_least=0)
    tuner: bool = setting(True, "Run tuner and knots too; --notuner runs the baselines, which a later run need not repeat.")
    stand_ins: tuple[str, ...] = setting(tuple(STAND_INS), "Objectives for accuracy.", choices=tuple(STAND_INS))


PRESETS = {
    "development": Config(),
    "frozen": Config(tasks=tuple(FROZEN)),
    "ten": Config(tasks=(*DEVELOPMENT, *FROZEN)),
    "later": Config(tasks=tuple(LATER), stand_ins=()),
    "quick": Config(
        tasks=("breast cancer", "series"), seeds=(0,), optimizers=("Adam",), trials=2, epochs=2, stand_ins=("calibrated",)
    ),
}


class Unit(NamedTuple):
    """One training, by Keras with a rate or a plan from that rate, or by the tuner from that rate."""

    task: str
    optimizer: str
    seed: int
    method: str
    rate: float
    epochs: int

    @property
    def name(self) -> str:
        """Identifies the unit."""
        return ", ".join(f"{key} {value}" for key, value in self._asdict().items())


def units(config: Config, rows: Sequence[Row]) -> list[Unit]:
    """Five rates and two plans; tuner and knots, unless they are left out; random rates: each for all cases before the next.

    Stand-ins are objectives of classifiers only.
    """
    cases = list(itertools.product(config.tasks, config.optimizers, config.seeds))
    baselines = {f"rate x {factor:g}": factor for factor in FACTORS} | dict.fromkeys(PLANS, 1.0)
    starts = {f"{TUNER} x {factor:g}": factor for factor in STARTS} | {KNOTS: 1.0, SHORTER: 1.0} if config.tuner else {}
    planned = [(case, *item) for factors in (baselines, starts) for case in cases for item in factors.items()]
    classified = [case for case in cases if config.tuner and TASKS[case[0]].loss is not SQUARES]
    planned += [(case, method_of(name), 1.0) for name in config.stand_ins for case in classified]
    planned += [(case, f"{RANDOM} {i}", drawn) for case in cases for i, drawn in enumerate(random_factors(config, *case))]
    return [
        Unit(*case, method, factor * USUAL[case[1]], config.epochs or TASKS[case[0]].epochs)
        for case, method, factor in planned
    ]


def method_of(stand_in: str) -> str:
    """The method whose objective is a stand-in."""
    return f"{TUNER}, {stand_in}"


def random_factors(config: Config, task: str, optimizer: str, seed: int) -> list[float]:
    """Factors of the default rate, drawn uniformly on a logarithmic scale."""
    rng = np.random.default_rng([seed, list(TASKS).index(task), list(OPTIMIZERS).index(optimizer)])
    return [float(np.exp(rng.uniform(*np.log(SEARCHED)))) for _ in range(config.trials)]


def compute(unit: Unit, output: Path) -> Row:
    """Validation loss, test score and seconds of one training; of the tuner also the validation score, and its `way`."""
    task = TASKS[unit.task]._replace(epochs=unit.epochs)
    if unit.method.startswith(TUNER):
        options: dict[str, dict[str, Any]] = {SHORTER: {"discount": 0.99}}
        options |= {method_of(name): {"objective": for_loss(f, task.loss)} for name, f in STAND_INS.items()}
        other = options.get(unit.method, {})
        training = tuned(task, load(unit.task, unit.seed), unit.optimizer, unit.seed, unit.rate, other)
    elif unit.method == KNOTS:
        training = with_knots(task, load(unit.task, unit.seed), unit.optimizer, unit.seed, unit.rate)
    else:
        plan = unit.method if unit.method in PLANS else "constant"
        training = fits(unit.task, unit.epochs, unit.optimizer, unit.seed)(unit.rate, plan)
    about = {key: value for key, value in unit._asdict().items() if key != "epochs"}
    return {"unit": unit.name, **about, **training}


@functools.cache
def load(task: str, seed: int) -> Parts:
    """The examples of a task, divided by a seed."""
    return TASKS[task].load(seed)


@functools.lru_cache(maxsize=1)  # trainings of one model follow each other
def fits(task: str, epochs: int, optimizer: str, seed: int) -> KerasFits:
    """What trains with Keras, shared by the trainings of one model."""
    return KerasFits(TASKS[task]._replace(epochs=epochs), load(task, seed), optimizer, seed)

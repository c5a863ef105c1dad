"""Ten tasks that are not MNIST: a learning rate tuned in real time, and what users do about it otherwise.

The protocol, fixed before the first run of the tuner:

- Each task is divided into training, validation and test examples by its seed. Every training has the same number of epochs
  and starts from the same weights. All methods keep the weights with the lowest validation loss (Keras's at the end of an
  epoch, the tuner's at the end of a hyper-batch), and choose between trainings by that loss. No method sees a test example.
- Baselines: Keras's default rate (SGD 0.01, Adam 0.001); the best of five rates (the default times 0.01, 0.1, 1, 10 and
  100); the default with cosine decay to 0; the default with `ReduceLROnPlateau(patience=3)`; the best of 20 rates drawn from
  the default times 0.01 to 100, uniformly on a logarithmic scale.
- `rf.RealTimeTuner(model)`, with nothing else given, starts from the default rate, and from 0.1 and 10 times that rate.
- The tuner may be changed by what it does on the five development tasks. Then it is frozen, and runs once on the other five.
  (It was changed once more after that, and the page about this experiment shows both runs.)
- Compared are test scores (accuracy, or explained variance, in per cent), as differences between pairs with the same task,
  optimizer and seed. The standard error of their mean treats the optimizers as strata: sqrt(sum of s_o^2 / n_o) / 2. "As
  good as" means a mean difference of at least minus one standard error.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.config import setting
from experiments.keras_real_time.experiment import Trainings
from experiments.keras_tasks.tasks import DEVELOPMENT, FROZEN, Parts
from experiments.keras_tasks.trainings import OPTIMIZERS, USUAL, KerasFits, Record, tuned

TASKS = {**DEVELOPMENT, **FROZEN}
FACTORS = (1.0, 0.01, 0.1, 10.0, 100.0)  # of the default rate; the default first, because its time is reported
PLANS = ("cosine", "plateau")
STARTS = (1.0, 0.1, 10.0)
SEARCHED = (0.01, 100.0)
RANDOM, TUNER = "random", "tuner"

Planned = tuple[str, str, int, str, Callable[[], Record]]
"""Task, optimizer, seed, method, and what trains."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    tasks: tuple[str, ...] = setting(tuple(DEVELOPMENT), "Tasks to run.", choices=tuple(TASKS))
    seeds: tuple[int, ...] = setting((0, 1, 2), "Seeds of division, weights and order.", at_least=0)
    optimizers: tuple[str, ...] = setting(tuple(OPTIMIZERS), "Optimizers.", choices=tuple(OPTIMIZERS))
    trials: int = setting(20, "Trials of random search; 0 leaves it out.", at_least=0)
    epochs: int = setting(0, "Epochs of each training; 0: as many as the task has.", at_least=0)


PRESETS = {
    "development": Config(),
    "frozen": Config(tasks=tuple(FROZEN)),
    "quick": Config(tasks=("breast cancer", "series"), seeds=(0,), optimizers=("Adam",), trials=2, epochs=2),
}


def run(config: Config, path: Path, resume: bool = True, tuner: bool = True) -> list[Record]:
    """One record for each training; finished ones are kept in the file `path`.

    Args:
      tuner: whether to run the tuner, or the baselines only.
    """
    planned = [*learned(config), *(tuner_trainings(config) if tuner else ()), *random_trials(config)]
    trainings = Trainings(path, resume, len(planned))
    return [
        {
            "task": task,
            "optimizer": optimizer,
            "seed": seed,
            "method": method,
            **trainings(f"{task}, {optimizer}, seed {seed}, {method}", train),
        }
        for task, optimizer, seed, method, train in planned
    ]


def _cases(config: Config) -> Iterator[tuple[str, str, int]]:
    return ((task, name, seed) for task in config.tasks for name in config.optimizers for seed in config.seeds)


def learned(config: Config) -> Iterator[Planned]:
    """Trainings by Keras: five rates, and two plans from the default rate."""
    for task, name, seed in _cases(config):
        fits = _fits(config, task, name, seed)
        for factor in FACTORS:
            yield task, name, seed, f"rate x {factor:g}", functools.partial(_fit, fits, factor * USUAL[name])
        for plan in PLANS:
            yield task, name, seed, plan, functools.partial(_fit, fits, USUAL[name], plan)


def random_trials(config: Config) -> Iterator[Planned]:
    """Trainings by Keras with random rates."""
    for task, name, seed in _cases(config):
        fits = _fits(config, task, name, seed)
        rng = np.random.default_rng([seed, list(TASKS).index(task), list(OPTIMIZERS).index(name)])
        for trial in range(config.trials):
            rate = USUAL[name] * float(np.exp(rng.uniform(*np.log(SEARCHED))))
            yield task, name, seed, f"{RANDOM} {trial}", functools.partial(_fit, fits, rate)


def tuner_trainings(config: Config, **settings: Any) -> Iterator[Planned]:
    """Trainings by the tuner.

    Args:
      settings: further arguments of the tuner, for its development.
    """
    for task, name, seed in _cases(config):
        for factor in STARTS:
            train = functools.partial(_tune, config, task, name, seed, factor * USUAL[name], settings)
            yield task, name, seed, f"{TUNER} x {factor:g}", train


@functools.cache
def _load(task: str, seed: int) -> Parts:
    return TASKS[task].load(seed)


def _task(config: Config, name: str) -> Any:
    return TASKS[name]._replace(epochs=config.epochs) if config.epochs else TASKS[name]


def _fits(config: Config, task: str, optimizer: str, seed: int) -> Callable[[], KerasFits]:
    """What trains with Keras, built when it is first needed and shared by the trainings of one model."""
    return functools.cache(lambda: KerasFits(_task(config, task), _load(task, seed), optimizer, seed))


def _fit(fits: Callable[[], KerasFits], rate: float, plan: str = "constant") -> Record:
    return fits()(rate, plan)


def _tune(config: Config, task: str, optimizer: str, seed: int, rate: float, settings: dict[str, Any]) -> Record:
    return tuned(_task(config, task), _load(task, seed), optimizer, seed, rate, **settings)

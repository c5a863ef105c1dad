"""What is measured: the config, the methods, and one row for each of their settings."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from data.errors import DataError
from experiments.common.config import setting
from experiments.error_against_cost import problems

Row = dict[str, Any]

FEW_HYPERS = 64  # columns of Z that forward mode pushes together


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    digits: int = setting(5000, "Digits to train on, each with a weight, and as many for validation.", at_least=2)
    features: tuple[int, ...] = setting(
        (20, 200), "Features of logistic regression; 50 examples for each, half to train on.", at_least=1
    )
    seed: int = setting(0, "Of the splits, the weights and the synthetic data.", at_least=0)
    steps: tuple[int, ...] = setting((25, 50, 100, 200, 400), "T: training steps of methods compared along T.", at_least=1)
    solved_steps: int = setting(200, "T of the methods that are compared along k or K.", at_least=1)
    iterations: tuple[int, ...] = setting(
        (1, 5, 20, 50, 100, 200),
        "K: iterations of the linear solvers, and k: steps that truncated reverse mode looks back.",
        at_least=1,
    )
    rounds: int = setting(3, "Timed calls, of which the best counts.", at_least=1)
    accuracy: float = setting(
        1e-3, "Relative error that the linear solvers have to reach when they are timed alone.", at_least=0.0
    )
    memory_steps: tuple[int, ...] = setting(
        (100, 1000), "T: training steps for which the memory of `rf.implicit` is measured.", at_least=1
    )
    hidden: int = setting(
        810, "Hidden units, in each of two layers, of the network on which memory is measured.", at_least=1
    )

    def __post_init__(self) -> None:
        for name in ("steps", "iterations", "memory_steps"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise DataError(f"{name} is {list(getattr(self, name))}; give numbers from 1 on.")
        if any(features < 1 for features in self.features):
            raise DataError(f"features is {list(self.features)}; give numbers from 1 on, or none.")


PRESETS = {
    "full": Config(),
    "quick": Config(
        digits=1000, features=(20,), steps=(25, 100), solved_steps=100, iterations=(1, 20, 100), rounds=2, hidden=300,
        memory_steps=(20, 100),
    ),
}  # fmt: skip


def names(config: Config) -> list[str]:
    """The problems."""
    return ["cleaning", *(f"logistic {features}" for features in config.features)]


@functools.cache
def case_of(config: Config, name: str) -> problems.Case:
    """The problem with that name."""
    if name == "cleaning":
        return problems.cleaning(config.digits, config.seed)
    features = int(name.removeprefix("logistic "))
    return problems.logistic(50 * features, features, config.seed)


class Method(NamedTuple):
    """A method for hypergradients.

    Attributes:
      framework: "rfho2", "hypertorch" or "jaxopt".
      name: as tables and figures have it.
      along: what is varied: "T", the training steps; "k", the steps looked back; "K", iterations of the solver.
      solver: the solver of an implicit method, as its framework calls it.
      condition: that of `rf.implicit`.
    """

    framework: str
    name: str
    along: str
    solver: str = ""
    condition: str = "gradient"


METHODS = (
    Method("rfho2", "reverse", "T"),
    Method("rfho2", "checkpointed", "T"),
    Method("rfho2", "truncated", "k"),
    Method("rfho2", "forward", "T"),
    Method("rfho2", "implicit", "T", "cg"),
    Method("rfho2", "implicit: CG", "K", "cg"),
    Method("rfho2", "implicit: BiCGSTAB", "K", "bicgstab"),
    Method("rfho2", "implicit: normal", "K", "normal"),
    Method("rfho2", "implicit: fixed point", "K", "fixed_point"),
    Method("rfho2", "implicit: K steps", "K", "fixed_point", "step"),
    Method("hypertorch", "hypertorch: CG", "K", "CG"),
    Method("hypertorch", "hypertorch: fixed point", "K", "fixed point"),
    Method("hypertorch", "hypertorch: normal", "K", "normal equations"),
    Method("jaxopt", "jaxopt: CG", "K", "CG"),
    Method("jaxopt", "jaxopt: normal", "K", "normal equations"),
)
FRAMEWORKS = tuple(dict.fromkeys(method.framework for method in METHODS))


class Task(NamedTuple):
    """One row: a method with its settings; `iterations` is k or K."""

    problem: str
    method: Method
    steps: int
    iterations: int | None

    def __str__(self) -> str:
        number = "" if self.iterations is None else f", {'k' if self.method.along == 'k' else 'K'} = {self.iterations}"
        return f"{self.method.name}, T = {self.steps}{number}"

    @property
    def key(self) -> Row:
        """How the row of this task is recognised."""
        return {"problem": self.problem, "method": self.method.name, "steps": self.steps, "iterations": self.iterations}


def tasks(config: Config, problem: str, framework: str) -> list[Task]:
    """The rows of one framework on one problem, cheap ones first."""
    return [task for m in METHODS if m.framework == framework for task in _along(config, problem, m)]


def _along(config: Config, problem: str, method: Method) -> list[Task]:
    numbers = sorted(set(config.iterations))
    if method.along == "T":
        most = numbers[-1] if method.solver else None
        return [Task(problem, method, steps, most) for steps in sorted(set(config.steps))]
    if method.along == "k":
        numbers = [k for k in numbers if k < config.solved_steps]
    return [Task(problem, method, config.solved_steps, number) for number in numbers]


def omitted(task: Task, hypers: int) -> str | None:
    """Why a task is not run; None if it is."""
    if task.method.name == "forward" and hypers > FEW_HYPERS:
        trainings = math.ceil(hypers / FEW_HYPERS)
        return f"forward mode with {hypers:,} hypers: {trainings} trainings with {FEW_HYPERS} columns of Z each"
    return None


def checkpoints(steps: int) -> int:
    """2 sqrt(T), rounded up, but fewer than T."""
    return max(1, min(math.ceil(2 * math.sqrt(steps)), steps - 1))


def rows_of(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]

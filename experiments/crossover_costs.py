"""What a hypergradient costs on the families of the crossover, as `rf.plan` predicts it for the CPU or GPU at hand.

python -m experiments.crossover_costs
python -m experiments.crossover_costs --families=schedule --hypers=1,10,1000
"""

from __future__ import annotations

import dataclasses

import rfho2 as rf
from experiments.common.binary import environment, run_main
from experiments.common.config import define_flags, from_flags, setting
from experiments.common.tables import Table
from experiments.crossover import families
from experiments.crossover.experiment import NAMES
from experiments.crossover.methods import untuned


@dataclasses.dataclass(frozen=True)
class Config:
    """What is planned."""

    families: tuple[str, ...] = setting(NAMES, "Families of problems.", choices=NAMES)
    hypers: tuple[int, ...] = setting((1, 10, 1_000), "Numbers of hypers.", at_least=1)


def table(config: Config) -> Table:
    """Time, in plain training runs, and megabytes of reverse mode and of forward mode, each with its fastest settings."""
    made = Table("family", "hypers", "training, s", "reverse, training runs", "MB", "forward, training runs", "MB")
    for family in config.families:
        for n in config.hypers:
            task = families.FAMILIES[family](families.JUDGED[family], n, 0)
            assert task.problem.steps is not None
            plan = rf.plan(task.problem, task.params, {families.HYPER: untuned(task.range, n)}, memory=1e15)
            training = task.problem.steps * plan.measured["step"]
            cells = []
            for method in ("reverse", "forward"):
                of_method = [choice for choice in plan.choices if choice.method == method]
                fastest = min(of_method, key=lambda choice: choice.seconds)
                cells += [f"{fastest.seconds / training:.1f}", f"{fastest.bytes / 1e6:.0f}"]
            made.add(family, n, f"{training:.2f}", *cells)
    return made


def main() -> None:
    """Prints the table."""
    print(", ".join(f"{name} {version}" for name, version in environment().items()))
    print(table(from_flags(Config)), flush=True)


if __name__ == "__main__":
    define_flags(Config)
    run_main(main)

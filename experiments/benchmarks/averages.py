"""What `rf.average` costs compared with one hypergradient: the episodes one after the other, and together.

Times are interleaved, best of several rounds, without compilation. Memory is the peak of a second call above what was
resident after the first call of a training of two steps, in a fresh process.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import rfho2 as rf
from experiments.averaged_seeds import problem as digits
from experiments.common import processes, timing
from experiments.common.config import setting
from experiments.learning_to_learn import model
from experiments.learning_to_learn.tasks import Family
from rfho2.core.types import Hypers, Nest
from rfho2.hypergradients.engine import Engine
from rfho2.planning import peaks

SINGLE, SEQUENTIAL, TOGETHER = MODES = ("one episode", "one after the other", "together")
COMPILERS = {"graph": False, "XLA": True}
Row = dict[str, Any]


class Case(NamedTuple):
    """A problem with episodes, and the params and hypers that they start from."""

    problem: rf.Problem
    params: Nest | Callable[[Any], Nest]
    hypers: Hypers


def sinusoids(steps: int) -> Case:
    """A task of 10 points for each episode; initialisation and a rate per layer are hypers."""
    weights = model.random_weights(40, seed=0)
    problem = model.adaptation(Family("training", 0, 10, 10), steps, learned_initialisation=True)
    return Case(problem, weights, {**weights, **model.layer_rates(weights, 1e-3)})


def few_digits(steps: int) -> Case:
    """Batches of 100 digits; each episode has its own initial weights and order."""
    seeds, data = digits.Seeds(0), digits.digits(1000, 500, 1, seed=0)
    hypers = {"learning rate": 0.05, "momentum": 0.9, "l2 0": 1e-4, "l2 1": 1e-4}
    return Case(digits.problem(data, seeds, 100, steps), seeds.weights((784, 200, 10)), hypers)


CASES = {"1-40-40-1": sinusoids, "784-200-10": few_digits}


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured."""

    steps: int = setting(50, "T: training steps of an episode.", at_least=1)
    episodes: int = setting(4, "Episodes in the average.", at_least=1)
    rounds: int = setting(9, "Timed rounds, of which the best counts.", at_least=1)
    memory: bool = setting(True, "Also measure peak memory, on Linux.")
    memory_steps: int = setting(200, "T where memory is measured: the states then outweigh everything else.", at_least=3)


@dataclasses.dataclass(frozen=True)
class Invocation:
    """Flags that no result depends on."""

    output_dir: str = setting("results/average_benchmark", "Where table.md and results.json go.")
    peak_of: str | None = setting(None, "Only print the peak memory of case/compiler/mode; the command uses it itself.")


def engine(case: Case, mode: str, episodes: int, jit_compile: bool) -> Engine:
    """One way to compute hypergradients."""
    single = rf.reverse(case.problem, jit_compile=jit_compile)
    return single if mode == SINGLE else rf.average(single, episodes, together=mode == TOGETHER)


def seconds(name: str, config: Config, jit_compile: bool) -> dict[str, float]:
    """The fewest seconds of each mode."""
    case = CASES[name](config.steps)
    engines = {mode: engine(case, mode, config.episodes, jit_compile) for mode in MODES}
    calls = {mode: functools.partial(e, case.params, case.hypers, 1) for mode, e in engines.items()}
    return timing.best_times(calls, config.rounds)


def peak_memory(name: str, compiler: str, mode: str, config: Config) -> int:
    """Bytes; meant for a process that has done nothing else."""

    def call(steps: int) -> Callable[[], Any]:
        case = CASES[name](steps)
        return functools.partial(engine(case, mode, config.episodes, COMPILERS[compiler]), case.params, case.hypers)

    small, large = call(2), call(config.memory_steps)  # both kept alive: freed memory would be reused
    small()
    large()
    small()
    since = peaks.watch()
    large()
    return since()


def run(config: Config) -> list[Row]:
    """A row for each network and compiler: seconds and peak bytes of each mode."""
    rows = []
    for name in CASES:
        for compiler, jit_compile in COMPILERS.items():
            row: Row = {"network": name, "compiler": compiler, "seconds": seconds(name, config, jit_compile)}
            row["peak_bytes"] = _peaks(name, compiler, config) if config.memory else {}
            rows.append(row)
            print(table(rows).splitlines()[-1], flush=True)
    return rows


def _peaks(name: str, compiler: str, config: Config) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as unused:  # this process has its own output_dir to itself
        flags = [f"--episodes={config.episodes}", f"--memory_steps={config.memory_steps}", f"--output_dir={unused}"]
        run_child = functools.partial(processes.last_line, "average_benchmark")
        return {mode: int(run_child(f"--peak_of={name}/{compiler}/{mode}", *flags)) for mode in MODES}


def table(rows: list[Row]) -> str:
    """Ratios of seconds and of memory to one episode's."""
    titles = ["network", "compiled by", "one episode, ms", *(f"{mode} / one episode" for mode in MODES[1:])]
    titles += [f"{TOGETHER} / {SEQUENTIAL}", *(f"peak MB, {mode}" for mode in MODES)]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for row in rows:
        single, sequential, together = (row["seconds"][mode] for mode in MODES)
        ratios = [sequential / single, together / single, together / sequential]
        peaks = [f"{row['peak_bytes'][mode] / 1e6:.1f}" if row["peak_bytes"] else "-" for mode in MODES]
        cells = [row["network"], row["compiler"], f"{1e3 * single:.2f}", *(f"{ratio:.2f}" for ratio in ratios), *peaks]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"

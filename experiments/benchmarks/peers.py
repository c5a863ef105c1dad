"""rfho2 beside JAX and PyTorch on the same computation: seconds and peak memory, values checked first.

    pip install -e ".[peers]"
    python -m experiments.peer_benchmark --memory
    python -m experiments.peer_benchmark --cases=mlp_reverse --steps=20 --rounds=1

hyper_cleaning: 5,000 hypers, T = 100 steps of softmax regression, reverse (peer_hyper_cleaning.py).
mlp_reverse, mlp_forward: 3 hypers, T = 200 steps of a 784-200-200-10 network (peer_mlp.py).

Times: float32, a thread for each core, interleaved, best of several; compilation does not count. Memory: what a second call
holds at its peak beyond the process before the first, each contestant in a process of its own; the data, the libraries and a
run of two steps are there before and do not count.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from absl import flags

from data.errors import DataError
from experiments.benchmarks.peer_hyper_cleaning import HyperCleaning
from experiments.benchmarks.peer_mlp import MlpReverse
from experiments.benchmarks.peer_mlp_forward import MlpForward
from experiments.common import binary as common
from rfho2.planning import memory

FLAGS = flags.FLAGS
ROUNDS = 5
NORM = 1e-4  # by which the hypergradients may differ, relative
PEERS = ("jax", "torch", "higher", "torchopt")
Hypergradient = Callable[[np.ndarray], np.ndarray]


class Case(Protocol):
    """A computation that all can do.

    Attributes:
      STEPS: T, unless --steps says otherwise.
      each: by how much each entry may differ, relative; None where the norm is enough.
      memory: whether its peak is worth measuring.
      argument: the hypers.
    """

    STEPS: int
    each: float | None
    memory: bool
    argument: np.ndarray

    def __init__(self, steps: int): ...

    def contestants(self) -> dict[str, Callable[[], Hypergradient]]:
        """What builds each, by name; ours first."""


CASES: dict[str, type[Case]] = {"hyper_cleaning": HyperCleaning, "mlp_reverse": MlpReverse, "mlp_forward": MlpForward}


@dataclasses.dataclass(frozen=True)
class Config:
    """What was asked for, and the versions of the peers."""

    cases: tuple[str, ...]
    steps: int | None
    rounds: int
    memory: bool
    peers: dict[str, str]
    keep_freed: bool = False


class Outcome(NamedTuple):
    """One contestant: relative difference from ours, seconds of a call, bytes at its peak if measured."""

    difference: float
    seconds: float
    peak: int | None = None


def compare(
    contestants: dict[str, Hypergradient], argument: np.ndarray, rounds: int, each: float | None = None
) -> dict[str, Outcome]:
    """Differences and seconds, after all have been found to give the same as the first.

    Args:
      each: by how much each entry may differ, relative; None looks at the norm alone.
    """
    found = {name: function(argument) for name, function in contestants.items()}
    ours = next(iter(found.values()))
    differences = {name: _difference(name, grads, ours, each) for name, grads in found.items()}
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, function in contestants.items():
            began = time.perf_counter()
            function(argument)
            best[name] = min(best[name], time.perf_counter() - began)
    return {name: Outcome(differences[name], best[name]) for name in contestants}


def _difference(name: str, grads: np.ndarray, ours: np.ndarray, each: float | None) -> float:
    error = float(np.linalg.norm(grads - ours) / np.linalg.norm(ours))
    if not error <= NORM:
        raise AssertionError(f"{name} differs from rfho2 by {error:.1e}: nothing to compare.")
    worst = float(np.max(np.abs(grads - ours) / np.abs(ours))) if each is not None else 0.0
    if each is not None and not worst <= each:
        raise AssertionError(f"{name} differs from rfho2 by {worst:.1e} in one entry: nothing to compare.")
    return error


def report(case: str, outcomes: dict[str, Outcome]) -> str:
    """A table with the ratios of our time and peak to each peer's; a dash where no peak was measured."""
    ours = next(iter(outcomes.values()))
    lines = [f"| {case} | seconds | rfho2's time / its time | peak MB | rfho2's peak / its peak |", "|---|---|---|---|---|"]
    for name, (_, seconds, peak) in outcomes.items():
        peaks = "- | -" if peak is None or ours.peak is None else f"{peak / 1e6:.0f} | {ours.peak / peak:.2f}"
        lines.append(f"| {name} | {seconds:.3f} | {ours.seconds / seconds:.2f} | {peaks} |")
    return "\n".join(lines)


def peak_memory(case: type[Case], steps: int, name: str) -> int:
    """Bytes, in a process that has done nothing else: see above."""
    built = case(steps)
    contestant = built.contestants()[name]()
    small = case(2).contestants()[name]()  # kept: what it frees would be taken again and not be seen
    small(built.argument)
    before = memory.now()
    contestant(built.argument)
    memory.forget_peak()
    contestant(built.argument)
    return memory.peak() - before


def peak_memory_elsewhere(case: str, steps: int, name: str) -> int:
    """The same in a fresh process."""
    command = [
        sys.executable,
        "-m",
        "experiments.peer_benchmark",
        f"--cases={case}",
        f"--steps={steps}",
        f"--peak_of={name}",
    ]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return int(output.split()[-1])


def peers() -> dict[str, str]:
    """Their versions; all are given the same number of threads, one for each core that this process may use."""
    try:
        logging.getLogger("jax").setLevel(logging.WARNING)  # or it tells that it found no TPU
        modules = {name: importlib.import_module(name) for name in PEERS}
    except ImportError as error:
        raise DataError(f'{error}; the comparison needs the peers: pip install -e ".[peers]"') from None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    modules["torch"].set_num_threads(cores)  # XLA does so by itself
    return {name: importlib.metadata.version(name) for name in PEERS}


def run(name: str, config: Config) -> dict[str, Outcome]:
    """One case."""
    kind = CASES[name]
    steps = config.steps or kind.STEPS
    case = kind(steps)
    built = {contestant: build() for contestant, build in case.contestants().items()}
    outcomes = compare(built, case.argument, config.rounds, case.each)
    if config.memory and kind.memory:
        outcomes = {who: o._replace(peak=peak_memory_elsewhere(name, steps, who)) for who, o in outcomes.items()}
    return outcomes


def main() -> None:
    """Runs the cases asked for."""
    config = Config(tuple(FLAGS.cases), FLAGS.steps, FLAGS.rounds, FLAGS.memory, peers(), FLAGS.keep_freed)
    if FLAGS.peak_of is not None:
        return print(peak_memory(CASES[FLAGS.cases[0]], FLAGS.steps, FLAGS.peak_of))
    if FLAGS.memory and not memory.CLEAR_REFS.exists():
        raise DataError(f"--memory needs {memory.CLEAR_REFS}, which only Linux has; leave it out.")
    if FLAGS.keep_freed and not memory.keep_freed():
        raise DataError("--keep_freed needs the allocator of glibc, which is not here; leave it out.")
    versions = common.environment() | config.peers
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    found = {}
    for name in config.cases:
        found[name] = run(name, config)
        print(report(f"{name}, T = {config.steps or CASES[name].STEPS}", found[name]), flush=True)
    write(Path(FLAGS.output_dir) / "results.json", config, found)


def write(path: Path, config: Config, found: dict[str, dict[str, Outcome]]) -> None:
    """`results.json`: the differences, and apart from them the seconds and the peaks."""
    rows: list[dict[str, Any]] = []
    costs: dict[str, Any] = {}
    for case, outcomes in found.items():
        for name, outcome in outcomes.items():
            rows.append({"case": case, "contestant": name, "difference": outcome.difference})
        costs[case] = {name: {"seconds": o.seconds, "peak_bytes": o.peak} for name, o in outcomes.items()}
    common.write_results(path, config, rows, costs)


def command_line() -> None:
    """Defines the flags and runs."""
    flags.DEFINE_multi_enum("cases", list(CASES), sorted(CASES), "Which computations to compare.")
    flags.DEFINE_integer("rounds", ROUNDS, "The best of so many counts.", lower_bound=1)
    flags.DEFINE_integer("steps", None, "Training steps T, instead of those of each case.", lower_bound=1)
    flags.DEFINE_bool("memory", False, "Measure the peak memory of the reverse cases too, each contestant in a process.")
    flags.DEFINE_bool("keep_freed", False, "Time with memory that the process keeps when it is freed, all contestants.")
    flags.DEFINE_string("peak_of", None, "Only print the peak memory of this contestant of the case; --memory uses it.")
    flags.DEFINE_string("output_dir", "results/peer_benchmark", "For results.json.")
    common.run_main(main)

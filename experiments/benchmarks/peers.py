"""rfho2 compared with JAX and PyTorch on the same computation: the values are checked, then seconds and memory measured.

Times: float32, one thread per core, interleaved, best of several; compilation does not count. Memory: the peak of a second
call above the memory of the process before the first, each contestant in a fresh process. The data, the libraries and a run
of two steps are loaded before and do not count.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
import logging
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data.errors import DataError
from experiments.benchmarks.peer_case import Case, Hypergradient
from experiments.benchmarks.peer_hyper_cleaning import HyperCleaning
from experiments.benchmarks.peer_mlp_forward import MlpForward
from experiments.benchmarks.peer_mlp_reverse import MlpReverse
from experiments.common import processes, timing
from experiments.common.config import setting
from experiments.common.results import write_results
from rfho2.planning import memory

NORM_TOLERANCE = 1e-4  # relative difference that two hypergradients may have
PEERS = ("jax", "torch", "higher", "torchopt")
CASES: dict[str, type[Case]] = {"hyper_cleaning": HyperCleaning, "mlp_reverse": MlpReverse, "mlp_forward": MlpForward}


@dataclasses.dataclass(frozen=True)
class Config:
    """What is compared."""

    cases: tuple[str, ...] = setting(tuple(CASES), "Which computations to compare.", choices=sorted(CASES))
    steps: int | None = setting(None, "Training steps T, instead of those of each case.", at_least=1)
    rounds: int = setting(5, "Timed rounds, of which the best counts.", at_least=1)
    memory: bool = setting(False, "Also measure the peak memory of the reverse cases, each contestant in a fresh process.")
    keep_freed: bool = setting(False, "Time with an allocator that keeps freed memory in the process, for all contestants.")


@dataclasses.dataclass(frozen=True)
class Record(Config):
    """The config as results record it, with the versions of the other frameworks."""

    peers: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Invocation:
    """Flags that no result depends on."""

    output_dir: str = setting("results/peer_benchmark", "The directory of results.json.")
    peak_of: str | None = setting(None, "Only print the peak memory of this contestant of the case; --memory uses it.")


class Outcome(NamedTuple):
    """One contestant: relative difference from rfho2, seconds of a call, bytes at its peak if measured."""

    difference: float
    seconds: float
    peak: int | None = None


def compare(
    contestants: dict[str, Hypergradient], argument: np.ndarray, rounds: int, entry_tolerance: float | None = None
) -> dict[str, Outcome]:
    """Differences and seconds, after checking that all contestants give the same hypergradient as the first.

    Args:
      entry_tolerance: the relative difference that each entry may have; None checks the norm alone.
    """
    gradients = {name: function(argument) for name, function in contestants.items()}
    ours = next(iter(gradients.values()))
    differences = {name: _difference(name, grads, ours, entry_tolerance) for name, grads in gradients.items()}
    calls = {name: functools.partial(function, argument) for name, function in contestants.items()}
    seconds = timing.best_times(calls, rounds, warm_up=False)
    return {name: Outcome(differences[name], seconds[name]) for name in contestants}


def _difference(name: str, grads: np.ndarray, ours: np.ndarray, entry_tolerance: float | None) -> float:
    error = float(np.linalg.norm(grads - ours) / np.linalg.norm(ours))
    if not error <= NORM_TOLERANCE:
        raise AssertionError(f"{name} differs from rfho2 by {error:.1e}: nothing to compare.")
    worst = float(np.max(np.abs(grads - ours) / np.abs(ours))) if entry_tolerance is not None else 0.0
    if entry_tolerance is not None and not worst <= entry_tolerance:
        raise AssertionError(f"{name} differs from rfho2 by {worst:.1e} in one entry: nothing to compare.")
    return error


def report(case: str, outcomes: dict[str, Outcome]) -> str:
    """A table with the ratios of rfho2's time and peak to each contestant's; a dash where no peak was measured."""
    ours = next(iter(outcomes.values()))
    lines = [f"| {case} | seconds | rfho2's time / its time | peak MB | rfho2's peak / its peak |", "|---|---|---|---|---|"]
    for name, (_, seconds, peak) in outcomes.items():
        peaks = "- | -" if peak is None or ours.peak is None else f"{peak / 1e6:.0f} | {ours.peak / peak:.2f}"
        lines.append(f"| {name} | {seconds:.3f} | {ours.seconds / seconds:.2f} | {peaks} |")
    return "\n".join(lines)


def peak_memory(case: type[Case], steps: int, name: str) -> int:
    """Bytes of a second call above those before the first; meant for a process that has done nothing else."""
    built = case(steps)
    contestant = built.contestants()[name]()
    small = case(2).contestants()[name]()  # kept alive: reused freed memory would not be counted
    small(built.argument)
    before = memory.now()
    contestant(built.argument)
    memory.reset_peak()
    contestant(built.argument)
    return memory.peak() - before


def peak_memory_in_fresh_process(case: str, steps: int, name: str) -> int:
    """`peak_memory` of a case in a child process."""
    return int(processes.last_line("peer_benchmark", f"--cases={case}", f"--steps={steps}", f"--peak_of={name}"))


def versions() -> dict[str, str]:
    """Imports the other frameworks, gives them one thread per core that this process may use, and returns their versions."""
    try:
        logging.getLogger("jax").setLevel(logging.WARNING)  # it would report that it found no TPU
        modules = {name: importlib.import_module(name) for name in PEERS}
    except ImportError as error:
        raise DataError(f'{error}; the comparison needs the other frameworks: pip install -e ".[peers]"') from None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    modules["torch"].set_num_threads(cores)  # XLA does this by itself
    return {name: importlib.metadata.version(name) for name in PEERS}


def run(name: str, config: Config) -> dict[str, Outcome]:
    """One case."""
    kind = CASES[name]
    steps = config.steps or kind.STEPS
    case = kind(steps)
    built = {contestant: build() for contestant, build in case.contestants().items()}
    outcomes = compare(built, case.argument, config.rounds, case.entry_tolerance)
    if config.memory and kind.memory:
        peaks = {contestant: peak_memory_in_fresh_process(name, steps, contestant) for contestant in outcomes}
        outcomes = {contestant: o._replace(peak=peaks[contestant]) for contestant, o in outcomes.items()}
    return outcomes


def write(path: Path, record: Record, outcomes_by_case: dict[str, dict[str, Outcome]]) -> None:
    """`results.json`: the differences, and separately the seconds and the peaks."""
    rows: list[dict[str, Any]] = []
    costs: dict[str, Any] = {}
    for case, outcomes in outcomes_by_case.items():
        for name, outcome in outcomes.items():
            rows.append({"case": case, "contestant": name, "difference": outcome.difference})
        costs[case] = {name: {"seconds": o.seconds, "peak_bytes": o.peak} for name, o in outcomes.items()}
    write_results(path, record, rows, costs)


def prepare(config: Config) -> None:
    """Refuses flags that this system cannot honour; sets up the allocator."""
    if config.memory and not memory.CLEAR_REFS.exists():
        raise DataError(f"--memory needs {memory.CLEAR_REFS}, which only Linux has; leave it out.")
    if config.keep_freed and not memory.keep_freed():
        raise DataError("--keep_freed needs the allocator of glibc, which this system does not use; leave it out.")

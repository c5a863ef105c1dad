"""rfho2 compared with JAX and PyTorch on the same computation: the values are checked, then seconds and memory measured.

Times: float32, one thread per core, interleaved, best of several; compilation does not count. Memory on a CPU: the peak of a
second call above the memory of the process before the first, each contestant in a fresh process. The data, the libraries and
a run of two steps are loaded before and do not count. Memory on a GPU: the peaks of the frameworks' own allocators.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from data.errors import DataError
from experiments.benchmarks.jax_remote import RemoteJax
from experiments.benchmarks.peer_case import Case, Hypergradient, InJax
from experiments.benchmarks.peer_hyper_cleaning import HyperCleaning
from experiments.benchmarks.peer_mlp_forward import MlpForward
from experiments.benchmarks.peer_mlp_reverse import MlpReverse
from experiments.benchmarks.peer_phones import Phones
from experiments.common import processes, timing
from experiments.common.config import setting
from experiments.common.results import write_results
from rfho2.planning import memory

NORM_TOLERANCE = 1e-4  # relative difference that two hypergradients may have
FRAMEWORKS = {"jax": ("jax",), "torch": ("torch", "higher", "torchopt")}
PRECISIONS = {"tf32": "default", "float32": "highest"}  # as JAX names them
CASES: dict[str, type[Case]] = {
    "hyper_cleaning": HyperCleaning, "mlp_reverse": MlpReverse, "mlp_forward": MlpForward, "phones": Phones,
}  # fmt: skip
SMALL = ("hyper_cleaning", "mlp_reverse", "mlp_forward")


@dataclasses.dataclass(frozen=True)
class Config:
    """What is compared."""

    cases: tuple[str, ...] = setting(SMALL, "Which computations to compare.", choices=sorted(CASES))
    frameworks: tuple[str, ...] = setting(tuple(FRAMEWORKS), "What to compare with.", choices=sorted(FRAMEWORKS))
    precision: str = setting("tf32", "Precision of float32 products on a GPU that has TF32.", choices=sorted(PRECISIONS))
    steps: int | None = setting(None, "Training steps T, instead of those of each case.", at_least=1)
    rounds: int = setting(5, "Timed rounds, of which the best counts.", at_least=1)
    memory: bool = setting(False, "Also measure peak memory; on a CPU in fresh processes, and not of forward mode.")
    keep_freed: bool = setting(False, "Time with an allocator that keeps freed memory in the process, for all contestants.")


@dataclasses.dataclass(frozen=True)
class Record(Config):
    """The config as results record it, with the versions of the other frameworks."""

    peers: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Invocation:
    """How to run the comparison."""

    output_dir: str = setting("results/peer_benchmark", "The directory of results.json.")
    jax_command: str | None = setting(
        None, "A command that runs a Python with JAX, in a separate process for each contestant."
    )
    peak_of: str | None = setting(None, "Only print the peak memory of this contestant of the case; --memory uses it.")


class Outcome(NamedTuple):
    """One contestant: relative difference from rfho2, seconds of a call, bytes at its peak if measured."""

    difference: float
    seconds: float
    peak: int | None = None


def compare(
    contestants: Mapping[str, Hypergradient],
    argument: np.ndarray,
    rounds: int,
    entry_tolerance: float | None = None,
    check: bool = True,
) -> dict[str, Outcome]:
    """Differences and seconds, after a check that all contestants give the same hypergradient as the first.

    Args:
      entry_tolerance: the relative difference that each entry may have; None checks the norm alone.
      check: False only reports the differences.
    """
    gradients = {name: function(argument) for name, function in contestants.items()}
    ours = next(iter(gradients.values()))
    differences = {name: _relative(grads, ours) for name, grads in gradients.items()}
    for name, grads in gradients.items() if check else ():
        _check(name, grads, ours, entry_tolerance)
    calls = {name: functools.partial(function, argument) for name, function in contestants.items()}
    seconds = timing.best_times(calls, rounds, warm_up=False, clock=_seconds)
    return {name: Outcome(differences[name], seconds[name]) for name in contestants}


def _seconds(call: functools.partial[np.ndarray]) -> float:
    """Seconds of one call; another process measures its own time, without the exchange of messages."""
    took = timing.seconds_of(call)
    return call.func.seconds if isinstance(call.func, RemoteJax) else took


def _relative(grads: np.ndarray, ours: np.ndarray) -> float:
    return float(np.linalg.norm(grads - ours) / np.linalg.norm(ours))


def _check(name: str, grads: np.ndarray, ours: np.ndarray, entry_tolerance: float | None) -> None:
    error = _relative(grads, ours)
    if not error <= NORM_TOLERANCE:
        raise AssertionError(f"{name} differs from rfho2 by {error:.1e}: nothing to compare.")
    worst = float(np.max(np.abs(grads - ours) / np.abs(ours))) if entry_tolerance is not None else 0.0
    if entry_tolerance is not None and not worst <= entry_tolerance:
        raise AssertionError(f"{name} differs from rfho2 by {worst:.1e} in one entry: nothing to compare.")


def report(case: str, outcomes: dict[str, Outcome]) -> str:
    """A table with the ratios of rfho2's time and peak to each contestant's; a dash where no peak was measured."""
    ours = next(iter(outcomes.values()))
    lines = [f"| {case} | seconds | rfho2's time / its time | peak MB | rfho2's peak / its peak |", "|---|---|---|---|---|"]
    for name, (_, seconds, peak) in outcomes.items():
        peaks = "- | -" if peak is None or ours.peak is None else f"{peak / 1e6:.0f} | {ours.peak / peak:.2f}"
        lines.append(f"| {name} | {seconds:.{3 if seconds >= 0.1 else 5}f} | {ours.seconds / seconds:.2f} | {peaks} |")
    return "\n".join(lines)


def peak_memory(case: type[Case], steps: int, name: str) -> int:
    """Bytes of a second call above those before the first; meant for a process that has done nothing else."""
    built = case(steps)
    contestant = contestants(built)[name]()
    small = contestants(case(2))[name]()  # kept alive: reused freed memory would not be counted
    small(built.argument)
    before = memory.now()
    contestant(built.argument)
    memory.reset_peak()
    contestant(built.argument)
    return memory.peak() - before


def peak_memory_in_fresh_process(case: str, steps: int, name: str, frameworks: Sequence[str] = tuple(FRAMEWORKS)) -> int:
    """`peak_memory` of a case in a child process, which needs no other frameworks than these."""
    flags = [f"--cases={case}", f"--steps={steps}", f"--peak_of={name}", *(f"--frameworks={one}" for one in frameworks)]
    with tempfile.TemporaryDirectory() as unused:  # this process holds the lock of its own --output_dir
        return int(processes.last_line("peer_benchmark", *flags, f"--output_dir={unused}"))


def contestants(case: Case, frameworks: Sequence[str] = tuple(FRAMEWORKS)) -> dict[str, Callable[[], Hypergradient]]:
    """Functions that build all contestants in this process, by name; rfho2 first."""
    built: dict[str, Callable[[], Hypergradient]] = {"rfho2": case.rfho2}
    if "jax" in frameworks:
        built |= {name: functools.partial(_in_jax, case, contestant) for name, contestant in case.jax().items()}
    return built | (case.torch() if "torch" in frameworks else {})


def _in_jax(case: Case, contestant: InJax) -> Hypergradient:
    from experiments.benchmarks import jax_peers

    return jax_peers.CONTESTANTS[contestant.computation](case.arrays, **contestant.options)


def _set_precision(config: Config, jax_command: str | None) -> None:
    tf.config.experimental.enable_tensor_float_32_execution(config.precision == "tf32")
    if "jax" in config.frameworks and jax_command is None:
        importlib.import_module("jax").config.update("jax_default_matmul_precision", PRECISIONS[config.precision])


@contextmanager
def built_contestants(case: Case, config: Config, jax_command: str | None) -> Iterator[dict[str, Hypergradient]]:
    """All contestants, built; those in JAX in separate processes, if a command says how to start them."""
    if jax_command is None or "jax" not in config.frameworks:
        yield {name: build() for name, build in contestants(case, config.frameworks).items()}
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        arrays = Path(folder) / "arrays.npz"
        np.savez(arrays, allow_pickle=False, **case.arrays)
        in_this_process = [name for name in config.frameworks if name != "jax"]
        built = {name: build() for name, build in contestants(case, in_this_process).items()}
        for name, contestant in case.jax().items():
            remote = RemoteJax(jax_command, contestant, arrays, PRECISIONS[config.precision])
            opened.callback(remote.close)
            built[name] = remote
        yield built


def versions(config: Config, jax_command: str | None) -> dict[str, str]:
    """Imports the other frameworks, gives them one thread per core that this process may use, and returns their versions."""
    imported = [name for name in config.frameworks if name != "jax" or jax_command is None]
    packages = [package for name in imported for package in FRAMEWORKS[name]]
    try:
        logging.getLogger("jax").setLevel(logging.WARNING)  # it would report that it found no TPU
        modules = {name: importlib.import_module(name) for name in packages}
    except ImportError as error:
        raise DataError(f'{error}; the comparison needs the other frameworks: pip install -e ".[peers]"') from None
    if "torch" in modules:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        modules["torch"].set_num_threads(cores)  # XLA does this by itself
    return {name: importlib.metadata.version(name) for name in packages}


def run(name: str, config: Config, jax_command: str | None = None) -> dict[str, Outcome]:
    """One case. The contestants are checked in float32, on the stand-in of the case: TF32 rounds products to 10 bits."""
    kind = CASES[name]
    steps = config.steps or kind.STEPS
    case, on_gpu = kind(steps), bool(tf.config.list_physical_devices("GPU"))
    checked = case.stand_in()
    rough = checked is not case or (on_gpu and config.precision == "tf32")
    if rough:
        exact = dataclasses.replace(config, precision="float32")
        _set_precision(exact, jax_command)
        with built_contestants(checked, exact, jax_command) as built:
            compare(built, checked.argument, 1, checked.entry_tolerance)
        _set_precision(config, jax_command)
    if on_gpu:
        tf.config.experimental.reset_memory_stats("GPU:0")
    with built_contestants(case, config, jax_command) as built:
        outcomes = compare(built, case.argument, config.rounds, case.entry_tolerance, check=not rough)
        if config.memory and on_gpu:
            ours: dict[str, int | None] = {"rfho2": tf.config.experimental.get_memory_info("GPU:0")["peak"]}
            peaks = ours | {title: one.peak() for title, one in built.items() if isinstance(one, RemoteJax)}
            return {title: o._replace(peak=peaks.get(title)) for title, o in outcomes.items()}
    if config.memory and kind.memory:
        fresh = {
            contestant: peak_memory_in_fresh_process(name, steps, contestant, config.frameworks) for contestant in outcomes
        }
        outcomes = {contestant: o._replace(peak=fresh[contestant]) for contestant, o in outcomes.items()}
    return outcomes


def write(path: Path, record: Record, outcomes_by_case: dict[str, dict[str, Outcome]]) -> None:
    """`results.json`: the differences, and separately the seconds and the peaks."""
    rows: list[dict[str, Any]] = []
    costs: dict[str, Any] = {}
    for case, outcomes in outcomes_by_case.items():
        for name, outcome in outcomes.items():
            rows.append({"case": case, "contestant": name, "difference": outcome.difference})
        costs[case] = {name: {"seconds": o.seconds, "peak_bytes": o.peak} for name, o in outcomes.items()}
    write_results(path, "peer_benchmark", record, rows, costs)


def prepare(config: Config, jax_command: str | None) -> None:
    """Refuses flags that this system cannot honour; sets up precision and allocator."""
    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    if config.memory and not on_gpu and not memory.CLEAR_REFS.exists():
        raise DataError(f"--memory needs {memory.CLEAR_REFS}, which only Linux has; leave it out.")
    if config.keep_freed and not memory.keep_freed():
        raise DataError("--keep_freed needs the allocator of glibc, which this system does not use; leave it out.")
    if on_gpu and "torch" in config.frameworks:
        raise DataError("PyTorch is compared on the CPU only; on a GPU, pass --frameworks=jax.")
    if config.memory and not on_gpu and jax_command is not None:
        raise DataError("--memory on a CPU needs JAX in this environment; leave --jax_command out.")
    _set_precision(config, jax_command)

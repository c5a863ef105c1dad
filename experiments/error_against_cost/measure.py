"""Error, seconds and peak memory of each task, meant for a process that has done nothing else.

Error: relative to the hypergradient at the solution in float64.
Seconds: of one hypergradient from w = 0 to NumPy, best of several calls; an earlier call compiles and does not count.
Memory: the peak of resident memory during these calls above that before them: what a call needs for states and vectors. The
data, the framework, and the graph and code of the engine do not count.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.common import timing
from experiments.error_against_cost import hypertorch_peer, jaxopt_peer, problems
from experiments.error_against_cost.tasks import Config, Row, Task, case_of, checkpoints, omitted, tasks
from rfho2.planning import peaks

MOST_ROUNDS = 50
Call = Callable[[], np.ndarray]
Builder = Callable[[Task], Call]
"""A task -> a call that computes its hypergradient; the first call compiles."""


def rfho2_builder(case: problems.Case) -> Builder:
    """Tasks of rfho2."""
    made = problems.functions(case, tf.float32)

    def build(task: Task) -> Call:
        engine = rfho2_engine(task, problems.problem(case, made, task.steps))
        return lambda: engine(*problems.start(case)).grads["h"].numpy()

    return build


def rfho2_engine(task: Task, problem: rf.Problem) -> rf.Engine:
    """The engine of a task; a tolerance of 0 runs all iterations."""
    method, number = task.method, task.iterations
    if method.solver:
        assert number is not None
        return rf.implicit(problem, method.condition, method.solver, number, tolerance=0.0)
    engines: dict[str, Callable[[], rf.Engine]] = {
        "reverse": lambda: rf.reverse(problem),
        "checkpointed": lambda: rf.reverse(problem, checkpoints=checkpoints(task.steps)),
        "truncated": lambda: rf.reverse(problem, truncate=number),
        "forward": lambda: rf.forward(problem),
    }
    return engines[method.name]()


def hypertorch_builder(case: problems.Case, rate: float, directory: str | None) -> Builder:
    """Tasks of hypertorch; `rate` is that of the map that it linearises."""
    peer = hypertorch_peer.Hypertorch(hypertorch_peer.load(directory), case, rate)
    return lambda task: peer.hypergradient(task.method.solver, task.steps, task.iterations or 0)


def jaxopt_builder(case: problems.Case) -> Builder:
    """Tasks of jaxopt: with a transposed copy of the data, except for normal equations, which need JAX's own transposes."""
    peers = {transposed: jaxopt_peer.Jaxopt(case, transposed) for transposed in (True, False)}

    def build(task: Task) -> Call:
        peer = peers[task.method.solver == "CG"]
        return peer.hypergradient(task.method.solver, task.steps, task.iterations or 0)

    return build


def builder(framework: str, case: problems.Case, reference: problems.Reference, hypertorch: str | None) -> Builder:
    """The builder of a framework."""
    builders: dict[str, Callable[[], Builder]] = {
        "rfho2": functools.partial(rfho2_builder, case),
        "hypertorch": functools.partial(hypertorch_builder, case, 1 / reference.curvature, hypertorch),
        "jaxopt": functools.partial(jaxopt_builder, case),
    }
    return builders[framework]()


def measure(task: Task, build: Builder, reference: problems.Reference, rounds: int) -> Row:
    """The row of one task."""
    call = build(task)
    error = reference.error(call())
    since = peaks.watch()
    seconds = best_seconds(call, rounds)
    return {**task.key, "error": error, "seconds": seconds, "peak_bytes": since(), "missing": None}


def best_seconds(call: Call, rounds: int) -> float:
    """The fewest seconds of several calls; quick calls are repeated for half a second, because one is easily disturbed."""
    first = timing.seconds_of(call)
    more = max(rounds - 1, min(MOST_ROUNDS, int(0.5 / max(first, 1e-3))))
    return min([first, *(timing.seconds_of(call) for _ in range(more))])


def measure_all(config: Config, name: str, framework: str, hypertorch: str | None, kept: Path, solved: Path) -> None:
    """Appends the rows of one framework on one problem that the file `kept` does not have."""
    case, reference = case_of(config, name), read_reference(solved)
    done = {json.dumps(_key(row)) for row in read_rows(kept)}
    left = [task for task in tasks(config, name, framework) if json.dumps(task.key) not in done]
    runs = [task for task in left if not omitted(task, case.hypers.size)]
    if not runs:
        return
    build = builder(framework, case, reference, hypertorch)
    for task in runs:
        print(f"{task.problem}: {task}", flush=True)
        append_row(kept, measure(task, build, reference, config.rounds))


def _key(row: Row) -> Row:
    return {name: row[name] for name in ("problem", "method", "steps", "iterations")}


def read_rows(path: Path) -> list[Row]:
    """The rows of the file; a line that a kill cut short does not count."""
    return list(_complete(path.read_text().splitlines())) if path.exists() else []


def _complete(lines: list[str]) -> Iterator[Row]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def append_row(path: Path, row: Row) -> None:
    """Appends a row to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("\n" + json.dumps(row))  # the newline first: the last row may have been cut short by a kill


def read_reference(path: Path) -> problems.Reference:
    """The solution that `solve_reference` wrote."""
    with np.load(path, allow_pickle=False) as file:
        return problems.Reference(file["w"], file["gradient"], float(file["curvature"]))


def solve_reference(config: Config, name: str, path: Path) -> None:
    """Writes the solution of a problem."""
    solution = problems.reference(case_of(config, name))
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft.npz")
    np.savez(draft, **solution._asdict())
    draft.replace(path)

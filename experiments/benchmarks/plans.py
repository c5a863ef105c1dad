"""Predicted and measured cost of three problems, to check the planner; and a very long training.

Each measurement runs in a fresh process. Memory is the resident memory at the peak of a call above that after the first
call: states and working memory, not graph and code.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import rfho2 as rf
from data import mnist
from data.cifar_features import Part
from experiments.benchmarks import mlp_problem
from experiments.common import processes, timing
from experiments.common.config import setting
from experiments.data_hyper_cleaning import experiment as cleaning
from experiments.task_interactions import models as multitask
from rfho2.core.types import Nest
from rfho2.planning import peaks

BUDGET = 60.0  # seconds that a measurement may take; choices predicted to take longer are left out
SHORT, LONG = 300, 20_000  # steps that `--long` compares


class Case(NamedTuple):
    """A problem with initial params and hypers."""

    problem: rf.Problem
    params: Nest
    hypers: dict[str, Any]


def network(steps: int = 500) -> Case:
    """The network of `make bench`."""
    return Case(mlp_problem.problem(steps), mlp_problem.initial_params(), dict(mlp_problem.HYPERS))


def hyper_cleaning(steps: int = 200) -> Case:
    """The problem of the hyper-cleaning experiment."""
    data = mnist.noisy_split(mnist.load(), seed=0)
    problem = cleaning.cleaning_problem(cleaning.Config(steps=steps), data, radius=1000.0)
    return Case(problem, cleaning.zeros(), {"weights": np.full(len(data.noisy), 0.2, np.float32)})


def tasks(steps: int = 200) -> Case:
    """The problem of the task-interaction experiment at the size of CIFAR-100, on random features."""
    rng = np.random.default_rng(0)
    train, validation = (Part(rng.normal(size=(300, 256)).astype(np.float32), np.arange(300) % 100) for _ in range(2))
    problem = multitask.problem(multitask.Training(steps, 0.1, 0.9), train, validation, ())
    return Case(problem, multitask.zeros(train, 100), multitask.method("HMTL", 100, 1e-3, 1.0).hypers)


CASES: dict[str, Callable[..., Case]] = {"network": network, "hyper_cleaning": hyper_cleaning, "tasks": tasks}


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured."""

    cases: tuple[str, ...] = setting(tuple(CASES), "Which problems.", choices=list(CASES))
    long: bool = setting(False, "Measure T = 20,000 with few states instead.")
    child: str | None = setting(None, "For internal use: one prediction or measurement, given and printed as JSON.")


def predict(name: str) -> dict[str, Any]:
    """The plan, as text and as numbers."""
    plan = rf.plan(*CASES[name](), memory="8GB")
    return {"text": str(plan), "choices": [choice._asdict() for choice in plan.choices]}


def measure(name: str, method: str, settings: dict[str, int], steps: int | None = None) -> dict[str, float]:
    """Seconds (best of two) and peak bytes of one hypergradient."""
    case = CASES[name](*([steps] if steps else []))
    make: Callable[..., rf.Engine] = rf.reverse if method == "reverse" else rf.forward
    call = functools.partial(make(case.problem, **settings), case.params, case.hypers)
    call()
    since = peaks.watch()
    seconds = timing.best_times({name: call}, rounds=1 if steps else 2, warm_up=False)[name]
    return {"seconds": seconds, "bytes": since()}


def in_fresh_process(**arguments: Any) -> dict[str, Any]:
    """`predict` or `measure` in a child whose allocator returns freed memory at once, so that a few MB can be seen."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    return json.loads(processes.last_line("plan_benchmark", f"--child={json.dumps(arguments)}", env=environment))


def compare(name: str) -> str:
    """The plan of a case, and one row for each of its choices that can be measured in reasonable time."""
    plan = in_fresh_process(name=name)
    lines = [f"| {name} | seconds: predicted | measured | ratio | MB: predicted | measured | ratio |", "|---" * 7 + "|"]
    for choice in plan["choices"]:
        if choice["seconds"] > BUDGET:
            continue
        measured = in_fresh_process(name=name, method=choice["method"], settings=choice["settings"])
        cells = [_label(choice)]
        for key, scale, digits in (("seconds", 1.0, 2), ("bytes", 1e-6, 0)):
            predicted, actual = scale * choice[key], scale * measured[key]
            ratio = f"{predicted / actual:.2f}" if actual > 0 else "-"
            cells += [f"{predicted:.{digits}f}", f"{actual:.{digits}f}", ratio]
        lines.append(f"| {' | '.join(cells)} |")
    return f"{plan['text']}\n\n" + "\n".join(lines) + "\n"


def _label(choice: dict[str, Any]) -> str:
    return " ".join([choice["method"], *(f"{k}={v}" for k, v in choice["settings"].items())])


def compare_compilers(name: str) -> str:
    """Reverse mode under XLA and as a plain graph, interleaved."""
    case = CASES[name]()
    engines = {kind: rf.reverse(case.problem, jit_compile=kind == "XLA") for kind in ("XLA", "graph")}
    calls = {kind: functools.partial(engine, case.params, case.hypers) for kind, engine in engines.items()}
    assert case.problem.steps is not None
    times = {kind: 1e3 * s / case.problem.steps for kind, s in timing.best_times(calls, rounds=3).items()}
    return f"reverse, ms a step: XLA {times['XLA']:.2f}, graph {times['graph']:.2f}\n"


def measure_long() -> str:
    """A training whose states would not fit in memory, compared with plain reverse mode of a short one."""
    slots = math.ceil(2 * math.sqrt(LONG))
    plain = in_fresh_process(name="network", method="reverse", settings={}, steps=SHORT)
    long = in_fresh_process(name="network", method="reverse", settings={"checkpoints": slots}, steps=LONG)
    plain_again = in_fresh_process(name="network", method="reverse", settings={}, steps=SHORT)
    plain_step = min(plain["seconds"], plain_again["seconds"]) / SHORT
    step = long["seconds"] / LONG
    return (
        f"T = {LONG}, {slots} states: {long['seconds']:.0f} s, {1e3 * step:.2f} ms a step, "
        f"{step / plain_step:.2f} x plain reverse ({1e3 * plain_step:.2f} ms); peak {long['bytes'] / 1e6:.0f} MB"
    )

"""Does the planner predict what happens? Predicted and measured cost of three problems, and a very long training.

    python -m experiments.plan_benchmark
    python -m experiments.plan_benchmark --long

network: 784-200-200-10, batches of 100, momentum, 3 hypers, T = 500. hyper_cleaning: softmax regression, a weight for each
of 5,000 digits, T = 200. tasks: 100 tasks with 300 examples of 256 numbers, their 100 x 100 interactions, T = 200.
Each measurement has a process of its own; memory is what is resident at the peak of a call beyond what the first call left:
states and working memory, not graph and code.
--long: T = 20,000 steps of the network with 2 sqrt(T) states, beside plain reverse of 300 steps.
"""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from absl import flags

import rfho2 as rf
from data import mnist
from data.cifar_features import Part
from experiments.benchmarks import costs as benchmark
from experiments.common import binary as common
from experiments.complexity import measure as complexity_measure
from experiments.data_hyper_cleaning import experiment as cleaning
from experiments.task_interactions import models as multitask
from rfho2.core.types import Nest
from rfho2.planning import memory

FLAGS = flags.FLAGS
BUDGET = 60.0  # seconds that a measurement may take; what is predicted to take longer is left out


class Case(NamedTuple):
    """A problem with its start."""

    problem: rf.Problem
    params: Nest
    hypers: dict[str, Any]


def network(steps: int = 500) -> Case:
    """The network of `make bench`."""
    return Case(benchmark.problem(steps), benchmark.network(), dict(benchmark.HYPERS))


def hyper_cleaning(steps: int = 200) -> Case:
    """The problem of the hyper-cleaning experiment."""
    data = mnist.noisy_split(mnist.load(), seed=0)
    problem = cleaning.cleaning_problem(cleaning.Config(steps=steps), data, radius=1000.0)
    return Case(problem, cleaning.zeros(), {"weights": np.full(len(data.noisy), 0.2, np.float32)})


def tasks(steps: int = 200) -> Case:
    """The problem of the task-interaction experiment at the size of CIFAR-100; random features will do."""
    rng = np.random.default_rng(0)
    train, validation = (Part(rng.normal(size=(300, 256)).astype(np.float32), np.arange(300) % 100) for _ in range(2))
    problem = multitask.problem(multitask.Training(steps, 0.1, 0.9), train, validation, ())
    return Case(problem, multitask.zeros(train, 100), multitask.method("HMTL", 100, 1e-3, 1.0).hypers)


CASES: dict[str, Callable[..., Case]] = {"network": network, "hyper_cleaning": hyper_cleaning, "tasks": tasks}


def predict(name: str) -> dict[str, Any]:
    """The plan, as text and as numbers."""
    plan = rf.plan(*CASES[name](), memory="8GB")
    return {"text": str(plan), "choices": [choice._asdict() for choice in plan.choices]}


def measure(name: str, method: str, settings: dict[str, int], steps: int | None = None) -> dict[str, float]:
    """Seconds (best of two) and peak bytes of one hypergradient."""

    case = CASES[name](*([steps] if steps else []))
    make: Callable[..., rf.Engine] = rf.reverse if method == "reverse" else rf.forward
    engine = make(case.problem, **settings)

    def call() -> Nest:
        return engine(case.params, case.hypers)

    call()
    before = memory.now()
    memory.forget_peak()
    seconds = min(complexity_measure.seconds_of(call) for _ in range(1 if steps else 2))
    return {"seconds": seconds, "bytes": memory.peak() - before}


def elsewhere(**arguments: Any) -> dict[str, Any]:
    """`predict` or `measure` in a fresh process, whose allocator gives back at once what is freed: a few MB can be seen."""
    command = [sys.executable, "-m", "experiments.plan_benchmark", f"--child={json.dumps(arguments)}"]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def compare(name: str) -> str:
    """The plan of a case, and a row for each of its choices that can be measured in reasonable time."""
    plan = elsewhere(name=name)
    lines = [f"| {name} | seconds: predicted | measured | ratio | MB: predicted | measured | ratio |", "|---" * 7 + "|"]
    for choice in plan["choices"]:
        if choice["seconds"] > BUDGET:
            continue
        found = elsewhere(name=name, method=choice["method"], settings=choice["settings"])
        cells = [_label(choice)]
        for key, scale, digits in (("seconds", 1.0, 2), ("bytes", 1e-6, 0)):
            said, was = scale * choice[key], scale * found[key]
            cells += [f"{said:.{digits}f}", f"{was:.{digits}f}", f"{said / was:.2f}" if was > 0 else "-"]
        lines.append(f"| {' | '.join(cells)} |")
    return f"{plan['text']}\n\n" + "\n".join(lines) + "\n"


def compilers(name: str) -> str:
    """Reverse mode under XLA and as a plain graph, interleaved."""
    case = CASES[name]()
    engines = {kind: rf.reverse(case.problem, jit_compile=kind == "XLA") for kind in ("XLA", "graph")}
    calls = {kind: functools.partial(engine, case.params, case.hypers) for kind, engine in engines.items()}
    assert case.problem.steps is not None
    times = {kind: 1e3 * s / case.problem.steps for kind, s in benchmark.best_times(calls, rounds=3).items()}
    return f"reverse, ms a step: XLA {times['XLA']:.2f}, graph {times['graph']:.2f}\n"


def _label(choice: dict[str, Any]) -> str:
    return " ".join([choice["method"], *(f"{k}={v}" for k, v in choice["settings"].items())])


def long(steps: int = 20_000) -> str:
    """A training whose states would not fit, beside plain reverse of a short one."""
    slots = math.ceil(2 * math.sqrt(steps))
    plain = elsewhere(name="network", method="reverse", settings={}, steps=300)
    found = elsewhere(name="network", method="reverse", settings={"checkpoints": slots}, steps=steps)
    again = elsewhere(name="network", method="reverse", settings={}, steps=300)
    a_step = min(plain["seconds"], again["seconds"]) / 300
    ratio = found["seconds"] / steps / a_step
    return (
        f"T = {steps}, {slots} states: {found['seconds']:.0f} s, {1e3 * found['seconds'] / steps:.2f} ms a step, "
        f"{ratio:.2f} x plain reverse ({1e3 * a_step:.2f} ms); peak {found['bytes'] / 1e6:.0f} MB"
    )


def main() -> None:
    """All cases, or the long one."""
    if FLAGS.child:
        arguments = json.loads(FLAGS.child)
        return print(json.dumps((measure if "method" in arguments else predict)(**arguments)))
    if FLAGS.long:
        return print(long())
    for name in FLAGS.cases:
        print(compare(name), compilers(name), sep="\n", flush=True)


def command_line() -> None:
    """Defines the flags and runs."""
    flags.DEFINE_multi_enum("cases", list(CASES), list(CASES), "Which problems.")
    flags.DEFINE_bool("long", False, "T = 20,000 with few states instead.")
    flags.DEFINE_string("child", None, "For internal use: one prediction or measurement, given and printed as JSON.")
    common.run_main(main)

"""What hypergradients and projections cost, in seconds and in memory; the network is that of `mlp_problem`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.benchmarks import mlp_problem
from experiments.common import timing
from experiments.common.config import setting
from rfho2.planning import memory

BEST_OF = 7
PROJECTIONS: dict[str, tuple[rf.Constraint, tuple[int, ...]]] = {
    "BoxL1Ball, 5,000 entries": (rf.BoxL1Ball(1000.0), (5000,)),
    "SymmetricNonNegative, 100 x 100": (rf.SymmetricNonNegative(1e-3), (100, 100)),
    "BoxL1Ball, 1,000,000 entries": (rf.BoxL1Ball(200_000.0), (1_000_000,)),
    "L1Ball, 1,000,000 entries": (rf.L1Ball(1000.0), (1_000_000,)),
    "Simplex, 1,000,000 entries": (rf.Simplex(), (1_000_000,)),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured."""

    steps: int = setting(100, "Training steps in each measurement.", at_least=1)
    memory: bool = setting(False, "Measure only the memory of reverse mode.")


def method_calls(steps: int, jit_compile: bool) -> dict[str, Callable[[], Any]]:
    """Plain training, and the hypergradients by reverse and forward mode."""
    problem, params = mlp_problem.problem(steps), mlp_problem.initial_params()
    hypers = {name: tf.constant(value) for name, value in mlp_problem.HYPERS.items()}
    functions = {
        "plain training": tf.function(problem.train, jit_compile=jit_compile, autograph=False),
        "reverse": rf.reverse(problem, jit_compile=jit_compile),
        "forward, 3 hypers": rf.forward(problem, jit_compile=jit_compile),
    }
    return {name: functools.partial(function, params, hypers) for name, function in functions.items()}


def cost_of_methods(steps: int) -> None:
    """Prints the time of a step of reverse and forward mode, and its ratio to that of plain training."""
    for compiler, jit_compile in (("jit", True), ("graph", False)):
        times = timing.best_times(method_calls(steps, jit_compile), BEST_OF)
        for name, seconds in times.items():
            ratio = seconds / times["plain training"]
            print(f"{compiler:<6} {name:<20} {1e3 * seconds / steps:8.2f} ms a step   {ratio:5.2f} x")


def cost_of_projections() -> None:
    """Prints the time of the projections of the experiments, and of a million entries."""
    rng = np.random.default_rng(0)
    for name, (constraint, shape) in PROJECTIONS.items():
        x = tf.constant(rng.normal(size=shape) + 0.5, tf.float32)
        project = tf.function(constraint.project, autograph=False)
        seconds = timing.best_times({name: functools.partial(project, x)}, rounds=3)[name]
        print(f"{name:<34} {1e3 * seconds:9.2f} ms")


def peak_memory_of_reverse(steps: int = 300) -> None:
    """Prints the peak resident memory of a second call, which compiles nothing, above that after a run of three steps."""
    params = mlp_problem.initial_params()
    rf.reverse(mlp_problem.problem(3))(params, mlp_problem.HYPERS)
    before = memory.now()
    engine = rf.reverse(mlp_problem.problem(steps))
    engine(params, mlp_problem.HYPERS)
    memory.reset_peak()
    engine(params, mlp_problem.HYPERS)
    used = memory.peak() - before
    states = steps * 2 * 4 * sum(int(np.prod(w.shape)) for w in params.values())  # weights and velocities, float32
    print(f"reverse, T = {steps}: peak memory {used / 1e6:.0f} MB, {used / states:.2f} x T x state")

"""What hypergradients cost, as ratios to plain training in the same run: `make bench`.

A 784-200-200-10 tanh network on batches of 100, momentum, three hypers (learning rate, momentum, L2).
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags

import rfho2 as rf
from experiments.common import binary as common
from rfho2.core.types import Hypers, Nest
from rfho2.planning import memory

FLAGS = flags.FLAGS
SIZES = (784, 200, 200, 10)
HYPERS = {"lr": 0.01, "mu": 0.9, "l2": 1e-4}
BEST_OF = 7


def network() -> dict[str, tf.Tensor]:
    """The initial weights: 199,210 numbers."""
    rng = np.random.default_rng(0)
    layers = list(enumerate(itertools.pairwise(SIZES)))
    weights = {f"w{i}": tf.constant(rng.normal(size=(m, n), scale=m**-0.5), tf.float32) for i, (m, n) in layers}
    return weights | {f"b{i}": tf.zeros(n) for i, (_, n) in layers}


def error(p: Nest, hypers: Hypers, batch: Any) -> tf.Tensor:
    """Mean cross-entropy of the network."""
    h, y = batch
    for i in range(3):
        h = h @ p[f"w{i}"] + p[f"b{i}"]
        h = tf.tanh(h) if i < 2 else h
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, h))


def loss(p: Nest, hypers: Hypers, batch: Any) -> tf.Tensor:
    """The error, and the squared weights."""
    return error(p, hypers, batch) + hypers["l2"] * tf.add_n([tf.reduce_sum(tf.square(p[f"w{i}"])) for i in range(3)])


def problem(steps: int) -> rf.Problem:
    """Random digits will do: the cost does not depend on what is learnt."""
    rng = np.random.default_rng(1)
    data = tf.constant(rng.normal(size=(5000, 784)), tf.float32), tf.constant(rng.integers(0, 10, 5000))
    validation = rf.batches.full((data[0][:100], data[1][:100]))
    return rf.Problem(rf.momentum(loss, "lr", "mu"), error, steps, rf.batches.shuffled(data, 100, 0), validation)


def plain(p: rf.Problem, jit_compile: bool) -> Callable[[Nest, Hypers], Nest]:
    """The same training without hypergradients."""
    return tf.function(p.train, jit_compile=jit_compile, autograph=False)


def best_times(functions: Mapping[str, Callable[[], Any]], rounds: int = BEST_OF) -> dict[str, float]:
    """Seconds of each function, interleaved, best of several; the first call compiles and does not count."""
    for function in functions.values():
        function()
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, function in functions.items():
            began = time.perf_counter()
            tf.nest.map_structure(lambda x: x.numpy(), function())
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def cost_of_methods(steps: int) -> None:
    """Reverse and forward against plain training."""
    params, hypers = network(), {name: tf.constant(value) for name, value in HYPERS.items()}
    for jit_compile in (True, False):
        p = problem(steps)
        train, reverse, forward = (
            plain(p, jit_compile),
            rf.reverse(p, jit_compile=jit_compile),
            rf.forward(p, jit_compile=jit_compile),
        )
        times = best_times(
            {
                "plain training": lambda train=train: train(params, hypers),  # type: ignore[misc]
                "reverse": lambda reverse=reverse: reverse(params, hypers),  # type: ignore[misc]
                "forward, 3 hypers": lambda forward=forward: forward(params, hypers),  # type: ignore[misc]
            }
        )
        for name, seconds in times.items():
            ratio = seconds / times["plain training"]
            print(
                f"{'jit' if jit_compile else 'graph':<6} {name:<20} {1e3 * seconds / steps:8.2f} ms a step   {ratio:5.2f} x"
            )


def cost_of_projections() -> None:
    """The projections of the experiments, and of a million entries, in seconds."""
    rng = np.random.default_rng(0)
    cases: dict[str, tuple[rf.Constraint, tuple[int, ...]]] = {
        "BoxL1Ball, 5,000 entries": (rf.BoxL1Ball(1000.0), (5000,)),
        "SymmetricNonNegative, 100 x 100": (rf.SymmetricNonNegative(1e-3), (100, 100)),
        "BoxL1Ball, 1,000,000 entries": (rf.BoxL1Ball(200_000.0), (1_000_000,)),
        "L1Ball, 1,000,000 entries": (rf.L1Ball(1000.0), (1_000_000,)),
        "Simplex, 1,000,000 entries": (rf.Simplex(), (1_000_000,)),
    }
    for name, (constraint, shape) in cases.items():
        x = tf.constant(rng.normal(size=shape) + 0.5, tf.float32)
        project = tf.function(constraint.project, autograph=False)
        seconds = best_times({name: lambda project=project, x=x: project(x)}, rounds=3)[name]  # type: ignore[misc]
        print(f"{name:<34} {1e3 * seconds:9.2f} ms")


def peak_memory_of_reverse(steps: int = 300) -> None:
    """Peak resident memory of a second call, which compiles nothing, beyond what a run of three steps left behind."""
    params = network()
    rf.reverse(problem(3))(params, HYPERS)
    before = memory.now()
    engine = rf.reverse(problem(steps))
    engine(params, HYPERS)
    memory.forget_peak()
    engine(params, HYPERS)
    used = memory.peak() - before
    whole = steps * 2 * 4 * sum(int(np.prod(w.shape)) for w in params.values())
    print(f"reverse, T = {steps}: peak memory {used / 1e6:.0f} MB, {used / whole:.2f} x T x state")


def main() -> None:
    """All of it; memory in a process of its own."""
    if FLAGS.memory:
        return peak_memory_of_reverse()
    cost_of_methods(FLAGS.steps)
    cost_of_projections()
    sys.stdout.flush()
    subprocess.run([sys.executable, "-m", "experiments.benchmark", "--memory"], check=True)


def command_line() -> None:
    """Defines the flags and runs."""
    flags.DEFINE_integer("steps", 100, "Training steps in each measurement.")
    flags.DEFINE_bool("memory", False, "Measure the memory of reverse mode only.")
    common.run_main(main)

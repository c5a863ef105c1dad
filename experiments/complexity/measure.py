"""One measurement of experiments/complexity.py: what is trained, by which engine, and how seconds and bytes are taken."""

from __future__ import annotations

import functools
import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data import mnist
from experiments.benchmarks import costs as benchmark
from experiments.complexity.report import Row, checkpoints
from rfho2.core.types import Hypers, Nest
from rfho2.planning import memory


class Task(NamedTuple):
    """One measurement; `timed` are two lengths to extrapolate the seconds from, None runs all T steps."""

    panel: str
    method: str
    hypers: int
    hidden: int
    steps: int
    truncate: int
    rounds: int
    timed: tuple[int, int] | None = None

    @classmethod
    def of(cls, row: Row) -> Task:
        """From a row of a JSON file."""
        timed = row["timed"] and tuple(row["timed"])
        return cls(**{name: row[name] for name in cls._fields} | {"timed": timed})


@functools.cache
def digits() -> tuple[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]]:
    """(images, labels, index) to train on and (images, labels) to validate on; tensors, or each engine had its copy."""
    split = mnist.noisy_split(mnist.load(), 0)
    train, validation = (tuple(map(tf.constant, part)) for part in (split.train, split.validation))
    return (*train, tf.range(mnist.TRAIN)), validation


def network(hidden: Sequence[int]) -> dict[str, tf.Tensor]:
    """The initial weights."""
    rng = np.random.default_rng(0)
    layers = list(enumerate(itertools.pairwise((784, *hidden, mnist.CLASSES))))
    weights = {f"w{i}": tf.constant(rng.normal(size=(m, n), scale=m**-0.5), tf.float32) for i, (m, n) in layers}
    return weights | {f"b{i}": tf.zeros(n) for i, (_, n) in layers}


def start(hypers: int) -> dict[str, tf.Tensor]:
    """m hypers: learning rate, momentum and m - 2 weights of digits."""
    weights = {"weights": tf.ones(hypers - 2)} if hypers > 2 else {}
    return {"lr": tf.constant(0.01), "mu": tf.constant(0.9), **weights}


def cross_entropy(p: Nest, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """One number for each digit."""
    h, layers = images, len(p) // 2
    for i in range(layers):
        h = h @ p[f"w{i}"] + p[f"b{i}"]
        h = tf.tanh(h) if i < layers - 1 else h
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, h)


def problem(steps: int, hypers: int, batch: int = 100, validation: int = mnist.VALIDATION) -> rf.Problem:
    """Training in which the loss of digit i is multiplied by weight i for i < m - 2, by 1 for the others."""
    train, other = digits()
    n = hypers - 2

    def loss(p: Nest, hypers: Hypers, batch: Any) -> tf.Tensor:
        images, labels, i = batch
        losses = cross_entropy(p, images, labels)
        if n:
            losses *= tf.where(i < n, tf.gather(hypers["weights"], tf.minimum(i, n - 1)), 1.0)
        return tf.reduce_mean(losses)

    def objective(p: Nest, hypers: Hypers, batch: Any) -> tf.Tensor:
        return tf.reduce_mean(cross_entropy(p, *batch))

    held_out = rf.batches.full(tuple(part[:validation] for part in other) if validation < len(other[0]) else other)
    return rf.Problem(rf.momentum(loss, "lr", "mu"), objective, steps, rf.batches.shuffled(train, batch, 0), held_out)


def caller(method: str, p: rf.Problem, hidden: Sequence[int], hypers: int, truncate: int = 1) -> Callable[[], Nest]:
    """One hypergradient, or the plain training; the first call compiles."""
    steps = p.steps or 1
    make: dict[str, Callable[[], Callable[..., Nest]]] = {
        "plain": lambda: benchmark.plain(p, jit_compile=True),
        "reverse": lambda: rf.reverse(p),
        "checkpointed": lambda: rf.reverse(p, checkpoints=checkpoints(steps)),
        "truncated": lambda: rf.reverse(p, truncate=min(truncate, steps)),
        "forward": lambda: rf.forward(p),
        "real time": lambda: rf.real_time(p, hyper_batch=steps),
    }
    return functools.partial(make[method](), network(hidden), start(hypers))


def seconds_of(call: Callable[[], Nest]) -> float:
    """Until the numbers are there."""
    began = time.perf_counter()
    tf.nest.map_structure(lambda x: x.numpy(), call())
    return time.perf_counter() - began


def extrapolate(steps: tuple[int, int], seconds: Sequence[float], total: int) -> float:
    """Seconds of `total` steps, on the line through two shorter runs."""
    if not seconds[1] > seconds[0]:
        raise ValueError(f"{steps[1]} steps took {seconds[1]:.3g} s and {steps[0]} took {seconds[0]:.3g} s: too much noise.")
    return seconds[0] + (total - steps[0]) * (seconds[1] - seconds[0]) / (steps[1] - steps[0])


def measure(task: Task) -> Row:
    """Seconds, and peak memory where that is what is shown, in a process that has done nothing else."""

    def build(steps: int, truncate: int = task.truncate) -> Callable[[], Nest]:
        return caller(task.method, problem(steps, task.hypers), (task.hidden,) * 2, task.hypers, truncate)

    if task.panel == "seconds":
        calls = [build(steps) for steps in task.timed or (task.steps,)]
        for call in calls:
            call()
        best = np.min([[seconds_of(call) for call in calls] for _ in range(task.rounds)], axis=0).tolist()
        return {"seconds": extrapolate(task.timed, best, task.steps) if task.timed else best[0], "peak_bytes": None}
    few = build(3, truncate=1)  # kept: what it frees would be taken again and not be seen
    few()
    before = memory.now()
    call = build(task.steps)
    call()
    memory.forget_peak()
    seconds = min(seconds_of(call) for _ in range(task.rounds))
    return {"seconds": seconds, "peak_bytes": memory.peak() - before}


def measure_elsewhere(task: Task) -> Row:
    """The same in a fresh process; if it fails, `missing` says why."""
    command = [sys.executable, "-m", "experiments.complexity", f"--measure={json.dumps(task._asdict())}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    return {"seconds": None, "peak_bytes": None, "missing": reason(done.returncode, done.stderr)}


def reason(code: int, stderr: str) -> str:
    """Why a process failed: the signal that ended it, or the last that it said."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}" + (", out of memory?" if -code == signal.SIGKILL else "")
    return next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), f"exit code {code}")[:300]

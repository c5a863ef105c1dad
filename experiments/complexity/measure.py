"""Seconds and bytes of one measurement: what is trained, by which engine, and how it is measured."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data import mnist
from experiments.common import networks, processes, timing
from experiments.complexity.tasks import Row, Task, checkpoints
from rfho2.core.types import Hypers, Nest
from rfho2.planning import memory


@functools.cache
def digits() -> tuple[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]]:
    """(images, labels, index) for training and (images, labels) for validation; as tensors, which engines do not copy."""
    split = mnist.noisy_split(mnist.load(), 0)
    train, validation = (tuple(map(tf.constant, part)) for part in (split.train, split.validation))
    return (*train, tf.range(mnist.TRAIN)), validation


def initial_params(hidden: Sequence[int]) -> networks.Params:
    """The weights of a network with these hidden layers."""
    return networks.layers((784, *hidden, mnist.CLASSES), np.random.default_rng(0))


def initial_hypers(hypers: int) -> dict[str, tf.Tensor]:
    """m hypers: learning rate, momentum and m - 2 weights of digits."""
    weights = {"weights": tf.ones(hypers - 2)} if hypers > 2 else {}
    return {"lr": tf.constant(0.01), "mu": tf.constant(0.9), **weights}


def cross_entropies(p: Nest, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """One number per digit."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, networks.tanh_logits(p, images))


def problem(steps: int, hypers: int, batch: int = 100, validation: int = mnist.VALIDATION) -> rf.Problem:
    """Training in which the loss of digit i is multiplied by weight i if i < m - 2, and by 1 otherwise."""
    train, held_out = digits()
    n = hypers - 2

    def loss(p: Nest, hypers: Hypers, batch: Any) -> tf.Tensor:
        images, labels, i = batch
        losses = cross_entropies(p, images, labels)
        if n:
            losses *= tf.where(i < n, tf.gather(hypers["weights"], tf.minimum(i, n - 1)), 1.0)
        return tf.reduce_mean(losses)

    def objective(p: Nest, hypers: Hypers, batch: Any) -> tf.Tensor:
        return tf.reduce_mean(cross_entropies(p, *batch))

    if validation < len(held_out[0]):
        held_out = tuple(part[:validation] for part in held_out)
    batches = rf.batches.shuffled(train, batch, 0)
    return rf.Problem(rf.momentum(loss, "lr", "mu"), objective, steps, batches, rf.batches.full(held_out))


def caller(method: str, p: rf.Problem, hidden: Sequence[int], hypers: int, truncate: int = 1) -> Callable[[], Nest]:
    """A call that computes one hypergradient, or trains without; the first call compiles."""
    steps = p.steps or 1
    engines: dict[str, Callable[[], Callable[..., Nest]]] = {
        "plain": lambda: tf.function(p.train, jit_compile=True, autograph=False),
        "reverse": lambda: rf.reverse(p),
        "checkpointed": lambda: rf.reverse(p, checkpoints=checkpoints(steps)),
        "truncated": lambda: rf.reverse(p, truncate=min(truncate, steps)),
        "forward": lambda: rf.forward(p),
        "real time": lambda: rf.real_time(p, hyper_batch=steps),
    }
    return functools.partial(engines[method](), initial_params(hidden), initial_hypers(hypers))


def extrapolate(steps: tuple[int, int], seconds: Sequence[float], total: int) -> float:
    """Seconds of `total` steps, on the line through two shorter runs."""
    if not seconds[1] > seconds[0]:
        raise ValueError(f"{steps[1]} steps took {seconds[1]:.3g} s and {steps[0]} took {seconds[0]:.3g} s: too much noise.")
    return seconds[0] + (total - steps[0]) * (seconds[1] - seconds[0]) / (steps[1] - steps[0])


def measure(task: Task) -> Row:
    """The seconds, or the seconds and the peak memory, of a task; meant for a process that has done nothing else."""

    def build(steps: int, truncate: int = task.truncate) -> Callable[[], Nest]:
        return caller(task.method, problem(steps, task.hypers), (task.hidden,) * 2, task.hypers, truncate)

    return _measure_memory(task, build) if task.panel == "memory" else _measure_seconds(task, build)


def _measure_seconds(task: Task, build: Callable[[int], Callable[[], Nest]]) -> Row:
    calls = {steps: build(steps) for steps in task.timed or (task.steps,)}
    best = list(timing.best_times(calls, task.rounds).values())
    return {"seconds": extrapolate(task.timed, best, task.steps) if task.timed else best[0], "peak_bytes": None}


def _measure_memory(task: Task, build: Callable[..., Callable[[], Nest]]) -> Row:
    few_steps = build(3, truncate=1)  # kept alive: reused freed memory would not be counted
    few_steps()
    before = memory.now()
    call = build(task.steps)
    call()
    memory.reset_peak()
    seconds = timing.best_times({task.method: call}, task.rounds, warm_up=False)[task.method]
    return {"seconds": seconds, "peak_bytes": memory.peak() - before}


def measure_in_fresh_process(task: Task) -> Row:
    """`measure` in a child process; if that fails, `missing` is the reason."""
    done = processes.run("complexity", f"--measure={json.dumps(task._asdict())}", check=False, capture_output=True)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    return {"seconds": None, "peak_bytes": None, "missing": processes.failure(done.returncode, done.stderr)}

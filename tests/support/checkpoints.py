"""Short runs with checkpoints: a toy problem whose engines are built once, and ways to interrupt and compare runs."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf

TARGET = np.array([1.0, -2.0, 0.5])
PARAMS = [0.0, 0.0, 0.0]
HYPERS = {"lr": 0.1, "weights": [1.0, 1.0, 1.0]}
TOTAL = 6  # hyper-iterations of a run


def loss(w, hypers, batch):
    """Weighted squared distance from one example."""
    return tf.reduce_sum(hypers["weights"] * (w - batch) ** 2)


def objective(w, hypers, batch):
    """Squared distance from one example."""
    return tf.reduce_sum((w - batch) ** 2)


def one_by_one(examples):
    """Batches of one example, in the order of the examples."""
    return lambda t: tf.gather(examples, t % len(examples))


def problem(dynamics=rf.gradient_descent, steps=3, dtype=tf.float32):
    """Seven noisy examples of a target; the batch depends on the step and on the hyper-iteration."""
    noise = np.random.default_rng(0).normal(size=(7, 3))
    train, validation = (one_by_one(tf.constant(TARGET + scale * noise, dtype)) for scale in (1.0, 0.2))
    return rf.Problem(dynamics(loss, "lr"), objective, steps, train, validation)


@functools.cache
def engine(case="simple"):
    """An engine, compiled once for all tests of a process."""
    if case == "real_time":
        return rf.real_time(problem(rf.adam, steps=None), hyper_batch=2, jit_compile=False)
    return rf.reverse(problem(rf.gradient_descent if case == "simple" else rf.adam), jit_compile=case == "reverse_jit")


def adam(rate=0.02, high=1.0, **settings):
    """An optimiser for the hypers."""
    return rf.projected_adam(rate, {"lr": rf.Box(0.0, high), "weights": rf.NonNegative()}, **settings)


usual = functools.cache(adam)


def run(directory=None, iterations=TOTAL, case="simple", callbacks=(), optimizer=None, hypers=None, params=None, **settings):
    """A run of `engine(case)`, or of `case` itself if it is an engine."""
    params = tf.constant(PARAMS if params is None else params)
    tuner = rf.HyperOptimizer(engine(case) if isinstance(case, str) else case, optimizer or usual(), callbacks)
    return tuner.run(params, hypers or HYPERS, iterations, directory, **settings)


@functools.cache
def straight(case="simple", iterations=TOTAL):
    """The result of a run that nothing interrupts."""
    return run(None, iterations, case)


def copy_of_1_0_0(case, directory):
    """A copy of the checkpoint that version 1.0.0 wrote after three hyper-iterations of `run(case=case)`."""
    return shutil.copytree(Path(__file__).with_name("checkpoints_1_0_0") / case, Path(directory) / case)


def numbers(directory):
    """The hyper-iterations for which there are checkpoints."""
    return sorted(int(path.name.removeprefix("ckpt-")) for path in Path(directory).glob("ckpt-*"))


def checkpoint(directory, k):
    """The directory of checkpoint k."""
    return Path(directory) / f"ckpt-{k:08d}"


def contents(directory):
    """The bytes of every file, by its path."""
    return {path.relative_to(directory): path.read_bytes() for path in Path(directory).rglob("*") if path.is_file()}


def assert_identical(a, b):
    """Requires that two results agree bit by bit, except for the time that they took."""
    pairs = ((a.hypers, b.hypers), (a.state, b.state), (a.best.hypers, b.best.hypers), (a.best.state, b.best.state))
    for x, y in pairs:
        tf.nest.assert_same_structure(x, y)
        for one, other in zip(tf.nest.flatten(x), tf.nest.flatten(y), strict=True):
            assert (one.dtype, one.shape, one.numpy().tobytes()) == (other.dtype, other.shape, other.numpy().tobytes())
    assert (a.best.value, a.best.iteration) == (b.best.value, b.best.iteration)
    without = lambda history: [{key: row[key] for key in row if key != "seconds"} for row in history]  # noqa: E731
    assert without(a.history) == without(b.history)


class Start:
    """Records the hyper-iteration at which a run starts."""

    def on_start(self, run):
        self.first = run.first


class At:
    """Calls a function at hyper-iteration k, before its checkpoint is written."""

    def __init__(self, k, action):
        self.k, self.action = k, action

    def on_hyper_iteration(self, k, *_):
        if k == self.k:
            self.action()


def interrupt():
    """Raises `KeyboardInterrupt`."""
    raise KeyboardInterrupt


def broken(at, *args, **settings):
    """A run that is interrupted at hyper-iteration `at`, before its checkpoint is written."""
    with pytest.raises(KeyboardInterrupt):
        run(*args, callbacks=[At(at, interrupt)], **settings)


def halve(file):
    """Cuts off the second half of a file."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

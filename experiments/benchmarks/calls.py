"""Milliseconds per hyper-iteration of the driver: in calls of several, one at a time, and by another checkout.

This file also runs alone, as a worker: it reads a case and a way to run it from each line of its input, makes the run, and
prints the seconds. Another checkout makes only runs in calls and with logs, which use only names that 1.0.0 has too.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tqdm import tqdm

import rfho2 as rf

CALLS, SINGLE, LOGGED, ALONE = WAYS = ("in calls", "one at a time", "with logs", "compiled alone")
THIS = "this"
Row = dict[str, Any]
CHECKPOINT_EVERY = 20


class Case(NamedTuple):
    """What a run needs, and its number of hyper-iterations."""

    engine: Any
    optimizer: Any
    params: Any
    hypers: dict[str, Any]
    iterations: int


def ridge() -> Case:
    """The example of README: ridge regression with a decay per weight, T = 100."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 50))
    y = x @ np.r_[np.ones(5), np.zeros(45)] + rng.normal(size=200)
    train, valid = ((tf.constant(x[part]), tf.constant(y[part])) for part in (slice(60), slice(60, None)))

    def error(w: tf.Tensor, hypers: Any, batch: Any) -> tf.Tensor:
        return tf.reduce_mean((tf.linalg.matvec(batch[0], w) - batch[1]) ** 2)

    def loss(w: tf.Tensor, hypers: Any, batch: Any) -> tf.Tensor:
        return error(w, hypers, batch) + tf.reduce_sum(hypers["decay"] * w**2)

    batches = rf.batches.shuffled(train, 20, seed=0)
    problem = rf.Problem(rf.momentum(loss, "lr", 0.9), error, 100, batches, rf.batches.full(valid))
    optimizer = rf.projected_adam(0.01, {"lr": rf.Box(1e-4, 0.1), "decay": rf.NonNegative()})
    return Case(rf.reverse(problem), optimizer, tf.zeros(50, tf.float64), {"lr": 0.01, "decay": np.zeros(50)}, 100)


def windows(length: int) -> Case:
    """Windows in reverse of a quadratic with 100 weights and 100 hypers."""
    curvature = tf.constant(np.random.default_rng(0).uniform(0.1, 1.0, 100))

    def loss(w: tf.Tensor, hypers: Any, batch: Any) -> tf.Tensor:
        return 0.5 * tf.reduce_sum(curvature * (w - hypers["target"]) ** 2)

    def error(w: tf.Tensor, hypers: Any, batch: Any) -> tf.Tensor:
        return 0.5 * tf.reduce_sum((w - 1.0) ** 2)

    engine = rf.real_time(rf.Problem(rf.gradient_descent(loss, 0.1), error, None), length, mode="reverse")
    return Case(engine, rf.projected_adam(0.01), tf.zeros(100, tf.float64), {"target": np.zeros(100)}, 200)


def cleaning() -> Case:
    """Data hyper-cleaning: a weight for each of 5,000 digits, T = 20."""
    from data import mnist

    split = mnist.noisy_split(mnist.load(), 0)
    products = [rf.fixed_product(tf.constant(part.images)) for part in (split.train, split.validation)]

    def errors(p: Any, i: int, labels: Any) -> tf.Tensor:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, products[i](p["w"]) + p["b"])

    def loss(p: Any, hypers: Any, batch: Any) -> tf.Tensor:
        return tf.reduce_mean(hypers["weights"] * errors(p, 0, split.train.labels))

    def error(p: Any, hypers: Any, batch: Any) -> tf.Tensor:
        return tf.reduce_mean(errors(p, 1, split.validation.labels))

    number = len(split.train.labels)
    optimizer = rf.projected_adam(0.005, {"weights": rf.BoxL1Ball(number / 2)})
    params = {"w": tf.zeros([784, 10]), "b": tf.zeros(10)}
    engine = rf.reverse(rf.Problem(rf.gradient_descent(loss, 0.1), error, 20))
    return Case(engine, optimizer, params, {"weights": np.full(number, 0.4, np.float32)}, 10)


def digits() -> Case:
    """`experiments.real_time_digits` without its metrics."""
    from experiments.common import networks
    from experiments.real_time_digits import experiment

    split = experiment.clean_split(0)
    train, validation = (tuple(map(tf.constant, part)) for part in (split.train, split.validation))
    batches = [rf.batches.shuffled(data, size, seed) for data, size, seed in ((train, 100, 0), (validation, 500, 1))]
    problem = rf.Problem(rf.momentum(experiment.loss, "lr", "mu"), experiment.error, None, *batches)
    rates = {"lr": 0.005, "mu": 0.005, "l2": 1e-5}
    optimizer = rf.projected_adam(rates, {"lr": rf.NonNegative(), "mu": rf.Box(0.0, 0.99), "l2": rf.NonNegative()})
    params = networks.layers((784, 100, 10), np.random.default_rng(0))
    return Case(rf.real_time(problem, 20), optimizer, params, dict(experiment.NULL_TEACHER), 20)


CASES: dict[str, Callable[[], Case]] = {
    "example of README": ridge,
    "windows of 1 step": lambda: windows(1),
    "windows of 10 steps": lambda: windows(10),
    "hyper-cleaning": cleaning,
    "real_time_digits": digits,
}


def run_once(case: Case, way: str) -> float:
    """Seconds of a run."""
    settings: dict[str, Any] = {"iterations_per_call": 1} if way == SINGLE else {}
    saved: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if way == LOGGED:
            settings["callbacks"] = [rf.CSVLogger(f"{folder}/log.csv"), rf.TensorBoard(f"{folder}/tensorboard")]
            saved = {"checkpoint_dir": f"{folder}/checkpoints", "checkpoint_every": CHECKPOINT_EVERY}
        tuner = rf.HyperOptimizer(case.engine, case.optimizer, **settings)
        began = time.perf_counter()
        tuner.run(case.params, case.hypers, case.iterations, **saved)
        return time.perf_counter() - began


def compiled_alone(case: Case) -> Callable[[], float]:
    """Seconds of the same hyper-iterations as one compiled loop of hypergradients and updates, which checks nothing."""
    from rfho2.core import loops
    from rfho2.core.errors import checked_hypers

    hypers = checked_hypers(case.hypers, case.params)
    carry, state = case.engine.start(case.params, hypers), case.optimizer.init(hypers)
    method = case.engine.method(carry, hypers)

    @tf.function(jit_compile=True, autograph=False)
    def run(carry: Any, hypers: Any, state: Any) -> Any:
        def body(now: Any, k: tf.Tensor) -> Any:
            carry, hypers, state = now
            hypergradient, carry = method.advance(carry, hypers, k, ())
            return carry, *case.optimizer.update(hypergradient.grads, state, hypers)

        return loops.fold(body, (carry, hypers, state), 0, case.iterations)[1]

    def seconds() -> float:
        began = time.perf_counter()
        tf.nest.map_structure(lambda x: x.numpy(), run(carry, hypers, state))
        return time.perf_counter() - began

    return seconds


def work() -> None:
    """Answers each line of the input, a case and a way in JSON, with the seconds and the number of hyper-iterations."""
    made: dict[str, Case] = {}
    alone: dict[str, Callable[[], float]] = {}
    for line in sys.stdin:
        name, way = json.loads(line)
        case = made[name] if name in made else made.setdefault(name, CASES[name]())
        if way == ALONE:
            seconds = (alone[name] if name in alone else alone.setdefault(name, compiled_alone(case)))()
        else:
            seconds = run_once(case, way)
        print(f"\n{json.dumps([seconds, case.iterations])}", flush=True)


@contextlib.contextmanager
def worker(checkout: Path) -> Iterator[Callable[[str, str], float]]:
    """(case, way) -> milliseconds per hyper-iteration, in a process that imports from a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, str(Path(__file__).resolve())]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=checkout, env=environment, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers = process.stdout

        def ask(name: str, way: str) -> float:
            print(json.dumps([name, way]), file=process.stdin, flush=True)
            for line in answers:
                if line.startswith("["):
                    seconds, number = json.loads(line)
                    return 1e3 * seconds / number
            raise RuntimeError(f"the worker of {checkout} ended; see its messages above.")

        yield ask
        process.stdin.close()


def measure(cases: Sequence[str], rounds: int, checkouts: Mapping[str, Path]) -> list[Row]:
    """One row per case: the best of several interleaved rounds by checkout and way, and the first round, which compiles."""
    rows = []
    with contextlib.ExitStack() as stack:
        workers = {label: stack.enter_context(worker(path)) for label, path in checkouts.items()}
        pairs = [(label, way) for label in workers for way in WAYS if label == THIS or way in (CALLS, LOGGED)]
        for name in tqdm(cases, unit="case"):
            times = [{(label, way): workers[label](name, way) for label, way in pairs} for _ in range(rounds + 1)]
            best = {f"{label}, {way}": min(several[label, way] for several in times[1:]) for label, way in pairs}
            first = {f"{label}, first": times[0][label, CALLS] for label in workers}
            rows.append({"case": name, **best, **first})
    return rows


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown, in milliseconds per hyper-iteration."""
    columns = [key for key in rows[0] if key != "case" and not key.endswith(", first")]
    lines = [f"| ms per hyper-iteration | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    lines += [f"| {row['case']} | {' | '.join(f'{row[column]:.3g}' for column in columns)} |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.simplefilter("ignore")
    work()

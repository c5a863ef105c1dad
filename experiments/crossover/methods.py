"""Methods to choose hypers. Each trains again and again, and tells after every training how long it took and how good it is.

Every method begins with the untuned hypers. What it has found is the training with the lowest validation loss so far, the
untuned one included; the test score of that is what counts.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.common.networks import tanh_logits
from experiments.crossover.families import HYPER, Range, Task
from rfho2.core import loops

OURS, TPE, CMA, RANDOM, SHARED, LONGER = "hypergradients", "TPE", "CMA-ES", "random search", "one shared hyper", "longer"
METHODS = (OURS, TPE, CMA, RANDOM, SHARED, LONGER)
BETAS = (0.5, 0.9)  # of Adam: a budget is a few dozen updates
SEPARABLE = 100  # hypers from which on CMA-ES learns variances, and no covariances


class Trained(NamedTuple):
    """One training.

    Attributes:
      seconds: the processor's time of this process since the method began.
      validation: the loss by which a method chooses.
      test_loss, accuracy: on the test examples.
    """

    seconds: float
    validation: float
    test_loss: float
    accuracy: float


class Settings(NamedTuple):
    """Of hypergradients.

    Attributes:
      rate: how far a hyper moves in an update after a whole training, relative to its value.
      windows: updates in a training of hypers that act throughout it.
      window_rate: how far such a hyper moves in an update, relative to its interval, or to its value.
    """

    rate: float
    windows: int
    window_rate: float


class Judge:
    """Measures trained params, off the clock."""

    def __init__(self, task: Task):
        term = task.problem.terms([HYPER])[0]

        @tf.function(autograph=False, jit_compile=True)
        def scores(params: rf.Nest) -> tf.Tensor:
            x, y = task.test
            hits = tf.cast(tf.argmax(tanh_logits(params, x), 1, tf.int32) == y, tf.float32)
            validation = term.fn(params, {}, term.batch(tf.constant(0)))
            return tf.stack([validation, term.fn(params, {}, task.test), tf.reduce_mean(hits)])

        scores(task.params)
        self._scores, self._began = scores, time.process_time()

    def __call__(self, params: rf.Nest) -> Trained:
        """What the training that ended with these params took, since the judge was made, and its scores."""
        for leaf in tf.nest.flatten(params):
            leaf.numpy()
        now = time.process_time()
        scores = self._scores(params).numpy().tolist()
        trained = Trained(now - self._began, *scores)
        self._began += time.process_time() - now
        return trained


def run(method: str, task: Task, n: int, seed: int, budget: float, settings: Settings) -> list[Trained]:
    """The trainings of a method, at least two, until they have taken `budget` seconds, without compiling."""
    methods = {OURS: by_hypergradients(task, n, settings), LONGER: longer(task, n)}
    done: list[Trained] = []
    for trained in methods.get(method) or searched(task, n, method, seed):
        done.append(trained)
        if len(done) > 1 and trained.seconds - compiling(done) >= budget:
            break
    return done


def compiling(trained: list[Trained]) -> float:
    """The seconds by which the first training took longer than the second one."""
    if len(trained) < 2:
        return 0.0
    return max(0.0, 2 * trained[0].seconds - trained[1].seconds)


def plain(task: Task, n: int) -> Trained:
    """The untuned training; its seconds are the median of three, after the first."""
    train, judge = training(task), Judge(task)
    trained = [judge(train(untuned(task.range, n))) for _ in range(4)]
    return trained[0]._replace(seconds=float(np.median(np.diff([one.seconds for one in trained]))))


def training(task: Task) -> Callable[[np.ndarray], rf.Nest]:
    """hypers -> trained params."""
    problem = task.problem

    @tf.function(autograph=False, jit_compile=True)
    def train(hypers: tf.Tensor) -> rf.Nest:
        return problem.dynamics.params(problem.train(task.params, {HYPER: hypers}))

    return lambda hypers: train(tf.constant(hypers, tf.float32))


def untuned(hypers: Range, n: int) -> np.ndarray:
    """What every method begins with."""
    return np.full(n, hypers.untuned, np.float32)


def searched(task: Task, n: int, method: str, seed: int) -> Iterator[Trained]:
    """Trials of Optuna's samplers; one number takes the place of all hypers where they share it."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", module="optuna")  # that where CMA-ES begins may become another argument
    names = ["h0"] if method == SHARED else [f"h{i}" for i in range(n)]
    start = dict.fromkeys(names, task.range.untuned)
    samplers = {
        RANDOM: lambda: optuna.samplers.RandomSampler(seed=seed),
        CMA: lambda: optuna.samplers.CmaEsSampler(x0=start, seed=seed, use_separable_cma=n >= SEPARABLE),
    }
    sampler = samplers.get(method, lambda: optuna.samplers.TPESampler(seed=seed))()
    train, judge = training(task), Judge(task)
    study = optuna.create_study(sampler=sampler)
    study.enqueue_trial(start)
    while True:
        trial = study.ask()
        values = [trial.suggest_float(name, task.range.low, task.range.high, log=task.range.log) for name in names]
        trained = judge(train(np.broadcast_to(values, n)))
        finite = np.isfinite(trained.validation)
        study.tell(trial, trained.validation if finite else float(np.finfo(np.float32).max))
        yield trained


def by_hypergradients(task: Task, n: int, settings: Settings) -> Iterator[Trained]:
    """Trainings from the same params. The hypers are updated after each of them, or several times during each."""
    low, high, log, _ = task.range
    rate = settings.window_rate if task.throughout else settings.rate
    update = rf.projected_adam(
        rate if log else rate * (high - low), {HYPER: rf.Box(low, high)}, *BETAS, log_scale=[HYPER] if log else []
    )
    judge, engine, updates = Judge(task), _engine(task, n, settings.windows), settings.windows if task.throughout else 1
    hypers = {HYPER: tf.constant(untuned(task.range, n))}
    moments = update.init(hypers)
    while True:
        carry = engine.start(task.params, hypers)
        for k in range(updates):
            hypergradient, carry = engine.advance(carry, hypers, k)
            hypers, moments = update.update(hypergradient.grads, moments, hypers)
        yield judge(task.problem.dynamics.params(hypergradient.state))


def _engine(task: Task, n: int, windows: int) -> rf.Engine:
    """Windows in reverse for hypers that act throughout the training; otherwise reverse, or forward for one hyper."""
    if task.throughout:
        assert task.problem.steps is not None
        problem = dataclasses.replace(task.problem, steps=None)
        return rf.real_time(problem, task.problem.steps // windows, mode="reverse")
    return rf.forward(task.problem) if n == 1 else rf.reverse(task.problem)


def longer(task: Task, n: int) -> Iterator[Trained]:
    """One training with the untuned hypers, which goes on."""
    problem, hypers = task.problem, {HYPER: tf.constant(untuned(task.range, n))}
    judge, state, t = Judge(task), problem.dynamics.init(task.params, hypers), tf.constant(0)
    go_on = tf.function(
        lambda state, t: loops.fold(lambda s, t: problem.step(s, hypers, t), state, t, problem.steps),
        autograph=False,
        jit_compile=True,
    )
    while True:
        state, t = go_on(state, t), t + problem.steps
        yield judge(problem.dynamics.params(state))

"""Methods to choose hypers. Each trains again and again, and tells after every training when it ended and how good it is.

Every method begins with the untuned hypers. What it has found is the training with the lowest validation loss so far, the
untuned one included; the test score of that is what counts.
"""

from __future__ import annotations

import contextlib
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
STEPPING_BACK = "hypergradients, stepping back"  # for learning rates; added after the full run
METHODS = (OURS, STEPPING_BACK, TPE, CMA, RANDOM, SHARED, LONGER)
BETAS = (0.5, 0.9)  # of Adam: a budget is a few dozen updates
EVERY = 10  # plain trainings after which one is run again, to measure its time
SEPARABLE = 100  # for this many hypers or more, CMA-ES learns variances only, no covariances


class Trained(NamedTuple):
    """One training.

    Attributes:
      time: since the method began, in plain trainings.
      validation: the loss by which a method chooses.
      test_loss, accuracy: on the test examples.
    """

    time: float
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
    """Measures trained params, off the clock, which counts the processor's time of this process in plain trainings.

    Plain trainings are run again every now and then: what else the machine does affects their time and that of a method.
    """

    def __init__(self, task: Task, n: int):
        term = task.problem.terms([HYPER])[0]

        @tf.function(autograph=False, jit_compile=True)
        def scores(params: rf.Nest) -> tf.Tensor:
            x, y = task.test
            hits = tf.cast(tf.argmax(tanh_logits(params, x), 1, tf.int32) == y, tf.float32)
            validation = term.fn(params, {}, term.batch(tf.constant(0)))
            return tf.stack([validation, term.fn(params, {}, task.test), tf.reduce_mean(hits)])

        train, hypers = training(task), untuned(task.range, n)
        self._scores, self._plain = scores, lambda: _done(train(hypers))
        self.untuned = Trained(1.0, *scores(self._plain()).numpy().tolist())
        self.seconds: list[float] = []
        for _ in range(3):
            self._measure()
        self.start()

    def start(self) -> None:
        """Sets the clock to 0."""
        self._time, self._measured, self._began = 0.0, 0.0, time.process_time()

    def __call__(self, params: rf.Nest) -> Trained:
        """When the training that ended with these params did so, and its scores."""
        _done(params)
        self._time += (time.process_time() - self._began) / float(np.median(self.seconds[-3:]))
        trained = Trained(self._time, *self._scores(params).numpy().tolist())
        if self._time - self._measured >= EVERY:
            self._measure()
            self._measured = self._time
        self._began = time.process_time()
        return trained

    def _measure(self) -> None:
        began = time.process_time()
        self._plain()
        self.seconds.append(time.process_time() - began)


def _done(params: rf.Nest) -> rf.Nest:
    """The params, once they are there."""
    for leaf in tf.nest.flatten(params):
        leaf.numpy()
    return params


def run(method: str, task: Task, n: int, seed: int, budget: float, settings: Settings, judge: Judge) -> list[Trained]:
    """The trainings of a method, at least two, until they have taken the time of `budget` trainings, without compiling."""
    done: list[Trained] = []

    def over() -> bool:
        return len(done) > 1 and done[-1].time - compiling(done) >= budget

    judge.start()
    if method == STEPPING_BACK:
        step_back(task, n, settings, lambda params: done.append(judge(params)), over)
        return done
    methods = {OURS: by_hypergradients(task, n, settings, judge), LONGER: longer(task, n, judge)}
    for trained in methods.get(method) or searched(task, n, method, seed, judge):
        done.append(trained)
        if over():
            break
    return done


def compiling(trained: list[Trained]) -> float:
    """The time by which the first training took longer than the second one."""
    if len(trained) < 2:
        return 0.0
    return max(0.0, 2 * trained[0].time - trained[1].time)


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


def searched(task: Task, n: int, method: str, seed: int, judge: Judge) -> Iterator[Trained]:
    """Trials of Optuna's samplers; one number takes the place of all hypers where they share it."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", module="optuna")  # x0 is to be replaced; separable CMA-ES is experimental
    names = ["h0"] if method == SHARED else [f"h{i}" for i in range(n)]
    start = dict.fromkeys(names, task.range.untuned)
    samplers = {
        RANDOM: lambda: optuna.samplers.RandomSampler(seed=seed),
        CMA: lambda: optuna.samplers.CmaEsSampler(x0=start, seed=seed, use_separable_cma=n >= SEPARABLE),
    }
    sampler = samplers.get(method, lambda: optuna.samplers.TPESampler(seed=seed))()
    low, high, log, _, step = task.range
    train = training(task)
    study = optuna.create_study(sampler=sampler)
    study.enqueue_trial(start)
    while True:
        trial = study.ask()
        values = [trial.suggest_float(name, low, high, step=step, log=log) for name in names]
        trained = judge(train(np.broadcast_to(values, n)))
        finite = np.isfinite(trained.validation)
        study.tell(trial, trained.validation if finite else float(np.finfo(np.float32).max))
        yield trained


def by_hypergradients(task: Task, n: int, settings: Settings, judge: Judge) -> Iterator[Trained]:
    """Trainings from the same params. The hypers are updated after each of them, or several times during each."""
    update, engine = _update(task, settings), _engine(task, n, settings.windows)
    updates = settings.windows if task.throughout else 1
    hypers = {HYPER: tf.constant(untuned(task.range, n))}
    moments = update.init(hypers)
    while True:
        carry = engine.start(task.params, hypers)
        for k in range(updates):
            hypergradient, carry = engine.advance(carry, hypers, k)
            hypers, moments = update.update(hypergradient.grads, moments, hypers)
        yield judge(task.problem.dynamics.params(hypergradient.state))


def step_back(task: Task, n: int, settings: Settings, trained: Callable[[rf.Nest], None], over: Callable[[], bool]) -> None:
    """Hypergradients of whole trainings, for an `rf.HyperOptimizer` that steps back from divergence.

    It calls `trained` with the params after each training, and ends when `over` says so.
    """

    class Watch:
        def on_hyper_iteration(self, k: int, hypers: rf.Hypers, hypergradient: rf.HyperGradient, extra: object) -> None:
            trained(task.problem.dynamics.params(hypergradient.state))

    tuner = rf.HyperOptimizer(
        _engine(task, n, settings.windows),
        _update(task, settings),
        [Watch()],
        stop=lambda history: over(),
        on_divergence="backtrack",
    )
    # It gives up after ten failures in a row; what was found before counts.
    with contextlib.suppress(rf.DivergenceError):
        tuner.run(task.params, {HYPER: untuned(task.range, n)}, iterations=10_000)


def _update(task: Task, settings: Settings) -> rf.HyperUpdate:
    """Projected Adam."""
    low, high, log = task.range[:3]
    rate = settings.window_rate if task.throughout else settings.rate
    return rf.projected_adam(
        rate if log else rate * (high - low), {HYPER: rf.Box(low, high)}, *BETAS, log_scale=[HYPER] if log else []
    )


def _engine(task: Task, n: int, windows: int) -> rf.Engine:
    """Windows in reverse for hypers that act throughout the training; otherwise reverse, or forward for one hyper."""
    if task.throughout:
        assert task.problem.steps is not None
        problem = dataclasses.replace(task.problem, steps=None)
        return rf.real_time(problem, task.problem.steps // windows, mode="reverse")
    return rf.forward(task.problem) if n == 1 else rf.reverse(task.problem)


def longer(task: Task, n: int, judge: Judge) -> Iterator[Trained]:
    """One training with the untuned hypers, which goes on."""
    problem, hypers = task.problem, {HYPER: tf.constant(untuned(task.range, n))}
    state, t = problem.dynamics.init(task.params, hypers), tf.constant(0)
    go_on = tf.function(
        lambda state, t: loops.fold(lambda s, t: problem.step(s, hypers, t), state, t, problem.steps),
        autograph=False,
        jit_compile=True,
    )
    while True:
        state, t = go_on(state, t), t + problem.steps
        yield judge(problem.dynamics.params(state))

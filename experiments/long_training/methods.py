"""Ways to choose the learning rate of a long training run. Each is given a number of seconds, and what a step costs.

A run is evaluated twenty times, and the weights with the lowest validation loss are kept; the tuners keep theirs themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.keras_tasks.tasks import Parts
from experiments.long_training.problems import Problem
from experiments.long_training.rate_free import RATE_FREE
from rfho2.core import loops, nest
from rfho2.core.compiled import Compiled
from rfho2.core.types import Nest
from rfho2.dynamics.base import OwnGradient, gradient
from rfho2.keras_bridge.training.keras_training import make_training

EVALUATIONS = 20
TIMED = 200  # steps, to measure what one costs
RATES = {"momentum": (0.003, 0.01, 0.03, 0.1, 0.3), "adam": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)}
START = {"momentum": 0.01, "adam": 0.001}  # Keras's defaults
KNOTS, ITERATIONS = 6, 10
SHORTER = 10  # times that the knots are tuned on a shorter run
PATIENCE, FACTOR = 3, 0.1  # of the plateau: evaluations without improvement, after which the rate falls
CONSTANT, COSINE, PLATEAU = "constant, best of 5", "cosine, best of 5", "reduced on plateaus"
AVERAGED = "real time, averaged weights"
REAL_TIME = {"real time": 0.99, "real time, discount 0.999": 0.999, "real time, discount 1": 1.0, AVERAGED: 0.99}
SHORT_KNOTS, LONG_KNOTS = "knots, tuned on a tenth", "knots, tuned on all"
METHODS = (CONSTANT, COSINE, PLATEAU, *RATE_FREE, *REAL_TIME, SHORT_KNOTS, LONG_KNOTS)


COUNTS = FIT, LOOP = "Keras's fit", "compiled loop"
"""What a plain step may cost: as a user of Keras runs it, or as fast as it can be."""


class Costs(NamedTuple):
    """Seconds of a step, as measured by `Trainer.costs`.

    Attributes:
      plain: by `COUNTS`.
      real_time, reverse: of real time and of reverse mode.
      rate_free: of each optimiser without a rate, relative to a plain step.
    """

    plain: Mapping[str, float]
    real_time: float
    reverse: float
    rate_free: Mapping[str, float]


class Trained(NamedTuple):
    """The weights that were kept, and their validation loss."""

    params: Nest
    validation: float


def steps_within(method: str, seconds: float, costs: Costs, real_time_steps: int, counted: str) -> int:
    """The length of the run, or of the last one, so that everything takes so many seconds; a multiple of the evaluations.

    Args:
      method: one of `METHODS`.
      seconds: for all runs together.
      costs: of a step.
      real_time_steps: the steps that real time takes in these seconds.
      counted: one of `COUNTS`.
    """
    plain = costs.plain[counted]
    if method in REAL_TIME:
        steps: float = real_time_steps
    elif method in RATE_FREE:
        steps = seconds / (plain * costs.rate_free[method])
    elif method == SHORT_KNOTS:
        steps = seconds / (ITERATIONS / SHORTER * costs.reverse + plain)
    elif method == LONG_KNOTS:
        steps = seconds / (ITERATIONS * costs.reverse)
    else:
        steps = seconds / plain / (1 if method == PLATEAU else len(RATES["momentum"]))
    return max(1, round(steps / EVALUATIONS)) * EVALUATIONS


def counts(method: str) -> tuple[str, ...]:
    """The ways to count that matter to a method: all if it takes plain steps, otherwise one, which stands for all."""
    return COUNTS[:1] if method in REAL_TIME or method == LONG_KNOTS else COUNTS


class Trainer:
    """Trains the model of a problem, always from the same weights.

    Args:
      problem, parts: what is learned.
      seed: of the weights and of the order of the examples.
    """

    def __init__(self, problem: Problem, parts: Parts, seed: int):
        self._problem, self._seed = problem, seed
        self._parts: Any = Parts(*(nest.map(tf.convert_to_tensor, part) for part in parts))  # once: they may be GB
        self._training = make_training(self._model(), None, ("learning_rate",), None, False, None, "batch")
        training = self._training
        held_out = self._parts.validation  # tensors: arrays would become constants of the graph
        self._validation = tf.function(lambda params: training.objective(params, {}, held_out), autograph=False)
        self._start = dict(training.model.params)

    def _model(self, average: bool = False) -> keras.Model:
        """The compiled model, with its initial weights."""
        keras.utils.set_random_seed(self._seed)
        model = self._problem.build(self._parts.train)
        settings: dict[str, Any] = {"use_ema": True, "ema_momentum": 0.99} if average else {}
        rate = START[self._problem.optimizer]
        if self._problem.optimizer == "momentum":
            optimizer = keras.optimizers.SGD(rate, momentum=0.9, **settings)
        else:
            optimizer = keras.optimizers.Adam(rate, **settings)
        model.compile(optimizer, self._problem.loss)
        return model

    def __call__(self, method: str, steps: int) -> Trained:
        """The run of a method, or the best of its runs."""
        if method in REAL_TIME:
            return self._real_time(method, steps)
        if method in RATE_FREE:
            return self._runs(RATE_FREE[method](self._loss), steps)(None)
        if method == PLATEAU:
            return self._runs(self._by_rates(), steps, reduce=True)(constant(START[self._problem.optimizer], steps))
        if method == SHORT_KNOTS:
            schedule = self._knots(steps // SHORTER).schedules["learning_rate"].stretched(steps)
            return self._runs(self._by_rates(), steps)(np.array([float(schedule(t)) for t in range(steps)]))
        if method == LONG_KNOTS:
            tuned = self._knots(steps)
            assert tuned.result.best is not None
            return Trained(self._params(tuned.model), tuned.result.best.value)
        shape = {CONSTANT: constant, COSINE: cosine}[method]
        run = self._runs(self._by_rates(), steps)
        return min((run(shape(rate, steps)) for rate in RATES[self._problem.optimizer]), key=lambda run: run.validation)

    def score(self, params: Nest) -> float:
        """On the test examples."""
        x, y = self._parts.test
        pieces = [self._training.model.apply(params, x[i : i + 2_000]).numpy() for i in range(0, len(x), 2_000)]
        return self._problem.score(np.concatenate(pieces), y.numpy())

    def costs(self, real_time_steps: int) -> Costs:
        """What steps cost: a whole run of the tuner, all of it included, and plain steps by Keras's `fit` and in a loop.

        The optimisers without a rate are not Keras's: they cost more than a plain step by a factor that is measured with
        compiled loops, in which only arithmetic counts.
        """
        began = time.perf_counter()
        self("real time", real_time_steps)
        real_time = (time.perf_counter() - began) / real_time_steps
        plain = {FIT: _seconds_per_step(self._keras_fit()), LOOP: _seconds_per_step(self._whole(self._by_rates()))}
        free = {name: _seconds_per_step(self._whole(make(self._loss))) for name, make in RATE_FREE.items()}
        training, hypers = self._training, self._training.tunables.to_internal(self._training.tunables.start)
        held_out = rf.batches.full(self._parts.validation)
        engine = rf.reverse(rf.Problem(training.dynamics(), training.objective, TIMED, self._batches(), held_out))
        reverse = _seconds_per_step(lambda: nest.flatten(engine(self._start, hypers).value)[0].numpy())
        return Costs(plain, real_time, reverse, {name: each / plain[LOOP] for name, each in free.items()})

    def _keras_fit(self) -> Callable[[], Any]:
        model, size = self._model(), self._problem.batch_size
        rows = np.arange(TIMED * size) % len(self._parts.train[0])
        x, y = (tf.gather(part, rows).numpy() for part in self._parts.train)
        return lambda: model.fit(x, y, size, verbose=0)

    def _loss(self, params: Nest, hypers: Any, batch: Nest) -> tf.Tensor:
        return self._training.training_loss(params, {}, batch)

    def _by_rates(self) -> rf.Dynamics:
        """The optimiser with the rate hypers["rates"][t] in step t; momentum's velocity has the rates in it, as in Keras."""
        if self._problem.optimizer == "adam":
            return rf.adam(self._loss, lambda hypers, t: tf.gather(hypers["rates"], t))

        def scaled(params: Nest, hypers: Any, batch: Nest, t: tf.Tensor) -> Nest:
            return nest.map(lambda g: tf.gather(hypers["rates"], t) * g, gradient(self._loss, params, hypers, batch, t))

        return rf.momentum(OwnGradient(self._loss, scaled), 1.0, 0.9)

    def _batches(self) -> Any:
        order = rf.batches.shuffled(self._parts.train, self._problem.batch_size, self._seed)
        return rf.batches.seeded(order, self._seed)

    def _part(self, dynamics: rf.Dynamics, steps: int) -> Callable[..., Nest]:
        """(state, hypers, t) -> the state after so many steps."""
        problem = rf.Problem(dynamics, self._loss, None, self._batches())
        return Compiled(lambda s, hypers, t: loops.fold(lambda s, t: problem.step(s, hypers, t), s, t, steps))

    def _whole(self, dynamics: rf.Dynamics) -> Callable[[], np.ndarray]:
        """A run of so many steps as are timed; it returns some of the trained weights, so that they are there."""
        part, start = self._part(dynamics, TIMED), dynamics.init(self._start, {})
        rates = tf.constant(constant(START[self._problem.optimizer], TIMED), tf.float32)
        return lambda: nest.flatten(part(start, {"rates": rates}, tf.constant(0)))[0].numpy()

    def _runs(self, dynamics: rf.Dynamics, steps: int, reduce: bool = False) -> Callable[[np.ndarray | None], Trained]:
        """Runs that are evaluated now and then, given the rates of all steps; all runs share one program.

        Args:
          dynamics: may depend on hypers["rates"].
          steps: of each run.
          reduce: whether the rate falls where the validation loss stays.
        """
        length = steps // EVALUATIONS
        part = self._part(dynamics, length)

        def run(rates: np.ndarray | None) -> Trained:
            state = dynamics.init(self._start, {})
            factor, since, best = 1.0, 0, Trained(self._start, np.inf)
            for i in range(EVALUATIONS):
                hypers = {} if rates is None else {"rates": tf.constant(factor * rates, tf.float32)}
                state = part(state, hypers, tf.constant(i * length))
                params = dynamics.params(state)
                loss = float(self._validation(params))
                since = 0 if loss < best.validation else since + 1
                if loss < best.validation:
                    best = Trained(params, loss)
                if reduce and since == PATIENCE:
                    factor, since = FACTOR * factor, 0
            return best

        return run

    def _real_time(self, method: str, steps: int) -> Trained:
        """One run that tunes its rate; it keeps the best weights itself."""
        model = self._model(average=method == AVERAGED)
        tuner = rf.RealTimeTuner(model, seed=self._seed, check=False, discount=REAL_TIME[method])
        x, y = self._parts.train
        tuner.fit(
            x, y, validation_data=self._parts.validation, epochs=EVALUATIONS,
            steps_per_epoch=steps // EVALUATIONS, batch_size=self._problem.batch_size, verbose=0,
        )  # fmt: skip
        params = self._params(model)
        return Trained(params, float(self._validation(params)))

    def _params(self, model: keras.Model) -> dict[str, tf.Tensor]:
        """The weights of a model, under the names that they have in the first one."""
        return dict(zip(self._start, (tf.identity(v.value) for v in model.trainable_variables), strict=True))

    def _knots(self, steps: int) -> rf.Tuned:
        return rf.tune(
            self._model(), train=self._parts.train, validation=self._parts.validation, schedule={"learning_rate": KNOTS},
            steps=steps, iterations=ITERATIONS, batch_size=self._problem.batch_size, hyper_rate=0.5, refit=False,
            seed=self._seed, check=False, verbose=0, memory="4GB",
        )  # fmt: skip


def _seconds_per_step(run: Callable[[], Any]) -> float:
    """The best of three, after the first, which compiles."""
    run()
    times = []
    for _ in range(3):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times) / TIMED


def constant(rate: float, steps: int) -> np.ndarray:
    """The same rate in every step."""
    return np.full(steps, rate)


def cosine(rate: float, steps: int) -> np.ndarray:
    """Half a cosine, down to 0."""
    return 0.5 * rate * (1 + np.cos(np.pi * np.arange(steps) / steps))

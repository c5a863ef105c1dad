"""Short timed runs of training, reverse and forward mode: seconds per step, and bytes at the peak."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.core import loops, nest
from rfho2.core.compiled import Compiled
from rfho2.core.types import Hypers, Nest
from rfho2.hypergradients.engine import MethodEngine
from rfho2.hypergradients.implicit import implicit
from rfho2.hypergradients.real_time import real_time
from rfho2.hypergradients.reverse import Sweep, reverse
from rfho2.hypergradients.sensitivity import directions, push_steps, start_tangent
from rfho2.planning.peaks import added
from rfho2.problem import Problem, RunningCost

SECONDS = 0.3  # the intended length of a timed run
ROUNDS = 3
SEEN = 1e7  # bytes that stand out from the noise of the allocator


class Measured(NamedTuple):
    """The cost of an engine: `start` seconds and `bytes` once, `step` seconds and `state_bytes` per step."""

    start: float
    step: float
    bytes: float
    state_bytes: float = 0.0


def time_training(problem: Problem, params: Nest, hypers: Hypers) -> Measured:
    """Plain training."""
    return _timed(problem, Compiled(problem.train), params, hypers)


def time_forward(problem: Problem, params: Nest, hypers: Hypers, step: float, columns: int) -> Measured:
    """The training with one chunk of columns of Z."""

    def push(params: Nest, hypers: Hypers, steps: tf.Tensor) -> Nest:
        along = directions(hypers, 0, columns)
        first = start_tangent(problem, params, hypers, along)
        return push_steps(problem, first, hypers, along, tf.constant(0), 0, steps)

    return _timed(problem, Compiled(push), params, hypers, guess=(1 + columns) * step)


def _timed(problem: Problem, run: Callable[..., Nest], params: Nest, hypers: Hypers, guess: float | None = None) -> Measured:
    """The line through the times of two runs, a short one and one of about `SECONDS`; `guess` is the time of one step."""
    assert problem.steps is not None

    def seconds(steps: int) -> float:
        return _best(lambda: run(params, hypers, tf.constant(steps)))

    first = _few(problem.steps)
    used = added(lambda: run(params, hypers, tf.constant(first)))
    steps = min(problem.steps, first + 1 if guess is None else max(first + 1, math.ceil(SECONDS / guess)))
    few, many = seconds(first), seconds(steps)
    while guess is None and many < SECONDS and steps < problem.steps:
        steps = min(problem.steps, 4 * steps)
        many = seconds(steps)
    return Measured(*_line((first, few), (steps, many)), used)


def _few(steps: int) -> int:
    """Two steps, because the compiler treats one step specially, unless the problem has too few to compare with."""
    return max(1, min(2, steps - 1))


def time_reverse(problem: Problem, params: Nest, hypers: Hypers, step: float, most: int, state: int) -> Measured:
    """Reverse mode on the same problem with two steps, and with more.

    The compiler drops parts of the states that no derivative needs, such as the velocity if momentum is fixed. So
    `state_bytes` is measured; if the states are too small for that, it is the size of the whole `state`.
    """
    assert problem.steps is not None
    first = _few(problem.steps)
    steps = min(problem.steps, max(first + 1, min(most, math.ceil(SECONDS / (3 * step)))))
    if (steps - first) * state <= SEEN:
        # One function for both numbers of steps: compiling takes longer than everything else.
        run = Compiled(functools.partial(_swept, _shortened(problem, steps), steps))
        short, long = (functools.partial(run, params, hypers, tf.constant(n)) for n in (first, steps))
        peak, line = added(long), _line((first, _best(short)), (steps, _best(long)))
        return Measured(*line, max(peak - steps * state, 0), state)
    few, many = (reverse(_shortened(problem, n)) for n in (first, steps))
    used = [added(functools.partial(engine, params, hypers)) for engine in (few, many)]
    times = [_best(functools.partial(engine, params, hypers)) for engine in (few, many)]
    state_bytes = _slope((first, used[0]), (steps, used[1]), state)
    return Measured(*_line((first, times[0]), (steps, times[1])), max(used[1] - steps * state_bytes, 0), state_bytes)


def time_windows(problem: Problem, params: Nest, hypers: Hypers, step: float, most: int, state: int) -> Measured:
    """Real time in reverse mode with windows of two steps, and of more; `problem.steps` are those of the planned windows.

    The state from which a window continues is held all the time, and counts.
    """
    assert problem.steps is not None
    first = _few(problem.steps)
    steps = min(problem.steps, max(first + 1, min(most, math.ceil(SECONDS / (3 * step)))))
    used, times = [], []
    for length in (first, steps):
        engine = real_time(dataclasses.replace(problem, steps=None), length, mode="reverse")
        carry = engine.start(params, hypers)

        def value(engine: MethodEngine = engine, carry: Nest = carry) -> Nest:
            return engine.advance(carry, hypers, 0)[0].value

        used.append(state + added(value))
        times.append(_best(value))
    state_bytes = _slope((first, used[0]), (steps, used[1]), state) if (steps - first) * state > SEEN else state
    return Measured(*_line((first, times[0]), (steps, times[1])), max(used[1] - steps * state_bytes, 0), state_bytes)


def _slope(first: tuple[int, int], second: tuple[int, int], state: int) -> float:
    """Bytes saved for each step, by the (steps, bytes) of two runs: at most a state, and a state if none were seen."""
    more = second[1] - first[1]
    return min(more / (second[0] - first[0]), state) if more > 0 else state


def _swept(problem: Problem, most: int, params: Nest, hypers: Hypers, steps: tf.Tensor) -> Nest:
    """Reverse mode over the first `steps` steps, of which there are at most `most`."""
    sweep, state = Sweep(problem, hypers, tf.constant(0)), problem.dynamics.init(params, hypers)
    trajectory, last = loops.record(sweep.step, state, 0, steps, most)
    return loops.fold_back(sweep.back, sweep.turn(last, sweep.nothing(last), steps), trajectory, 0, steps)[0]


def time_implicit(problem: Problem, params: Nest, hypers: Hypers, step: float) -> Measured:
    """Implicit differentiation at the end of a short training: the linear system is solved once, for any T."""
    assert problem.steps is not None
    steps = min(problem.steps, max(2, math.ceil(SECONDS / step)))
    engine = implicit(_shortened(problem, steps))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a training this short need not be at a solution
        used = added(functools.partial(engine, params, hypers))
        seconds = _best(functools.partial(engine, params, hypers))
    return Measured(max(0.0, seconds - steps * step), step, used)


def _line(first: tuple[int, float], second: tuple[int, float]) -> tuple[float, float]:
    """Intercept and slope of the line through two (steps, seconds); if noise makes it fall, the intercept is 0."""
    slope = (second[1] - first[1]) / max(second[0] - first[0], 1)
    if slope <= 0:
        return 0.0, second[1] / second[0]
    return max(0.0, first[1] - first[0] * slope), slope


def _shortened(problem: Problem, steps: int) -> Problem:
    """The problem with fewer steps; a running cost is evaluated at least once."""

    def sooner(fn: Any) -> Any:
        return fn._replace(every=min(fn.every, steps)) if isinstance(fn, RunningCost) else fn

    objective = problem.objective
    if isinstance(objective, Mapping):
        objective = {name: o._replace(fn=sooner(o.fn)) for name, o in objective.items()}
    else:
        objective = sooner(objective)
    return dataclasses.replace(problem, steps=steps, objective=objective)


def _best(function: Callable[[], Any]) -> float:
    """Seconds of a call: the best of several, after a first one that may compile."""
    function()
    best = math.inf
    for _ in range(ROUNDS):
        began = time.perf_counter()
        nest.map(lambda x: x.numpy(), function())
        best = min(best, time.perf_counter() - began)
    return best

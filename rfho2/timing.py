"""Short runs of training, reverse and forward mode: seconds of a step, and bytes at the peak."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from rfho2 import memory, nest
from rfho2.hypergradients.compiled import Compiled
from rfho2.hypergradients.forward import directions, push_steps, start_tangent
from rfho2.hypergradients.reverse import reverse
from rfho2.problem import Problem, RunningCost
from rfho2.types import Hypers, Nest

SECONDS = 0.3  # that a timed run should take
ROUNDS = 3


class Measured(NamedTuple):
    """What an engine takes: `start` seconds once, `step` seconds for each step, and the most bytes of a short run."""

    start: float
    step: float
    bytes: float
    steps: int
    """Of the run whose bytes these are."""


def time_training(problem: Problem, params: Nest, hypers: Hypers) -> Measured:
    """Plain training."""
    return _line(problem, Compiled(problem.train), params, hypers)


def time_forward(problem: Problem, params: Nest, hypers: Hypers, step: float, columns: int) -> Measured:
    """The training with one chunk of columns."""

    def push(params: Nest, hypers: Hypers, steps: tf.Tensor) -> Nest:
        along = directions(hypers, 0, columns)
        first = start_tangent(problem, params, hypers, along)
        return push_steps(problem, first, hypers, along, tf.constant(0), 0, steps, problem.batch)

    return _line(problem, Compiled(push), params, hypers, guess=(1 + columns) * step)


def _line(problem: Problem, run: Callable[..., Nest], params: Nest, hypers: Hypers, guess: float | None = None) -> Measured:
    """The line through the times of two numbers of steps, the second such that it takes a while; `guess` is of one step."""
    assert problem.steps is not None

    def seconds(steps: int) -> float:
        return _best(lambda: run(params, hypers, tf.constant(steps)))

    first = _few(problem.steps)
    used = _peak(lambda: run(params, hypers, tf.constant(first)))
    steps = min(problem.steps, first + 1 if guess is None else max(first + 1, math.ceil(SECONDS / guess)))
    few, many = seconds(first), seconds(steps)
    while guess is None and many < SECONDS and steps < problem.steps:
        steps = min(problem.steps, 4 * steps)
        many = seconds(steps)
    return _through((first, few), (steps, many), used)


def _few(steps: int) -> int:
    """Two, which are less special to the compiler than one, unless that leaves no more to compare with."""
    return max(1, min(2, steps - 1))


def time_reverse(problem: Problem, params: Nest, hypers: Hypers, step: float, most: int) -> Measured:
    """Reverse mode on the same problem with few steps, and with two."""
    assert problem.steps is not None
    first = _few(problem.steps)
    steps = min(problem.steps, max(first + 1, min(most, math.ceil(SECONDS / (3 * step)))))
    few, many = (reverse(_shortened(problem, n)) for n in (first, steps))
    used = _peak(lambda: many(params, hypers))
    times = _best(lambda: few(params, hypers)), _best(lambda: many(params, hypers))
    return _through((first, times[0]), (steps, times[1]), used)


def _through(first: tuple[int, float], second: tuple[int, float], used: float) -> Measured:
    """The line through two (steps, seconds); where noise turns it downwards, all is put down to the steps."""
    slope = (second[1] - first[1]) / max(second[0] - first[0], 1)
    if slope <= 0:
        slope = second[1] / second[0]
    return Measured(max(0.0, first[1] - first[0] * slope), slope, used, second[0])


def _shortened(problem: Problem, steps: int) -> Problem:
    """The problem with fewer steps; a running cost is taken at least once."""

    def sooner(fn: Any) -> Any:
        return fn._replace(every=min(fn.every, steps)) if isinstance(fn, RunningCost) else fn

    objective = problem.objective
    if isinstance(objective, Mapping):
        objective = {name: o._replace(fn=sooner(o.fn)) for name, o in objective.items()}
    else:
        objective = sooner(objective)
    return dataclasses.replace(problem, steps=steps, objective=objective)


def _best(function: Callable[[], Any]) -> float:
    """Seconds of a call: the best of several, after one that may compile."""
    function()
    best = math.inf
    for _ in range(ROUNDS):
        began = time.perf_counter()
        nest.map(lambda x: x.numpy(), function())
        best = min(best, time.perf_counter() - began)
    return best


def _peak(function: Callable[[], Any]) -> int:
    """Bytes that a function which was never called adds at its peak, its graph and code included, but not what compiling
    them took for a while; 0 where the system does not tell.
    """
    try:
        before = memory.now()
        function()
        memory.forget_peak()
        function()
        return memory.peak() - before
    except (OSError, StopIteration):
        return 0

"""Our methods and SOBA on bilevel problems: who comes how far in the same time."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.benchmarks.bilevel import PROBLEMS, Bilevel
from experiments.common.config import setting
from rfho2.core.types import Hypers, Nest

Row = dict[str, Any]
Curve = list[dict[str, float]]


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    problems: tuple[str, ...] = setting(tuple(PROBLEMS), "Problems.", choices=tuple(PROBLEMS))
    seconds: tuple[float, ...] = setting(
        (5.0, 10.0), "Time of a run, for each problem; compiling does not count.", at_least=0.0
    )
    seeds: tuple[int, ...] = setting(
        (0, 1, 2, 3), "Seeds of the data: settings are chosen on the first, results are those of the others.", at_least=0
    )
    batch_size: int = setting(64, "Examples in a batch of the stochastic method.", at_least=1)
    most: int = setting(100, "At most so many settings of each method are tried, from all over its grid.", at_least=1)


PRESETS = {"full": Config(), "quick": Config(seconds=(1.0, 1.0), seeds=(0, 1), most=2)}


class Method(NamedTuple):
    """A way to solve a bilevel problem.

    Attributes:
      settings: those among which the best final value chooses.
      run: (problem, setting, batch size, seed) -> states (z, x), for ever; the first before any update.
      problems: those that it can solve.
    """

    settings: Sequence[tuple[float, ...]]
    run: Callable[[Bilevel, tuple[float, ...], int, int], Iterator[tuple[tf.Tensor, tf.Tensor]]]
    problems: Sequence[str] = tuple(PROBLEMS)


def gradient_step(rate: float) -> rf.HyperUpdate:
    """x - rate * gradient."""

    def update(grads: Hypers, state: Nest, hypers: Hypers) -> tuple[dict[str, tf.Tensor], Nest]:
        return {name: value - rate * grads[name] for name, value in hypers.items()}, state

    return rf.HyperUpdate(lambda hypers: (), update, {"rate": rate})


def with_engine(make: Callable[[Bilevel], rf.Engine]) -> Callable[..., Iterator[tuple[tf.Tensor, tf.Tensor]]]:
    """Hyper-iterations of an engine."""

    def run(case: Bilevel, chosen: tuple[float, ...], batch_size: int, seed: int) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        engine, (rate,) = make(case), chosen
        optimizer = rf.projected_adam(rate) if case.adam else gradient_step(rate)
        hypers: dict[str, tf.Tensor] = {"x": case.x}
        state = optimizer.init(hypers)
        engine.advance(engine.start(case.z, hypers), hypers, 0)  # compiles
        carry = engine.start(case.z, hypers)
        yield case.z, case.x
        for k in itertools.count():
            found, carry = engine.advance(carry, hypers, k)
            hypers, state = optimizer.update(found.grads, state, hypers)
            yield engine.problem.dynamics.params(found.state), hypers["x"]

    return run


CHUNK = 20  # steps of SOBA in one call


def soba(
    case: Bilevel, chosen: tuple[float, ...], batch_size: int | None, seed: int
) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """The single loop of Dagréou et al. (2022): one step each on z, on the linear system for v, and on x.

    z - r dg/dz;  v - r (d2g/dz2 v + df/dz);  x - r / ratio (d2g/dxdz v + df/dx).

    Args:
      chosen: r and ratio; with batches, both rates fall with the square root of the number of steps.
      batch_size: of consecutive examples at a random place (a rest that is smaller is left out); None for all examples.
    """
    rate, ratio = chosen

    def drawn(data: Any, t: tf.Tensor, level: int) -> Any:
        if batch_size is None:
            return data
        number = tf.nest.flatten(data)[0].shape[0] // batch_size
        start = batch_size * tf.random.stateless_uniform((), (seed + level, t), 0, number, tf.int32)
        return tf.nest.map_structure(lambda column: column[start : start + batch_size], data)

    def step(t: tf.Tensor, z: tf.Tensor, v: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, ...]:
        g_rows, f_rows = drawn(case.train, t, 0), drawn(case.validation, t, 1)
        with tf.GradientTape() as second:
            second.watch([z, x])
            with tf.GradientTape() as first:
                first.watch(z)
                g = case.inner(z, x, g_rows)
            slope = first.gradient(g, z)
            product = tf.reduce_sum(slope * v)
        curvature, cross = map(tf.convert_to_tensor, second.gradient(product, [z, x]))
        with tf.GradientTape() as tape:
            tape.watch([z, x])
            f = case.outer(z, x, f_rows)
        fz, fx = tape.gradient(f, [z, x], unconnected_gradients="zero")
        r = rate if batch_size is None else rate / tf.sqrt(tf.cast(t + 1, tf.float32))
        return t + 1, z - r * slope, v - r * (curvature + fz), x - r / ratio * (cross + fx)

    @tf.function(autograph=False, jit_compile=True)
    def steps(*state: tf.Tensor) -> tuple[tf.Tensor, ...]:
        last = state[0] + CHUNK
        return tf.while_loop(lambda t, *rest: t < last, step, state)

    start = tf.constant(0), case.z, tf.zeros_like(case.z), case.x
    steps(*start)  # compiles
    state = start
    while True:
        yield state[1], state[3]
        state = steps(*state)


def full_soba(case: Bilevel, chosen: tuple[float, ...], batch_size: int, seed: int) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """SOBA with all examples in every step; r is that of our methods."""
    return soba(case, (case.rate, *chosen), None, seed)


RATIOS = [10.0**k for k in range(-7, 2)]  # of SOBA's rate for z to that for x; the benchmark tries fewer
RATES = ((0.03,), (0.1,), (0.3,), (1.0,))
METHODS = {
    "reverse, 100 steps": Method(RATES, with_engine(lambda case: rf.reverse(case.problem(100)))),
    "reverse, 10 steps, continued": Method(
        RATES, with_engine(lambda case: rf.real_time(case.problem(10), 10, mode="reverse"))
    ),
    "real time (forward), 10 steps": Method(
        RATES, with_engine(lambda case: rf.real_time(case.problem(10), 10, carry=True)), ("quadratics",)
    ),
    "implicit, 10 steps, continued": Method(
        RATES, with_engine(lambda case: rf.implicit(case.problem(10), iterations=10, warm_start=True))
    ),
    "SOBA, all examples": Method([(ratio,) for ratio in RATIOS], full_soba),
    "SOBA, batches": Method([(rate, ratio) for rate in (0.01, 0.1, 1.0) for ratio in RATIOS], soba),
}


def curve(case: Bilevel, states: Iterator[tuple[tf.Tensor, tf.Tensor]], seconds: float) -> Curve:
    """The metrics after more and more seconds, in which measuring does not count; a run that diverges ends."""
    rows, spent, due = [{"seconds": 0.0, **case.measure(*next(states))}], 0.0, 0.01
    while spent < seconds:
        began = time.perf_counter()
        z, x = next(states)
        finite = bool(tf.reduce_all(tf.math.is_finite(x)))  # waits for the result
        spent += time.perf_counter() - began
        if not finite:
            return [*rows, {"seconds": spent, "value": np.inf}]
        if spent >= min(due, seconds):
            rows.append({"seconds": spent, **case.measure(z, x)})
            due = 1.15 * spent
    return rows


def run(config: Config, report: Callable[[str], None]) -> list[Row]:
    """A row for each problem, method and seed: the settings that were best on the first seed, and their curve."""
    rows = []
    for problem, seconds in zip(config.problems, config.seconds, strict=True):
        first, *others = config.seeds
        chosen = {}
        case = PROBLEMS[problem](first)
        for name, method in METHODS.items():
            if problem not in method.problems:
                continue
            finals = {}
            for one in method.settings[:: -(-len(method.settings) // config.most)]:
                finals[one] = curve(case, method.run(case, one, config.batch_size, first), seconds)[-1]["value"]
                report(f"{problem}, {name}, {one}: {finals[one]:.3g}")
            chosen[name] = min(finals, key=lambda one: finals[one])
        for seed in others:
            case = PROBLEMS[problem](seed)
            for name, one in chosen.items():
                found = curve(case, METHODS[name].run(case, one, config.batch_size, seed), seconds)
                report(f"{problem}, seed {seed}, {name}: {found[-1]['value']:.3g}")
                rows.append({"problem": problem, "method": name, "settings": one, "seed": seed, "curve": found})
    return rows

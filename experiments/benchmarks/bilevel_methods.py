"""Our methods, and solvers of the benchmark, on bilevel problems: how far each gets in the same time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.benchmarks import bilevel_peers
from experiments.benchmarks.bilevel import GOALS, PROBLEMS, Bilevel
from experiments.common.config import setting
from rfho2.core.types import HyperGradient, Hypers, Nest

Row = dict[str, Any]
Curve = list[dict[str, float]]
Settings = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on."""

    problems: tuple[str, ...] = setting(tuple(PROBLEMS), "Problems.", choices=tuple(PROBLEMS))
    seconds: tuple[float, ...] = setting(
        (3.0, 6.0), "Time of a run, for each problem; compiling does not count.", at_least=0.0
    )
    seeds: tuple[int, ...] = setting(
        (0, 1, 2, 3), "Seeds of the data: settings are chosen on the first, results are those of the others.", at_least=0
    )
    batch_size: int = setting(64, "Examples in a batch of the stochastic methods.", at_least=1)
    most: int = setting(100, "The largest number of settings of each method to try, spread over its grid.", at_least=1)


PRESETS = {"full": Config(), "quick": Config(seconds=(1.0, 1.0), seeds=(0, 1), most=2)}


@dataclasses.dataclass(frozen=True)
class Invocation:
    """Where the benchmark's own solvers are."""

    checkout: str | None = setting(None, "A work tree of benchopt/benchmark_bilevel, whose solvers are then run too.")
    jax_command: str = setting("python3", "A command that runs a Python with JAX and benchopt.")


class Asked(NamedTuple):
    """The problem that a method is run on, and the conditions of the run."""

    problem: str
    case: Bilevel
    seconds: float
    batch_size: int
    seed: int
    invocation: Invocation


class Method(NamedTuple):
    """A way to solve a bilevel problem.

    Attributes:
      settings: by problem, those among which one is chosen; a problem that is missing is not solved.
      curves: the metrics against seconds, for each of some settings.
    """

    settings: Mapping[str, Sequence[Settings]]
    curves: Callable[[Asked, Sequence[Settings]], Iterable[Curve]]


# ---- Ours ----------------------------------------------------------------------------------------------------------------


class TimeIsUpError(Exception):
    """Ends a run."""


class Recorder(rf.Callback):
    """The metrics after more and more seconds, in which measuring does not count; at the end of each compiled call."""

    needs_state = False  # between the ends of calls

    def __init__(self, asked: Asked, params: Callable[[Nest], tf.Tensor]):
        self._asked, self._params = asked, params
        case = asked.case
        self.curve: Curve = [{"seconds": 0.0, **case.measure(case.z, case.x)}]
        self._due, self._began = 0.01, time.perf_counter()

    def on_start(self, run: Any) -> None:
        """Starts the clock."""
        self._began = time.perf_counter()

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: HyperGradient, extra: dict[str, Any]) -> None:
        """Measures, if there is a state and a measurement is due."""
        spent = time.perf_counter() - self._began
        if hypergradient.state is None or spent < min(self._due, self._asked.seconds):
            return
        self.curve.append({"seconds": spent, **self._asked.case.measure(self._params(hypergradient.state), hypers["x"])})
        if spent >= self._asked.seconds:
            raise TimeIsUpError
        self._due, self._began = 1.15 * spent, time.perf_counter() - spent


def ours(make: Callable[[Asked, Settings], tuple[rf.Engine, rf.HyperUpdate]]) -> Callable[..., Iterable[Curve]]:
    """Runs of `rf.HyperOptimizer`; one that diverges ends with an infinite value."""

    def curves(asked: Asked, settings: Sequence[Settings]) -> Iterable[Curve]:
        for one in settings:
            engine, optimizer = make(asked, one)
            start = (asked.case.z, {"x": asked.case.x})
            try:
                rf.HyperOptimizer(engine, optimizer).run(*start, 1)  # compiles
                recorder = Recorder(asked, engine.problem.dynamics.params)
                rf.HyperOptimizer(engine, optimizer, callbacks=[recorder]).run(*start, 10**9)
            except TimeIsUpError:
                yield recorder.curve
            except rf.DivergenceError:
                yield [{"seconds": 0.0, "value": np.inf}]

    return curves


def gradient_step(rate: float, falls: bool = False) -> rf.HyperUpdate:
    """x - rate * gradient; the rate may fall with the square root of the number of steps."""

    def update(grads: Hypers, count: tf.Tensor, hypers: Hypers) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        now = rate / tf.sqrt(count) if falls else rate
        return {name: value - now * grads[name] for name, value in hypers.items()}, count + 1.0

    return rf.HyperUpdate(lambda hypers: tf.constant(1.0), update, {"rate": rate, "falls": falls})


def of_engine(make: Callable[[Bilevel], rf.Engine]) -> Callable[..., Iterable[Curve]]:
    """One of our engines, with gradient steps or Adam for x."""

    def made(asked: Asked, chosen: Settings) -> tuple[rf.Engine, rf.HyperUpdate]:
        (rate,) = chosen
        return make(asked.case), rf.projected_adam(rate) if asked.case.adam else gradient_step(rate)

    return ours(made)


def single_loop(asked: Asked, chosen: Settings) -> tuple[rf.Engine, rf.HyperUpdate]:
    """SOBA on all examples: z moves at the rate of our other methods, and x at that rate divided by the ratio."""
    (ratio,) = chosen
    return rf.implicit(asked.case.problem(1), single_loop=True), gradient_step(asked.case.rate / ratio)


def single_loop_on_batches(asked: Asked, chosen: Settings) -> tuple[rf.Engine, rf.HyperUpdate]:
    """SOBA on batches, with rates that fall."""
    rate, ratio = chosen
    problem = asked.case.problem_on_batches(rate, asked.batch_size, asked.seed)
    return rf.implicit(problem, single_loop=True), gradient_step(rate / ratio, falls=True)


# ---- The benchmark's -----------------------------------------------------------------------------------------------------


def solver(name: str, **parameters: Any) -> Callable[..., Iterable[Curve]]:
    """A solver of the benchmark, in a separate process; `parameters` are those besides step size and ratio."""

    def curves(asked: Asked, settings: Sequence[Settings]) -> Iterable[Curve]:
        assert asked.invocation.checkout is not None
        all_parameters = [
            {"step_size": rate, "outer_ratio": ratio, "batch_size": asked.batch_size, **parameters}
            for rate, ratio in settings
        ]
        runs = bilevel_peers.ask(
            asked.invocation.jax_command,
            asked.invocation.checkout,
            asked.problem,
            asked.case,
            name,
            all_parameters,
            asked.seconds,
        )
        for states in runs:
            yield [{"seconds": seconds, **_measured(asked.case, z, x)} for seconds, z, x in states]

    return curves


def _measured(case: Bilevel, z: np.ndarray, x: np.ndarray) -> dict[str, float]:
    return case.measure(z.reshape(case.z.shape), x) if np.isfinite(x).all() else {"value": np.inf}


# ---- All -----------------------------------------------------------------------------------------------------------------

RATES = dict.fromkeys(PROBLEMS, ((0.03,), (0.1,), (0.3,), (1.0,)))
RATIOS = {"quadratics": (0.1, 1.0, 10.0), "data cleaning": (1e-6, 1e-5, 1e-4, 1e-3)}
STEP_SIZES = (0.01, 0.1, 1.0)
GRID = {problem: [(step, ratio) for step in STEP_SIZES for ratio in ratios] for problem, ratios in RATIOS.items()}
METHODS = {
    "reverse, 100 steps": Method(RATES, of_engine(lambda case: rf.reverse(case.problem(100)))),
    "reverse, 10 steps, continued": Method(
        RATES, of_engine(lambda case: rf.real_time(case.problem(10), 10, mode="reverse"))
    ),
    "real time (forward), 10 steps": Method(
        {"quadratics": RATES["quadratics"]}, of_engine(lambda case: rf.real_time(case.problem(10), 10, carry=True))
    ),
    "implicit, 10 steps, continued": Method(
        RATES, of_engine(lambda case: rf.implicit(case.problem(10), iterations=10, warm_start=True))
    ),
    "single loop, all examples": Method(
        {problem: [(ratio,) for ratio in ratios] for problem, ratios in RATIOS.items()}, ours(single_loop)
    ),
    "single loop, batches": Method(GRID, ours(single_loop_on_batches)),
}
SOLVERS = {
    "SOBA, JAX": Method(GRID, solver("soba")),
    "SABA, JAX": Method(GRID, solver("saba")),
    "SRBA, JAX": Method(GRID, solver("srba")),
}


def score(problem: str, curve: Curve) -> tuple[int, float, float]:
    """Less is better: goals that are missed, seconds to the last one that is reached, last value."""
    times = [reached(curve, goal) for goal in GOALS[problem]]
    times_reached = [one for one in times if np.isfinite(one)]
    last = curve[-1]["value"]
    return len(times) - len(times_reached), max(times_reached, default=0.0), last if np.isfinite(last) else np.inf


def reached(curve: Curve, goal: float) -> float:
    """Seconds until the value is at most the goal, infinite if it never is."""
    return next((row["seconds"] for row in curve if row["value"] <= goal), np.inf)


def run(config: Config, invocation: Invocation, report: Callable[[str], None]) -> list[Row]:
    """A row for each problem, method and seed: the settings that were best on the first seed, and their curve."""
    rows = []
    methods = METHODS | ({} if invocation.checkout is None else SOLVERS)
    for problem, seconds in zip(config.problems, config.seconds, strict=True):
        first, *other_seeds = config.seeds
        chosen = {}
        asked = Asked(problem, PROBLEMS[problem](first), seconds, config.batch_size, first, invocation)
        for name, method in methods.items():
            settings = method.settings.get(problem, ())
            tried = settings[:: -(-len(settings) // config.most)] if settings else ()
            scores = {}
            for one, curve in zip(tried, method.curves(asked, tried) if tried else (), strict=True):
                scores[one] = score(problem, curve)
                report(
                    f"{problem}, {name}, {one}: {curve[-1]['value']:.3g}; missed {scores[one][0]}, {scores[one][1]:.2g} s"
                )
            if scores:
                chosen[name] = min(scores, key=lambda one: scores[one])
        for seed in other_seeds:
            asked = asked._replace(case=PROBLEMS[problem](seed), seed=seed)
            for name, one in chosen.items():
                (curve,) = methods[name].curves(asked, [one])
                report(f"{problem}, seed {seed}, {name}: {curve[-1]['value']:.3g}")
                rows.append({"problem": problem, "method": name, "settings": one, "seed": seed, "curve": curve})
    return rows

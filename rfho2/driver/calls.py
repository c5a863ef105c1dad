"""Runs hyper-iterations: several in one compiled call, or one at a time where Python has to act in between."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rfho2.core import nest, rows
from rfho2.core.compiled import Compiled, graph_function, is_xlas
from rfho2.core.types import Best, HyperGradient
from rfho2.driver.iteration import (
    FINE,
    Candidate,
    Extremes,
    Progress,
    Report,
    Rule,
    hyper_iteration,
    most,
    several,
    take_hyper_step,
)
from rfho2.driver.run_state import PATIENCE, LastGood, RunState
from rfho2.hypergradients.engine import Engine, MethodEngine, Processes
from rfho2.hypergradients.episodes import ParamsFunction

SECONDS = 0.25  # the intended length of a call, so that Ctrl-C and the progress bar respond quickly


class CallResult(NamedTuple):
    """The result of a call. The history of `now` does not include its hyper-iterations yet.

    Attributes:
      now: the state after the hyper-iterations that succeeded.
      reports: the reports of these hyper-iterations, in NumPy.
      failed: the report of the hyper-iteration that failed, if there is one.
      outcome: the outcome of the last hyper-iteration.
    """

    now: RunState
    reports: list[Report]
    failed: Report | None
    outcome: int


class Calls:
    """The calls of one run.

    Args:
      engine: computes the hypergradients.
      rule: how the hypers are updated.
      now: the state from which the run starts.
      requested: hyper-iterations in a call; None chooses as many as take about a quarter of a second.
      one_at_a_time: why a call can run only one hyper-iteration, or "".
    """

    def __init__(self, engine: Engine, rule: Rule, now: RunState, requested: int | None, one_at_a_time: str):
        self._engine, self._rule, self._requested = engine, rule, requested
        self._program: Compiled | None = None
        update = rule.update if hasattr(rule.update, "get_concrete_function") else graph_function(rule.update)
        reason = _not_compiled_whole(engine) or _not_traceable(update, now)
        if isinstance(engine, MethodEngine) and not reason:
            method, traced = engine.method(now.carry, now.hypers), rule._replace(update=update)
            self._program = engine.program(rule, lambda: several(hyper_iteration(method, traced, engine.afresh)))
        reason = reason or _needs_python(engine, now) or one_at_a_time
        if requested is not None and requested > 1 and reason:
            raise ValueError(
                f"iterations_per_call is {requested}, but {reason}: only one hyper-iteration can run in a call. Leave "
                f"iterations_per_call out, or remove the reason."
            )
        self._most = 1 if reason else most(now.hypers)
        self._seconds: float | None = None  # per hyper-iteration; None until one has been timed
        self._compiling = True  # so that the first call is not timed
        self._seen, self._known = 0, (np.inf, 0.0, 0.0)  # rows of the history, and their extremes

    def length(self, left: int) -> int:
        """The number of hyper-iterations in the next call, at most `left`."""
        if self._requested is not None:
            return min(self._requested, self._most, left)
        affordable = 1 if self._seconds is None else int(SECONDS / max(self._seconds, 1e-9))
        return max(1, min(affordable, self._most, left))

    def run(self, now: RunState, n: int, limit: float) -> CallResult:
        """Runs up to n hyper-iterations; stops at the first one that is not finite or exceeds the limit."""
        began = time.perf_counter()
        try:
            result = self._separately(now, limit) if self._program is None else self._in_one_call(now, n, limit)
        except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, tf.errors.InternalError) as error:
            if self._program is None or not is_xlas(error):
                raise
            # The optimiser may be the reason: the engine compiles the hypergradient alone, or warns of what XLA cannot do.
            self._program, self._most = None, 1
            return self._separately(now, limit)
        if not self._compiling:
            self._seconds = (time.perf_counter() - began) / max(1, len(result.reports))
        self._compiling = False
        return result

    def _in_one_call(self, now: RunState, n: int, limit: float) -> CallResult:
        engine, program = self._engine, self._program
        assert isinstance(engine, MethodEngine)
        assert program is not None
        k = tf.constant(now.k)
        params = engine.params_at(now.carry, k) if engine.afresh else ()
        streamed = engine.read(now.carry)
        engine.use(program, now.carry)
        progress = _progress(now, engine.afresh, self._extremes_before(now))
        try:
            arguments = (progress, params, k, tf.constant(n), tf.constant(limit, tf.float64), streamed)
            progress, reports, count, outcome = program(*arguments)
        except tf.errors.OpError:
            engine.put_back += [streamed] if engine.stream is not None else []
            raise
        stacked, number = nest.map(lambda leaf: leaf.numpy(), reports), int(count)
        each = [_row_of(stacked, i) for i in range(number + (int(outcome) != FINE))]
        for i, one in enumerate(each):
            engine.report(now.k + i, one.hypergradient.norms)
        after = _after(now, progress, number, engine.afresh)
        return CallResult(after, each[:number], each[number] if number < len(each) else None, int(outcome))

    def _separately(self, now: RunState, limit: float) -> CallResult:
        """One hyper-iteration, in which only the hypergradient is compiled."""
        hypergradient, carry = self._engine.advance(now.carry, now.hypers, now.k)
        extremes, largest = self._extremes_before(now), tf.constant(limit, tf.float64)
        step = take_hyper_step(self._rule, hypergradient, now.hypers, now.opt_state, extremes, largest)
        report = Report(now.hypers, hypergradient._replace(state=()), step.numbers)
        report = nest.map(np.asarray, report)
        if int(step.outcome) != FINE:
            return CallResult(now, [], report, int(step.outcome))
        score, best = float(step.numbers[self._rule.best_by]), now.best
        if best is None or score < best.value or np.isnan(best.value):
            best = Best(now.hypers, hypergradient.state, score, now.k)
        good = LastGood(now.hypers, now.opt_state, step.used)
        after = (now.k + 1, step.hypers, step.opt_state, carry, hypergradient.state, best, now.history)
        return CallResult(RunState(*after, good, now.setbacks), [report], None, FINE)

    def _extremes_before(self, now: RunState) -> Extremes:
        """Those of the history; the longest hypergradient is 0 if any length is to be accepted."""
        for row in now.history[self._seen :]:
            lowest, largest, longest = self._known
            self._known = min(lowest, row["value"]), max(largest, abs(row["value"])), max(longest, *rows.lengths(row))
        self._seen = len(now.history)
        lowest, largest, longest = self._known
        compared = self._rule.growth < np.inf and now.in_a_row < PATIENCE
        return Extremes(*(tf.constant(number, tf.float64) for number in (lowest, largest, longest if compared else 0.0)))


def _row_of(stacked: Report, i: int) -> Report:
    """The report of one hyper-iteration; TensorFlow's `map_structure` would take longer than a small hyper-iteration."""

    def at(arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {name: array[i] for name, array in arrays.items()}

    value, grads, state, norms = stacked.hypergradient
    one = HyperGradient(at(value) if isinstance(value, dict) else value[i], at(grads), state, at(norms))
    return Report(at(stacked.hypers), one, at(stacked.numbers))


def _not_compiled_whole(engine: Engine) -> str:
    """Why the engine does not let a whole hyper-iteration be compiled; empty if it does."""
    if not isinstance(engine, MethodEngine):
        return "the engine is one of your own"
    if type(engine.processes) is not Processes:
        return "several processes compute each hypergradient"
    return ""


def _needs_python(engine: Engine, now: RunState) -> str:
    """Why Python has to act before each hyper-iteration; empty if it does not."""
    if engine.stream is not None:
        return "the batches come from a stream"
    if isinstance(now.carry, ParamsFunction):
        return "params is a function"
    if isinstance(engine, MethodEngine) and engine.graph_until:
        return "the engine begins in graph mode"
    return ""


def _not_traceable(update: Any, now: RunState) -> str:
    """Why the update cannot be part of a compiled hyper-iteration; a custom one may use NumPy, for example."""
    try:
        before = (dict(now.hypers), now.opt_state)
        hypers, opt_state = nest.map(lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype), before)
        after = update.get_concrete_function(hypers, opt_state, hypers).structured_outputs
        same = nest.signature(after) == nest.signature(before)
    except Exception:  # whatever the user's function raises when traced; it is then called without tracing
        return "the optimizer cannot be traced by TensorFlow"
    return "" if same else "the optimizer changes the shapes of the hypers or of its state"


def _progress(now: RunState, afresh: bool, extremes: Extremes) -> Progress:
    best = now.best or Best(now.hypers, now.state, np.nan, -1)
    candidate = Candidate(best.hypers, best.state, tf.constant(best.value, tf.float64), tf.constant(best.iteration))
    good = now.good or LastGood(now.hypers, now.opt_state, now.hypers)
    carry, state = ((), now.state) if afresh else (now.carry, ())
    return Progress(carry, now.hypers, now.opt_state, state, candidate, good, extremes)


def _after(now: RunState, progress: Progress, count: int, afresh: bool) -> RunState:
    """The state after `count` hyper-iterations; equal values share a tensor, so that a checkpoint stores it once."""
    if not count:
        return now
    k = now.k + count
    carry, state = (now.carry, progress.state) if afresh else (progress.carry, progress.carry.state)
    hypers, best_state, score, iteration = progress.best
    best = now.best
    if int(iteration) >= now.k:
        best = Best(hypers, state if int(iteration) == k - 1 else best_state, float(score), int(iteration))
    return RunState(k, progress.hypers, progress.opt_state, carry, state, best, now.history, progress.good, now.setbacks)

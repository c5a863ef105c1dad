"""The one Python loop: hyper-iterations, recovery from divergence, metrics, callbacks and checkpoints."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.core import errors, nest, rows
from rfho2.core.types import Best, HyperGradient, Hypers, Nest, Result, Run
from rfho2.driver import fingerprint, locks, prediction, preemption, recovery
from rfho2.driver.callbacks import checked_callbacks, needs_state
from rfho2.driver.calls import Calls
from rfho2.driver.checkpoint_store import Store, digest_arrays
from rfho2.driver.iteration import MOST, Rule, unknown_score
from rfho2.driver.projected_adam import HyperUpdate
from rfho2.driver.run_state import PATIENCE, RunState
from rfho2.driver.signs import SignMonitor
from rfho2.hypergradients.adapter import as_engine
from rfho2.hypergradients.engine import Engine
from rfho2.hypergradients.episodes import carried, params_at

Metrics = Callable[[Nest, Hypers, int], dict[str, Any]]
"""(state, hypers, k) -> anything worth watching."""

CLOCK = ("iteration", "seconds")  # numbers of the history that no hyper-iteration computes

Stop = Callable[[list[dict[str, float]]], bool]
"""history -> whether to end the run."""


class HyperOptimizer:
    """Drives any engine: computes hypergradients and moves the hypers along them.

    Args:
      engine: `rf.reverse(problem)`, `rf.forward(problem)`, `rf.real_time(problem, ...)`, `rf.implicit(problem)`,
        `rf.auto(problem)`, or `rf.average(engine, n)` of one.
      optimizer: such as `rf.projected_adam(0.01, constraints={...})`.
      callbacks: objects with any of the methods `on_start(run)`, `on_hyper_iteration(k, hypers, hypergradient, extra)` and
        `on_end(result)`; for example `rf.ProgressBar()`, `rf.TensorBoard(logdir)`, `rf.CSVLogger(path)`.
      metrics: (state, hypers, k) -> dict, computed after each hypergradient and passed to callbacks as `extra`; its numbers
        are added to the history.
      best_by: the quantity that the best hyper-iteration minimises: "value" (the sum, if there are several objectives), or
        another key of the history, such as a metric.
      stop: history -> whether to end before `iterations`; called before each hyper-iteration. It has to be a pure function
        of the history, so that a resumed run ends where it would have ended without the interruption.
      on_divergence: what to do when a value or hypergradient is not finite. "raise" ends the run with `rf.DivergenceError`.
        "backtrack" returns to the last good hypers, halves the hyper learning rate and moves from there. It also does so if
        the norm of a hypergradient is more than 100 times the largest so far: such a hypergradient says little about where
        to go, and would stop Adam for many updates. A function hypers -> hypers gives the hypers with which to repeat the
        hyper-iteration; real time then also resets Z to 0, because Z contains what led to the divergence. Both give up after
        ten failures in a row, with an error that lists them.
      limit: history -> the largest acceptable value; a larger value counts as divergence too. Values above the limit, and
        norms that are too large, are accepted as they are after two failures in a row.
      clip: the largest norm, over all hypers together, of the hypergradient used for an update; longer ones are scaled down,
        so that one extreme hypergradient does not spoil the optimiser's moments. The history has the unclipped one.
      iterations_per_call: hyper-iterations that run in one compiled call, at most 64. It never changes results. None chooses
        as many as take about a quarter of a second, and one where Python has to act in between: for `metrics`, `stop`,
        `limit`, a stream of batches, params that are a function, a custom engine, and callbacks, unless they declare
        `needs_state = False`, as rfho2's do. In these cases a number above 1 is an error.

    >>> import rfho2 as rf
    >>> loss = lambda w, hypers, batch: (w - 1.0) ** 2
    >>> engine = rf.reverse(rf.Problem(rf.gradient_descent(loss, "lr"), loss, steps=5), jit_compile=False)
    >>> tuner = rf.HyperOptimizer(engine, rf.projected_adam(0.02, {"lr": rf.Box(0.0, 1.0)}))
    >>> result = tuner.run(tf.constant(0.0), {"lr": 0.1}, iterations=10)
    >>> result.best.value < result.history[0]["value"]
    True
    """

    def __init__(
        self,
        engine: Engine,
        optimizer: HyperUpdate,
        callbacks: Sequence[Any] = (),
        metrics: Metrics | None = None,
        best_by: str = "value",
        stop: Stop | None = None,
        on_divergence: str | recovery.Retry = "raise",
        limit: Callable[[list[dict[str, float]]], float] | None = None,
        clip: float | None = None,
        iterations_per_call: int | None = None,
    ):
        self.engine = as_engine(engine)
        if not hasattr(optimizer, "update"):
            raise TypeError(f"optimizer is {type(optimizer).__name__}; pass rf.projected_adam(...) or an rf.HyperUpdate.")
        if on_divergence not in ("raise", "backtrack") and not callable(on_divergence):
            raise ValueError(
                f"on_divergence is {on_divergence!r}; choose 'raise', 'backtrack' or a function hypers -> hypers."
            )
        if clip is not None and not clip > 0:
            raise ValueError(f"clip is {clip!r}; it has to be positive, or None for unclipped hypergradients.")
        if iterations_per_call is not None:
            errors.check_count("iterations_per_call", iterations_per_call, most=MOST)
        self.optimizer = optimizer
        self.clip = clip
        self.iterations_per_call = iterations_per_call
        self.on_divergence = on_divergence
        self.limit = limit
        self.callbacks = checked_callbacks(callbacks)
        self._notified: tuple[Any, ...] = ()  # the callbacks of the current run
        self.metrics = metrics
        self.best_by = best_by
        self._needs_tensors = bool(self.callbacks) or metrics is not None or best_by in CLOCK
        self.stop = stop

    def run(
        self,
        params: Nest,
        hypers: Hypers,
        iterations: int,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        resume: bool = True,
        checkpoint_every: int = 1,
        keep: int = 2,
    ) -> Result:
        """Runs hyper-iterations 0..iterations-1, or the remaining ones.

        Ctrl-C and SIGTERM end the run after the current call, of about a quarter of a second or one hyper-iteration, with a
        checkpoint: by `KeyboardInterrupt`, and by `SystemExit` with code 143, whose `.result` is the result so far. A second
        signal ends it at once.

        Args:
          params: where each training (in real time: the one training) starts. A pure function k -> params gives each
            hyper-iteration k its own start, for instance another random initialisation; real time uses its value at 0.
          hypers: where the hypers start.
          iterations: the total number, also for a resumed run.
          checkpoint_dir: a run that was killed resumes bit-identically when it is started again with the same directory.
            Only one process at a time may use a directory.
          resume: False starts afresh and removes earlier checkpoints of this problem.
          checkpoint_every: hyper-iterations between checkpoints, for states that take long to write.
          keep: the number of checkpoints to keep; an older one is used if the newest is damaged.
        """
        errors.check_count("iterations", iterations)
        errors.check_count("checkpoint_every", checkpoint_every)
        errors.check_count("keep", keep)
        errors.check_named(hypers)  # first, because params and hypers may have changed places
        first = params_at(params, 0)
        hypers = errors.checked_hypers(hypers, first)
        _check_finite(hypers)
        start = carried(params, first)
        run_state = self._start(start, hypers)
        config = self._config(first, hypers)
        if checkpoint_dir is None:
            return self._run(run_state, iterations, config, None, checkpoint_every)
        initial = {**fingerprint.of_params(start), "initial hypers": digest_arrays(hypers)}
        graphs = fingerprint.of_problem(self.engine.problem, first, hypers)
        store = Store(checkpoint_dir, {**config, "state": nest.signature(run_state.state), **initial, **graphs}, keep)
        if self.engine.stream is not None:
            self.engine.stream.check_resumable(checkpoint_dir)
        if not self.engine.writes:  # every process of a mesh resumes from the same checkpoint, which one of them writes
            run_state = self._load(store, run_state) if resume else run_state
            return self._run(run_state, iterations, config, None, checkpoint_every)
        with contextlib.ExitStack() as lock:
            try:
                lock.enter_context(locks.held(checkpoint_dir, "checkpoint_dir"))
                if resume:
                    run_state = self._load(store, run_state)
                else:
                    store.clear()
            except OSError as error:
                raise store.unusable(error) from error
            return self._run(run_state, iterations, config, store, checkpoint_every)

    def _run(self, now: RunState, iterations: int, config: dict[str, Any], store: Store | None, every: int) -> Result:
        """The remaining hyper-iterations."""
        number = None  # of the signal that ends the run
        calls = Calls(self.engine, self._rule(), now, self.iterations_per_call, self._one_at_a_time())
        sets = self.optimizer.settings.get("constraints")
        signs = SignMonitor(sets if isinstance(sets, Mapping) else ())
        self._notified = (*self.callbacks, prediction.PredictionMonitor(self.engine, now.carry), signs)
        try:
            self._notify("on_start", Run(now.k, iterations, now.hypers, config))
            with preemption.noticed() as local_signal:
                signal = self.engine.agreed(local_signal)
                while number is None and not self._over(now, iterations):
                    left = min(iterations - now.k, iterations if store is None else every - now.k % every)
                    k, (now, error) = now.k, self._advance(calls, now, calls.length(1 if now.in_a_row else left))
                    if error is not None:
                        now = self._recovered(now, error, store, every)
                    if now.k > k:
                        number = signal()
                        last = number is not None or self._over(now, iterations)
                        if store is not None and (now.k % every == 0 or last):
                            self._save(store, now)
                number = number or local_signal()
            if number is not None:
                hint = "the result so far is the exception's .result"
                if store is not None:
                    hint = f"run again with checkpoint_dir={str(store.directory)!r} to resume"
                preemption.end(number, f"stopped after {now.k} of {iterations} hyper-iterations; {hint}")
        except (KeyboardInterrupt, preemption.Terminated) as error:
            error.result = now.result  # type: ignore[union-attr]
            raise
        finally:
            self._notify("on_end", now.result)
        return now.result

    def _advance(self, calls: Calls, now: RunState, n: int) -> tuple[RunState, errors.DivergenceError | None]:
        """The state after at most n hyper-iterations, and the error of the next one if it diverges."""
        began = time.perf_counter()
        limit = np.inf if self.limit is None or now.in_a_row >= PATIENCE else self.limit(now.history)
        call = calls.run(now, n, limit)
        # The time of the algorithm alone, without metrics and callbacks; never negative, even if a clock is set back.
        each = max(0.0, time.perf_counter() - began) / max(1, len(call.reports))
        seconds, after, history = now.history[-1]["seconds"] if now.history else 0.0, call.now, list(now.history)
        best_in_python = self._rule().best_by != self.best_by
        for i, report in enumerate(call.reports):
            last, seconds = i == len(call.reports) - 1, seconds + each
            hypers, (value, grads, _, norms) = nest.map(tf.constant, report[:2]) if self._needs_tensors else report[:2]
            hypergradient = HyperGradient(value, grads, after.state if last else None, norms)
            extra = dict(self.metrics(hypergradient.state, hypers, now.k + i)) if self.metrics else {}
            row = {**rows.row(now.k + i, report.numbers, extra), "seconds": seconds}
            if best_in_python:
                after = after._replace(best=self._better(now, hypers, hypergradient, row))
            self._notify("on_norms", now.k + i, {rows.norm_name(name): float(norm) for name, norm in norms.items()})
            self._notify("on_hyper_iteration", now.k + i, hypers, hypergradient, extra)
            history.append(row)
        after = after._replace(history=history)
        return after, None if call.failed is None else recovery.diverged(after, call, limit)

    def _recovered(self, now: RunState, error: errors.DivergenceError, store: Store | None, every: int) -> RunState:
        """The state from which to repeat hyper-iteration k, which diverged; raises if there is nothing left to try."""
        retry = recovery.retry_from(now, error, self.on_divergence, self.engine, self.optimizer)
        if retry is None:
            if store is not None and now.k % every and self.engine.stream is None:
                self._save(store, now)
            raise recovery.with_story(error, now.setbacks) from None
        return retry

    def _over(self, now: RunState, iterations: int) -> bool:
        return now.k >= iterations or (self.stop is not None and self.stop(now.history))

    def _start(self, params: Nest, hypers: dict[str, tf.Tensor]) -> RunState:
        carry = self.engine.start(params, hypers)
        state = self.engine.initial_state(params, hypers)
        return RunState(0, hypers, self.optimizer.init(hypers), carry, state, None, [])

    def _rule(self) -> Rule:
        """How the hypers are updated; if only Python can tell which hyper-iteration is best, the rule uses the value."""
        in_python = self.best_by in CLOCK or (self.metrics is not None and self.best_by.partition("/")[0] != "value")
        growth = recovery.GROWTH if self.on_divergence == "backtrack" else np.inf
        best_by = "value" if in_python else self.best_by
        return Rule(self.optimizer.update, self.optimizer.relative, self.clip, best_by, growth)

    def _one_at_a_time(self) -> str:
        """Why Python has to look at the state after every hyper-iteration; empty if it does not."""
        needing = [type(callback).__name__ for callback in self.callbacks if needs_state(callback)]
        reasons = {
            "stop is called before each hyper-iteration": self.stop is not None,
            "limit is called before each hyper-iteration": self.limit is not None,
            "metrics is a function of the state": self.metrics is not None and getattr(self.metrics, "needs_state", True),
            f"best_by is '{self.best_by}', which is known only afterwards": self._rule().best_by != self.best_by,
            f"callbacks has {', '.join(needing)}, without `needs_state = False`": bool(needing),
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    def _better(self, now: RunState, hypers: Hypers, hypergradient: HyperGradient, row: dict[str, float]) -> Best | None:
        if self.best_by not in row:
            raise unknown_score(self.best_by, row)
        score = row[self.best_by]
        if now.best is not None and not (score < now.best.value or np.isnan(now.best.value)):
            return now.best
        return Best(dict(hypers), hypergradient.state, score, now.k)

    def _notify(self, event: str, *args: Any) -> None:
        for callback in self._notified if self.engine.writes else ():
            getattr(callback, event, lambda *_: None)(*args)

    def _config(self, params: Nest, hypers: Hypers) -> dict[str, Any]:
        return {
            "engine": dict(self.engine.settings),
            "optimizer": dict(self.optimizer.settings),
            "best_by": self.best_by,
            "clip": self.clip,
            "params": nest.signature(params),
            "hypers": nest.signature(dict(hypers)),
        }

    def _save(self, store: Store, now: RunState) -> None:
        store.save(now.k, now.arrays(), now.record(), self.engine.save_stream)

    def _load(self, store: Store, start: RunState) -> RunState:
        loaded = store.load(start.arrays(), self.engine.restore_stream)
        return start if loaded is None else RunState.of(*loaded)


def _check_finite(hypers: Hypers) -> None:
    """Requires finite hypers to start from."""
    for name, value in hypers.items():
        bad = np.asarray(value)[~np.isfinite(np.asarray(value))]
        if len(bad):
            raise ValueError(
                f"hyper '{name}' starts at {bad[0]} ({len(bad)} of {np.size(value)} entries); start from finite numbers."
            )

"""The one Python loop: hypergradient, divergence check, update of the hypers, metrics, callbacks, checkpoint, repeat."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.core import errors, nest, rows
from rfho2.core.types import Best, HyperGradient, Hypers, Nest, Result, Run
from rfho2.driver import fingerprint, locks, prediction, preemption, recovery
from rfho2.driver.checkpoint_store import Store, digest
from rfho2.driver.projected_adam import HyperUpdate
from rfho2.driver.run_state import LastGood, RunState
from rfho2.hypergradients.engine import Engine, as_engine
from rfho2.hypergradients.episodes import carried, params_at

Metrics = Callable[[Nest, Hypers, int], dict[str, Any]]
"""(state, hypers, k) -> anything worth watching."""

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
      stop: history -> whether to end before `iterations`; asked before each hyper-iteration. It has to be a pure function of
        the history, so that a resumed run ends where it would have ended without the interruption.
      on_divergence: what to do when a value or hypergradient is not finite. "raise" ends the run with `rf.DivergenceError`.
        "backtrack" returns to the last good hypers, halves the hyper learning rate and moves from there. A function
        hypers -> hypers gives the hypers with which to repeat the hyper-iteration; real time then also resets Z to 0,
        because Z contains what led to the divergence. Both give up after ten failures in a row, with the whole story in the
        error.
      limit: history -> the largest acceptable value; a larger value counts as divergence too, but at most twice in a row:
        the next value is accepted as it is.
      clip: the largest norm, over all hypers together, of the hypergradient used for an update; longer ones are scaled down,
        so that one extreme hypergradient does not spoil the optimiser's moments. The history has the unclipped one.

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
    ):
        self.engine = as_engine(engine)
        if not hasattr(optimizer, "update"):
            raise TypeError(f"optimizer is {type(optimizer).__name__}; pass rf.projected_adam(...) or an rf.HyperUpdate.")
        if not isinstance(callbacks, Sequence):
            raise TypeError(f"callbacks is {type(callbacks).__name__}; pass a list, such as [rf.ProgressBar()].")
        if on_divergence not in ("raise", "backtrack") and not callable(on_divergence):
            raise ValueError(
                f"on_divergence is {on_divergence!r}; choose 'raise', 'backtrack' or a function hypers -> hypers."
            )
        if clip is not None and not clip > 0:
            raise ValueError(f"clip is {clip!r}; it has to be positive, or None for unclipped hypergradients.")
        self.optimizer = optimizer
        self.clip = clip
        self.on_divergence = on_divergence
        self.limit = limit
        self.callbacks = tuple(callbacks)
        self._told: tuple[Any, ...] = ()  # the callbacks of the current run
        self.metrics = metrics
        self.best_by = best_by
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
        """Runs hyper-iterations 0..iterations-1, or those of them that remain.

        Ctrl-C and SIGTERM end the run after the current hyper-iteration, with a checkpoint: by `KeyboardInterrupt`, and by
        `SystemExit` with code 143. A second signal ends it at once.

        Args:
          params: where each training (in real time: the one training) starts. A pure function k -> params starts each
            hyper-iteration k elsewhere, for instance from another random initialisation; real time starts at its value at 0.
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
        first = params_at(params, 0)
        hypers = errors.checked_hypers(hypers, first)
        errors.check_finite(hypers)
        start = carried(params, first)
        run_state = self._start(start, hypers)
        config = self._config(first, hypers)
        if checkpoint_dir is None:
            return self._run(run_state, iterations, config, None, checkpoint_every)
        initial = {**fingerprint.of_params(start), "initial hypers": digest(hypers)}
        graphs = fingerprint.of_problem(self.engine.problem, first, hypers)
        store = Store(checkpoint_dir, {**config, "state": nest.signature(run_state.state), **initial, **graphs}, keep)
        self._check_stream(store)
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
        self._told = (*self.callbacks, prediction.Check(self.engine, now.carry))
        try:
            self._tell("on_start", Run(now.k, iterations, now.hypers, config))
            with preemption.noticed() as own:
                signal = self.engine.agreed(own)
                while number is None and not self._over(now, iterations):
                    k, now = now.k, self._attempt(now, store, every)
                    if now.k > k:
                        number = signal()
                        last = number is not None or self._over(now, iterations)
                        if store is not None and (now.k % every == 0 or last):
                            self._save(store, now)
                number = number or own()
            if number is not None:
                there = f"; run again with checkpoint_dir={str(store.directory)!r} to go on" if store is not None else ""
                preemption.end(number, f"stopped after {now.k} of {iterations} hyper-iterations{there}")
        finally:
            self._tell("on_end", now.result)
        return now.result

    def _attempt(self, now: RunState, store: Store | None, every: int) -> RunState:
        """The state after hyper-iteration k; if it diverges, the state from which to repeat it."""
        try:
            return self._iterate(now)
        except errors.DivergenceError as error:
            retry = recovery.retry_from(now, error, self.on_divergence, self.engine, self.optimizer)
            if retry is None:
                if store is not None and now.k % every and self.engine.stream is None:
                    self._save(store, now)
                raise errors.with_story(error, now.setbacks) from None
            return retry

    def _over(self, now: RunState, iterations: int) -> bool:
        return now.k >= iterations or (self.stop is not None and self.stop(now.history))

    def _start(self, params: Nest, hypers: dict[str, tf.Tensor]) -> RunState:
        carry = self.engine.start(params, hypers)
        state = self.engine.initial_state(params, hypers)
        return RunState(0, hypers, self.optimizer.init(hypers), carry, state, None, [])

    def _iterate(self, now: RunState) -> RunState:
        """Hyper-iteration k."""
        began = time.perf_counter()
        hypergradient, carry = self.engine.advance(now.carry, now.hypers, now.k)
        norms = rows.norms(hypergradient)
        self._check_divergence(now, hypergradient, norms)
        grads = dict(hypergradient.grads) if self.clip is None else _clipped(hypergradient.grads, self.clip)
        if self.optimizer.relative:
            values = [row["value"] for row in now.history] + [rows.objective_values(hypergradient)["value"]]
            grads = _relative(grads, [float(value) for value in values])
        hypers, opt_state = self.optimizer.update(grads, now.opt_state, now.hypers)
        # Adam squares what it is given, and would stand still for good. What is infinite by intent was so before.
        if _finite(nest.flatten(now.opt_state)) and not _finite(nest.flatten((hypers, opt_state))):
            quantities = {"optimiser's state": np.inf, **_prefixed("hypergradient of ", grads), **norms}
            raise errors.diverged(now.k, quantities, now.result)
        before = now.history[-1]["seconds"] if now.history else 0.0
        # The time of the algorithm alone, without metrics and callbacks; never negative, even if a clock is set back.
        seconds = before + max(0.0, time.perf_counter() - began)

        extra = dict(self.metrics(hypergradient.state, now.hypers, now.k)) if self.metrics else {}
        row = {**rows.row(now.k, now.hypers, hypergradient, extra), "seconds": seconds}
        best = self._better(now, hypergradient, row)
        self._tell("on_norms", now.k, norms)
        self._tell("on_hyper_iteration", now.k, now.hypers, hypergradient, extra)
        good, history = LastGood(now.hypers, now.opt_state, grads), [*now.history, row]
        return RunState(now.k + 1, hypers, opt_state, carry, hypergradient.state, best, history, good, now.setbacks)

    def _check_divergence(self, now: RunState, hypergradient: HyperGradient, norms: dict[str, float]) -> None:
        values = rows.objective_values(hypergradient)
        quantities = {**values, **_prefixed("hypergradient of ", hypergradient.grads)}
        limit = np.inf if self.limit is None or now.in_a_row >= recovery.PATIENCE else self.limit(now.history)
        if values["value"] > limit or not _finite(quantities.values()):
            raise errors.diverged(now.k, {**quantities, **norms}, now.result, limit)

    def _better(self, now: RunState, hypergradient: HyperGradient, row: dict[str, float]) -> Best | None:
        if self.best_by not in row:
            raise ValueError(f"best_by is '{self.best_by}', which is not in the history; choose one of {sorted(row)}.")
        score = row[self.best_by]
        if now.best is not None and not (score < now.best.value or np.isnan(now.best.value)):
            return now.best
        return Best(now.hypers, hypergradient.state, score, now.k)

    def _tell(self, event: str, *args: Any) -> None:
        for callback in self._told if self.engine.writes else ():
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

    def _check_stream(self, store: Store) -> None:
        stream = self.engine.stream
        if stream is not None and stream.unseeded():
            raise ValueError(
                f"checkpoint_dir is {str(store.directory)!r}, but the streamed dataset is shuffled without a seed: a "
                f"resumed run would see other batches. Give shuffle a seed, or run without checkpoint_dir."
            )
        if stream is not None and not stream.can_be_saved():
            raise ValueError(
                f"checkpoint_dir is {str(store.directory)!r}, but TensorFlow cannot checkpoint the iterator of the streamed "
                f"dataset (it cannot look into Python generators and py_function), so a resumed run would see other "
                f"batches. Build the dataset from tensors or files, or run without checkpoint_dir."
            )

    def _save(self, store: Store, now: RunState) -> None:
        store.save(now.k, now.arrays(), now.record(), self.engine.save_stream)

    def _load(self, store: Store, start: RunState) -> RunState:
        loaded = store.load(start.arrays(), self.engine.restore_stream)
        return start if loaded is None else RunState.of(*loaded)


def _relative(grads: Hypers, values: list[float]) -> dict[str, tf.Tensor]:
    """The hypergradients as relative changes of the objective, whose values so far are given.

    An objective that has been 0 or less is compared with its largest size, because it may pass through 0 again.
    """
    size = values[-1] if min(values) > 0 else max(map(abs, values))
    size = max(size, float(np.finfo(np.float32).tiny))
    return {name: grad / tf.cast(size, grad.dtype) for name, grad in grads.items()}


def _clipped(grads: Mapping[str, tf.Tensor], norm: float) -> dict[str, tf.Tensor]:
    """The hypergradients, scaled down if their norm over all hypers exceeds `norm`."""
    # In float64: the square of a float32 above 1e19 is infinite.
    own = float(np.linalg.norm([np.linalg.norm(np.asarray(grad, np.float64)) for grad in grads.values()]))
    return dict(grads) if own <= norm else {name: grad * tf.cast(norm / own, grad.dtype) for name, grad in grads.items()}


def _finite(arrays: Iterable[Any]) -> bool:
    return all(np.all(np.isfinite(array)) for array in arrays)


def _prefixed(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {prefix + name: array for name, array in arrays.items()}

"""The one Python loop: hypergradient, finite?, callbacks, update, checkpoint, again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.batches import Stream
from rfho2.core import errors, nest
from rfho2.core.types import Best, HyperGradient, Hypers, Nest, Result, Run
from rfho2.driver import locks, preemption
from rfho2.driver import recovery as setbacks
from rfho2.driver.checkpoint_store import Store, digest
from rfho2.driver.projected_adam import HyperUpdate
from rfho2.driver.run_state import Good, Progress
from rfho2.hypergradients import Engine

Metrics = Callable[[Nest, Hypers, int], dict[str, Any]]
"""(state, hypers, k) -> anything worth watching."""

Stop = Callable[[list[dict[str, float]]], bool]
"""history -> whether that is enough."""


class HyperOptimizer:
    """Drives any engine: computes hypergradients and moves the hypers by them.

    Args:
      engine: `rf.reverse(problem)`, `rf.forward(problem)` or `rf.real_time(problem, ...)`.
      optimizer: such as `rf.projected_adam(0.01, constraints={...})`.
      callbacks: objects with any of `on_start(run)`, `on_norms(k, norms)` of adjoint or sensitivity,
        `on_hyper_iteration(k, hypers, hypergradient, extra)` and `on_end(result)`; `rf.ProgressBar()`,
        `rf.TensorBoard(logdir)`, `rf.CSVLogger(path)`.
      metrics: (state, hypers, k) -> dict, computed after each hypergradient and passed to callbacks as `extra`; its numbers
        go into the history.
      best_by: what the best hyper-iteration has the lowest of: "value" (with several objectives their sum), or a key of the
        history, such as a metric's.
      stop: history -> whether to end before `iterations`; asked before each hyper-iteration. A pure function of the history,
        so that a run that is taken up again ends where it would have ended.
      on_divergence: what to do where a value or hypergradient is not finite. "raise" ends with `rf.DivergenceError`.
        "backtrack" returns to the last hypers that were fine, halves the hyper-rate and moves from there again. A function
        hypers -> hypers says with which hypers to try this hyper-iteration again; in real time also from Z = 0, because what
        led astray is in it. Both give up after ten times in a row, with the whole story in the error.
      limit: history -> number that the value should not exceed; above it counts as divergence too, but not more than twice
        in a row: what is still above is taken as it is.
      clip: hypergradients whose norm, over all hypers together, is larger are scaled down to it before the update, so that
        one wild hypergradient does not spoil the optimiser's moments; the history has them as they were.

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
        on_divergence: str | setbacks.Again = "raise",
        limit: Callable[[list[dict[str, float]]], float] | None = None,
        clip: float | None = None,
    ):
        if not hasattr(engine, "advance"):
            raise TypeError(f"engine is {type(engine).__name__}; pass rf.reverse(problem), rf.forward(problem), ...")
        if not hasattr(optimizer, "update"):
            raise TypeError(f"optimizer is {type(optimizer).__name__}; pass rf.projected_adam(...) or an rf.HyperUpdate.")
        if not isinstance(callbacks, Sequence):
            raise TypeError(f"callbacks is {type(callbacks).__name__}; pass a list, such as [rf.ProgressBar()].")
        if on_divergence not in ("raise", "backtrack") and not callable(on_divergence):
            raise ValueError(
                f"on_divergence is {on_divergence!r}; choose 'raise', 'backtrack' or a function hypers -> hypers."
            )
        if clip is not None and not clip > 0:
            raise ValueError(f"clip is {clip!r}; it has to be above 0, or None for hypergradients as they are.")
        self.engine = engine
        self.optimizer = optimizer
        self.clip = clip
        self.on_divergence = on_divergence
        self.limit = limit
        self.callbacks = tuple(callbacks)
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
        """Runs hyper-iterations 0..iterations-1, or what is left of them.

        Ctrl-C and SIGTERM end it after the hyper-iteration that is under way, with a checkpoint: by `KeyboardInterrupt`, and
        by `SystemExit` with code 143. A second one ends it at once.

        Args:
          params: where each training (in real time: the one training) starts.
          hypers: where the hypers start.
          iterations: the total, also when a run is taken up again.
          checkpoint_dir: a killed run with the same directory goes on where it was, to the same bits. One process at a
            time: a second one is refused.
          resume: False starts afresh and removes this problem's earlier checkpoints.
          checkpoint_every: hyper-iterations between checkpoints, for states that take long to write.
          keep: how many of the last checkpoints stay; the second serves where the newest is damaged.
        """
        errors.check_count("iterations", iterations)
        errors.check_count("checkpoint_every", checkpoint_every)
        errors.check_count("keep", keep)
        params = errors.checked_params(params)
        hypers = errors.checked_hypers(hypers, params)
        errors.check_finite(hypers)
        progress = self._start(params, hypers)
        config = self._config(params, hypers)
        if checkpoint_dir is None:
            return self._run(progress, iterations, config, None, checkpoint_every)
        store = Store(checkpoint_dir, self._fingerprint(params, hypers, progress), keep)
        self._check_stream(store)
        if not self._writes:  # all processes of a mesh go on from the same checkpoint, which one of them writes
            return self._run(self._load(store, progress) if resume else progress, iterations, config, None, checkpoint_every)
        with locks.held(checkpoint_dir, "checkpoint_dir"):
            if resume:
                progress = self._load(store, progress)
            else:
                store.clear()
            return self._run(progress, iterations, config, store, checkpoint_every)

    def _run(self, progress: Progress, iterations: int, config: dict[str, Any], store: Store | None, every: int) -> Result:
        """What is left of a run."""
        number = None  # of the signal that ends it
        try:
            self._tell("on_start", Run(progress.k, iterations, progress.hypers, config))
            with preemption.noticed() as own:
                signal = getattr(self.engine, "agreed", lambda own: own)(own)  # on a mesh: of any process
                while number is None and not self._over(progress, iterations):
                    k, progress = progress.k, self._attempt(progress, store, every)
                    if progress.k > k:
                        number = signal()
                        last = number is not None or self._over(progress, iterations)
                        if store is not None and (progress.k % every == 0 or last):
                            self._save(store, progress)
                number = number or own()
            if number is not None:
                preemption.end(number)
        finally:
            self._tell("on_end", progress.result)
        return progress.result

    def _attempt(self, now: Progress, store: Store | None, every: int) -> Progress:
        """After hyper-iteration k; or before it again, with other hypers, where it diverged."""
        try:
            return self._iterate(now)
        except errors.DivergenceError as error:
            back = setbacks.again(now, error, self.on_divergence, self.engine, self.optimizer)
            if back is None:
                if store is not None and now.k % every and _stream(self.engine) is None:
                    self._save(store, now)
                raise errors.with_story(error, now.setbacks) from None
            return back

    def _over(self, progress: Progress, iterations: int) -> bool:
        return progress.k >= iterations or (self.stop is not None and self.stop(progress.history))

    def _start(self, params: Nest, hypers: dict[str, tf.Tensor]) -> Progress:
        carry = self.engine.start(params, hypers)
        state = self.engine.initial_state(params, hypers)
        return Progress(0, hypers, self.optimizer.init(hypers), carry, state, None, [])

    def _iterate(self, now: Progress) -> Progress:
        """Hyper-iteration k."""
        began = time.perf_counter()
        found, carry = self.engine.advance(now.carry, now.hypers, now.k)
        values = _values(found)
        norms = {f"norm of {name}": float(norm) for name, norm in getattr(self.engine, "norms", {}).items()}
        looked_at = {**values, **{f"hypergradient of {name}": grad for name, grad in found.grads.items()}}
        limit = np.inf if self.limit is None or now.in_a_row >= setbacks.PATIENCE else self.limit(now.history)
        if values["value"] > limit or not all(np.all(np.isfinite(quantity)) for quantity in looked_at.values()):
            raise errors.diverged(now.k, {**looked_at, **norms}, now.result, limit)
        grads = dict(found.grads) if self.clip is None else _clipped(found.grads, self.clip)
        hypers, opt_state = self.optimizer.update(grads, now.opt_state, now.hypers)
        before = now.history[-1]["seconds"] if now.history else 0.0
        # The algorithm's own: metrics and callbacks come after. Not below 0, should a clock go backwards.
        seconds = before + max(0.0, time.perf_counter() - began)

        extra = dict(self.metrics(found.state, now.hypers, now.k)) if self.metrics else {}
        others = {**_numbers(now.hypers, found), **norms, **_scalars(extra)}
        own = {"iteration": now.k, **values}
        row = {
            **own,
            **others,
            **own,
            "seconds": seconds,
        }  # a hyper or metric of the same name does not hide the driver's own
        best = self._better(now, found, row)
        self._tell("on_norms", now.k, norms)
        self._tell("on_hyper_iteration", now.k, now.hypers, found, extra)
        good = Good(now.hypers, now.opt_state, grads)
        return Progress(now.k + 1, hypers, opt_state, carry, found.state, best, [*now.history, row], good, now.setbacks)

    def _better(self, now: Progress, found: HyperGradient, row: dict[str, float]) -> Best | None:
        if self.best_by not in row:
            raise ValueError(f"best_by is '{self.best_by}', which is not in the history; choose one of {sorted(row)}.")
        score = row[self.best_by]
        if now.best is not None and not (score < now.best.value or np.isnan(now.best.value)):
            return now.best
        return Best(now.hypers, found.state, score, now.k)

    @property
    def _writes(self) -> bool:
        """Whether this process keeps checkpoints and tells callbacks: of those on a mesh one does, see `rf.distribute`."""
        return getattr(self.engine, "writes", True)

    def _tell(self, event: str, *args: Any) -> None:
        for callback in self.callbacks if self._writes else ():
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

    def _fingerprint(self, params: Nest, hypers: Hypers, start: Progress) -> dict[str, Any]:
        initial = {"initial params": digest(params), "initial hypers": digest(dict(hypers))}
        return {**self._config(params, hypers), "state": nest.signature(start.state), **initial}

    def _check_stream(self, store: Store) -> None:
        stream = _stream(self.engine)
        if stream is not None and stream.unseeded():
            raise ValueError(
                f"checkpoint_dir is {str(store.directory)!r}, but the streamed dataset is shuffled without a seed: a "
                f"resumed run would see other batches. Give shuffle a seed, or run without checkpoint_dir."
            )
        if stream is not None and not stream.can_be_saved():
            raise ValueError(
                f"checkpoint_dir is {str(store.directory)!r}, but TensorFlow cannot checkpoint the iterator of the streamed "
                f"dataset (Python generators and py_function are opaque to it), so that a resumed run would see other "
                f"batches. Build the dataset from tensors or files, or run without checkpoint_dir."
            )

    def _save(self, store: Store, p: Progress) -> None:
        stream = _stream(self.engine)
        store.save(p.k, p.arrays(), p.record(), None if stream is None else lambda place: stream.save(place / "stream"))

    def _load(self, store: Store, start: Progress) -> Progress:
        stream = _stream(self.engine)
        loaded = store.load(start.arrays(), None if stream is None else lambda place: stream.restore(place / "stream"))
        return start if loaded is None else Progress.of(*loaded)


def _stream(engine: Engine) -> Stream | None:
    batches = engine.problem.batches
    return batches if isinstance(batches, Stream) else None


def _clipped(grads: Mapping[str, tf.Tensor], norm: float) -> dict[str, tf.Tensor]:
    """The hypergradients with a norm, over all of them, of `norm` at most."""
    scaled, _ = tf.clip_by_global_norm(list(grads.values()), norm)
    return dict(zip(grads, scaled, strict=True))


def _values(found: HyperGradient) -> dict[str, float]:
    """ "value", and each objective's own where there are several."""
    if not isinstance(found.value, dict):
        return {"value": float(found.value)}
    each = {f"value/{name}": float(value) for name, value in found.value.items()}
    return {"value": float(sum(each.values())), **each}


def _numbers(hypers: Hypers, found: HyperGradient) -> dict[str, float]:
    """Scalar hypers, and the norm of each hypergradient."""
    scalars = {name: float(hyper) for name, hyper in hypers.items() if hyper.shape.rank == 0}
    return {**scalars, **{f"hypergradient/{name}": float(tf.norm(grad)) for name, grad in found.grads.items()}}


def _scalars(extra: dict[str, Any]) -> dict[str, float]:
    arrays = {name: np.asarray(value) for name, value in extra.items()}
    return {name: float(array) for name, array in arrays.items() if array.ndim == 0 and array.dtype.kind in "biuf"}

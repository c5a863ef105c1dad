"""Logs a run for TensorBoard: curves, histograms, images of matrices, the configuration, and the HParams page."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.core.types import HyperGradient, Hypers, Result, Run
from rfho2.monitor.base import Callback, values


class TensorBoard(Callback):
    """Writes a log that `tensorboard --logdir` shows.

    Scalars: the values, every scalar hyper and its hypergradient, scalar metrics. Histograms: vectors and larger arrays.
    Images: matrices (dark is small, light is large). Text: the configuration. HParams: the initial hypers of a run and the
    best value that it found. If the log cannot be written, for instance on a full disk, the run goes on with a warning.

    Args:
      logdir: where the log is written; use one directory per run.
      every: hyper-iterations between histograms and images, which are large.
    """

    def __init__(self, logdir: str | os.PathLike[str], every: int = 1):
        self._logdir = os.fspath(logdir)
        self._every = every
        self._writer: tf.summary.SummaryWriter | None = None

    def on_start(self, run: Run) -> None:
        """Opens the log and writes the configuration."""
        from tensorboard.plugins.hparams import api as hparams

        with self._giving_up_on_errors():
            self._writer = tf.summary.create_file_writer(self._logdir)
        if self._writer is None:
            return
        config = json.dumps({**run.config, "iterations": run.iterations}, indent=2, default=str)
        scalars = {name: float(hyper) for name, hyper in run.hypers.items() if hyper.shape.rank == 0}
        described = {f"{part}.{key}": str(v) for part in ("engine", "optimizer") for key, v in run.config[part].items()}
        with self._giving_up_on_errors(), self._writer.as_default(step=run.first):
            tf.summary.text("configuration", "\n".join("    " + line for line in config.splitlines()))
            if run.first == 0:  # hypers of a resumed run are not the initial ones
                hparams.hparams({**{f"initial {name}": value for name, value in scalars.items()}, **described})

    def on_norms(self, k: int, norms: dict[str, float]) -> None:
        """Writes the norm of the adjoint or sensitivity."""
        if norms and self._writer is not None:
            self._write_scalars(norms, k)

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: HyperGradient, extra: dict[str, Any]) -> None:
        """Writes the numbers of hyper-iteration k."""
        if self._writer is None:
            return
        grads = {f"hypergradient/{name}": grad for name, grad in hypergradient.grads.items()}
        quantities = {**extra, **{f"hyper/{name}": h for name, h in hypers.items()}, **grads, **values(hypergradient)}
        tensors = {name: tf.convert_to_tensor(value) for name, value in quantities.items() if not isinstance(value, str)}
        self._write_scalars({name: value for name, value in tensors.items() if value.shape.rank == 0}, k)
        if k % self._every == 0 and self._writer is not None:
            with self._giving_up_on_errors(), self._writer.as_default(step=k):
                for name, value in tensors.items():
                    _write_array(name, value)

    def on_end(self, result: Result) -> None:
        """Writes the best value and closes the log."""
        if self._writer is None:
            return
        with self._giving_up_on_errors():
            with self._writer.as_default(step=len(result.history)):
                if result.best is not None:
                    tf.summary.scalar("best value", result.best.value)
            self._writer.close()
        self._writer = None

    @contextlib.contextmanager
    def _giving_up_on_errors(self) -> Iterator[None]:
        """A log that cannot be written does not end the run; it ends the log."""
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            self._writer = None
            warnings.warn(f"{self._logdir}: the log cannot be written ({error}); the run goes on without it.", stacklevel=4)

    def _write_scalars(self, scalars: Mapping[str, Any], k: int) -> None:
        """Writes all of them together: one by one, each would take a millisecond."""
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        assert self._writer is not None
        with self._giving_up_on_errors(), self._writer.as_default(step=k):
            each = [scalar_pb(name, np.asarray(value, np.float32)).SerializeToString() for name, value in scalars.items()]
            tf.summary.experimental.write_raw_pb(b"".join(each))  # protocol buffers in a row are one with all their values


def _write_array(name: str, value: tf.Tensor) -> None:
    if value.shape.rank == 2 and min(value.shape) > 1:
        tf.summary.image(name, _image(value.numpy()))
    elif value.shape.rank:
        tf.summary.histogram(name, value)


def _image(matrix: np.ndarray) -> np.ndarray:
    """The matrix in shades of grey, from its smallest entry (or 0) to its largest, enlarged to a visible size."""
    low, high = min(float(matrix.min()), 0.0), float(matrix.max())
    grey = (matrix - low) / (high - low) if high > low else np.zeros_like(matrix)
    zoom = max(1, 256 // max(matrix.shape))
    return np.kron(grey, np.ones((zoom, zoom)))[None, :, :, None].astype(np.float32)

"""Logs a run for TensorBoard: curves, histograms, images of matrices, the configuration, and the HParams page."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.core import rows
from rfho2.core.types import HyperGradient, Hypers, Result, Run
from rfho2.core.warn import warn
from rfho2.monitor.base import Callback, values

OBJECTIVE, HYPERS, HYPERGRADIENTS, METRICS, NORMS = "objective", "hypers", "hypergradients", "metrics", "norms"
BEST = f"{OBJECTIVE}/best"


class TensorBoard(Callback):
    """Writes a log that `tensorboard --logdir` shows.

    Scalars: the objective, every scalar hyper and its hypergradient, norms, scalar metrics. Histograms: vectors and larger
    arrays. Images: matrices (dark is small, light is large). The names are grouped: `objective/value`, `hypers/lr`,
    `hypergradients/lr`, `norms/adjoint`, `metrics/accuracy`. Custom Scalars: the same curves, the objective first. Text: the
    configuration. HParams: a row for each run, with its initial hypers, its settings, its best value and its last metrics.
    If the log cannot be written, for instance on a full disk, the run continues with a warning.

    Args:
      logdir: where the log is written; use one directory per run.
      every: hyper-iterations between histograms and images, which are large.
    """

    needs_state = False

    def __init__(self, logdir: str | os.PathLike[str], every: int = 1):
        self._logdir = os.fspath(logdir)
        self._every = every
        self._writer: tf.summary.SummaryWriter | None = None
        self._settings: dict[str, bool | float | str] = {}

    def on_start(self, run: Run) -> None:
        """Opens the log and writes the configuration."""
        with self._giving_up_on_errors():
            self._writer = tf.summary.create_file_writer(self._logdir)
        if self._writer is None:
            return
        config = json.dumps({**run.config, "iterations": run.iterations}, indent=2, default=str)
        self._settings = flat({part: run.config[part] for part in ("optimizer", "engine")})
        with self._giving_up_on_errors(), self._writer.as_default(step=run.first):
            tf.summary.text("configuration", "\n".join("    " + line for line in config.splitlines()))
            tf.summary.experimental.write_raw_pb(_layout().SerializeToString())

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: HyperGradient, extra: dict[str, Any]) -> None:
        """Writes the numbers of hyper-iteration k."""
        if self._writer is None:
            return
        named = {name.removeprefix("value/"): value for name, value in values(hypergradient).items()}
        norms = hypergradient.norms
        of_hypers = {  # named by a tuner
            name: v for name, v in extra.items() if name.partition("/")[0] in hypers and np.ndim(v) == 0
        }
        shown = {**hypers, **({} if of_hypers else rows.entries(hypers)), **of_hypers}
        metrics = {name: value for name, value in extra.items() if name not in of_hypers}
        groups = {OBJECTIVE: named, HYPERS: shown, HYPERGRADIENTS: hypergradient.grads, METRICS: metrics, NORMS: norms}
        tensors = {
            f"{group}/{name}": tf.convert_to_tensor(value)
            for group, quantities in groups.items()
            for name, value in quantities.items()
            if not isinstance(value, str)
        }
        scalars = {name: value for name, value in tensors.items() if value.shape.rank == 0}
        self._write_scalars(scalars, k)
        if k == 0:
            self._write_hparams(scalars)
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
                    tf.summary.scalar(BEST, result.best.value)
            self._writer.close()
        self._writer = None

    def _write_hparams(self, scalars: Mapping[str, tf.Tensor]) -> None:
        """Writes the row of this run on the HParams page; its columns are the settings, the objective and the metrics."""
        from tensorboard.plugins.hparams import api as hparams

        if self._writer is None:
            return
        hypers = {name.removeprefix(f"{HYPERS}/"): v for name, v in scalars.items() if name.startswith(f"{HYPERS}/")}
        row = {f"initial.{name}": float(value) for name, value in hypers.items()} | self._settings
        metrics = [name for name in scalars if name.startswith((f"{OBJECTIVE}/", f"{METRICS}/"))]
        with self._giving_up_on_errors(), self._writer.as_default(step=0):
            hparams.hparams_config([hparams.HParam(name) for name in row], [hparams.Metric(n) for n in (BEST, *metrics)])
            hparams.hparams(row, trial_id=self._logdir)

    @contextlib.contextmanager
    def _giving_up_on_errors(self) -> Iterator[None]:
        """Ends the log, and not the run, if the log cannot be written."""
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            self._writer = None
            warn(f"{self._logdir}: the log cannot be written ({error}); the run continues without it.")

    def _write_scalars(self, scalars: Mapping[str, Any], k: int) -> None:
        """Writes all scalars together: written one by one, each would take a millisecond."""
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        assert self._writer is not None
        with self._giving_up_on_errors(), self._writer.as_default(step=k):
            each = [scalar_pb(name, np.asarray(value, np.float32)).SerializeToString() for name, value in scalars.items()]
            tf.summary.experimental.write_raw_pb(
                b"".join(each)
            )  # concatenated protocol buffers are one with all their values


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, bool | float | str]:
    """Nested settings as {"optimizer.learning_rate.lr": 0.01}; those that are None or empty are left out."""
    flattened: dict[str, bool | float | str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flattened |= flat(value, f"{prefix}{key}.")
        elif value is not None and value != []:
            flattened[f"{prefix}{key}"] = value if isinstance(value, (bool, int, float, str)) else str(value)
    return flattened


def _layout() -> Any:
    """The Custom Scalars page: one chart for each group, the objective first (the other pages sort by name)."""
    from tensorboard.plugins.custom_scalar import layout_pb2 as pb
    from tensorboard.plugins.custom_scalar import summary

    order = (OBJECTIVE, METRICS, HYPERS, HYPERGRADIENTS, NORMS)
    charts = {group: pb.Chart(title=group, multiline=pb.MultilineChartContent(tag=[f"^{group}/"])) for group in order}
    return summary.pb(pb.Layout(category=[pb.Category(title=group, chart=[chart]) for group, chart in charts.items()]))


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

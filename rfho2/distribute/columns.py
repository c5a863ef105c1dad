"""Columns of the sensitivity Z divided over processes: each pushes its own columns, and only m numbers are exchanged.

Every process trains on all the data with ordinary tensors. This divides the memory for Z and the time to push it, but not
the training itself: it suits many hypers and small states, as data parallelism suits large batches.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from rfho2.batches import Stream
from rfho2.core import errors
from rfho2.core.types import HyperGradient, Hypers, Nest, Signal
from rfho2.distribute import watchdog
from rfho2.distribute.consensus import Consensus
from rfho2.distribute.dtensor_function import DTensorFunction
from rfho2.distribute.placement import BATCH, gather, ordinary, whole
from rfho2.hypergradients.engine import OfflineEngine
from rfho2.hypergradients.real_time import RealTimeEngine
from rfho2.hypergradients.sensitivity import (
    Directions,
    Pushed,
    Tangent,
    balanced_chunk,
    count_columns,
    directions,
    hypergradient_of,
    push_steps,
    start_tangent,
)
from rfho2.hypergradients.windows import WindowSettings, window_settings
from rfho2.problem import Problem


class ColumnShare:
    """The columns that belong to this process, and the exchange of what each process computed along its columns.

    Args:
      mesh: all processes, with one device each, along `batch`.
    """

    def __init__(self, mesh: dtensor.Mesh):
        if mesh.num_local_devices() != 1 or mesh.dim_names != [BATCH]:
            raise ValueError(
                f"mesh is {mesh}; columns are divided over processes with one device each: use rf.distribute.mesh()."
            )
        self.mesh, self.processes, self.own = mesh, dtensor.num_clients(), dtensor.client_id()
        self.settings = {"process": self.own, "processes": self.processes}
        self.consensus = Consensus()
        self._together = DTensorFunction(lambda rows: whole(rows, mesh))

    def columns_each(self, hypers: Hypers) -> int:
        """Columns per process; the last processes may have zero columns among theirs."""
        return -(-count_columns(hypers) // self.processes)

    def gathered(self, pushed: Pushed, hypers: Hypers, k: tf.Tensor) -> Pushed:
        """The readings along all columns and the squares of all of Z, from those of each process."""
        products = np.stack([reading.products for reading in pushed.readings])
        told = self.consensus.row((dict(hypers), k))
        row = np.concatenate([told, [np.float64(pushed.squares)], products.ravel()])[None]
        layout = dtensor.Layout.batch_sharded(self.mesh, BATCH, 2)
        with watchdog.together():
            rows = ordinary(self._together(dtensor.pack([tf.constant(row)], layout))).numpy()
        self.consensus.receive(rows[:, :2])
        every = rows[:, 3:].reshape(self.processes, *products.shape).swapaxes(0, 1).reshape(len(products), -1)
        readings = [
            reading._replace(products=tf.constant(along, reading.products.dtype))
            for reading, along in zip(pushed.readings, every, strict=True)
        ]
        return pushed._replace(readings=readings, squares=tf.constant(rows[:, 2].sum(), pushed.squares.dtype))


def forward_columns(
    problem: Problem, mesh: dtensor.Mesh, chunk: int | None = None, jit_compile: bool | None = None
) -> ForwardColumns:
    """`rf.forward`, with the columns of Z divided over the processes of the mesh.

    Args:
      problem: on ordinary tensors, the same in every process.
      mesh: `rf.distribute.mesh()`, with one device in each process.
      chunk, jit_compile: as in `rf.forward`; a chunk consists of columns of one process.
    """
    if chunk is not None:
        chunk = errors.check_count("chunk", chunk)
    return ForwardColumns(problem, ColumnShare(mesh), chunk, jit_compile)


class ForwardColumns(OfflineEngine):
    """See `forward_columns`."""

    def __init__(self, problem: Problem, share: ColumnShare, chunk: int | None, jit_compile: bool | None):
        self._share, self._chunk = share, chunk

        def push(params: Nest, hypers: Hypers, k: tf.Tensor, begin: tf.Tensor) -> Pushed:
            assert problem.steps is not None
            along = directions(hypers, begin, self._chunk_size(hypers))
            tangent = start_tangent(problem, params, hypers, along)
            pushed = push_steps(problem, tangent, hypers, along, k, 0, problem.steps, lambda t: problem.batch(t, k))
            return pushed._replace(tangent=pushed.tangent._replace(sensitivity=()))

        super().__init__(problem, push, {"method": "forward", "chunk": chunk, "processes": share.processes}, jit_compile)

    @property
    def writes(self) -> bool:
        """Whether this is the process that writes: the first one."""
        return self._share.own == 0

    def agreed(self, own: Signal) -> Signal:
        """The signal of any process."""
        return self._share.consensus.among_all(own)

    def _hypergradient(self, params: Nest, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        """The hypergradient from the columns of all processes."""
        size = self._chunk_size(hypers)
        total = -(-self._share.columns_each(hypers) // size) * size  # as many columns as fill the chunks of a process
        begins = range(self._share.own * total, (self._share.own + 1) * total, size)
        parts: list[Pushed] = [self._compiled(params, hypers, k, tf.constant(begin)) for begin in begins]
        readings = [
            same[0]._replace(products=tf.concat([reading.products for reading in same], 0))
            for same in zip(*(part.readings for part in parts), strict=True)
        ]
        own = parts[0]._replace(readings=readings, squares=tf.add_n([part.squares for part in parts]))
        hypergradient = hypergradient_of(self.problem, hypers, self._share.gathered(own, hypers, k))
        self._norms = hypergradient.norms
        return hypergradient

    def _chunk_size(self, hypers: Hypers) -> int:
        each = self._share.columns_each(hypers)
        return min(self._chunk or balanced_chunk(each), each)


def real_time_columns(
    problem: Problem,
    hyper_batch: int,
    mesh: dtensor.Mesh,
    carry: bool = True,
    jit_compile: bool | None = None,
    *,
    discount: float = 1.0,
) -> RealTimeColumns:
    """`rf.real_time` in forward mode, with the columns of Z divided over the processes of the mesh.

    Each process carries its own columns, and so writes its own checkpoints, in a directory of its own. Call
    `same_checkpoint` before a run: it takes all processes back to the last checkpoint that they have in common.

    Args:
      problem: on ordinary tensors, the same in every process.
      mesh: `rf.distribute.mesh()`, with one device in each process.
      hyper_batch, carry, jit_compile, discount: as in `rf.real_time`.
    """
    if isinstance(problem.batches, Stream):
        raise TypeError("batches is a stream, which every process would read for itself; use rf.batches.shuffled.")
    settings = window_settings(hyper_batch, carry, discount, "forward")
    return RealTimeColumns(problem, settings, ColumnShare(mesh), jit_compile)


class RealTimeColumns(RealTimeEngine):
    """See `real_time_columns`."""

    def __init__(self, problem: Problem, settings: WindowSettings, share: ColumnShare, jit_compile: bool | None):
        super().__init__(problem, settings, jit_compile)
        self._share = share
        self.settings |= share.settings

    def agreed(self, own: Signal) -> Signal:
        """The signal of any process."""
        return self._share.consensus.among_all(own)

    def _directions(self, hypers: Hypers) -> Directions:
        """Those of the columns of this process."""
        each = self._share.columns_each(hypers)
        return directions(hypers, self._share.own * each, each)

    def _read(self, hypers: Hypers, pushed: Pushed) -> Any:
        """The readings along the columns of this process, to be exchanged."""
        return pushed._replace(tangent=Tangent((), ()))

    def _complete(self, result: Pushed, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        """The hypergradient from the columns of all processes."""
        return hypergradient_of(self.problem, hypers, self._share.gathered(result, hypers, k))


def same_checkpoint(directory: Path, mesh: dtensor.Mesh) -> None:
    """Removes checkpoints that not all processes have, as after a run that was killed while they were written.

    Args:
      directory: the directory of this process.
      mesh: `rf.distribute.mesh()`.
    """
    places = sorted(Path(directory).glob("ckpt-" + "[0-9]" * 8))
    newest = int(places[-1].name[-8:]) if places else 0
    last = int(np.min(gather(np.array([newest], np.int64), mesh)))
    for place in places:
        if int(place.name[-8:]) > last:
            shutil.rmtree(place)

"""Columns of the sensitivity Z divided over processes: each pushes its own columns, and only m numbers are exchanged.

Every process trains on all the data with ordinary tensors. This divides the memory for Z and the time to push it, but not
the training itself: it suits many hypers and small states, as data parallelism suits large batches.
"""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from rfho2.batches import Stream
from rfho2.core import errors
from rfho2.core.dtensors import DTensorFunction
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.distribute import watchdog
from rfho2.distribute.consensus import Consensus
from rfho2.distribute.placement import BATCH, gather, ordinary, whole
from rfho2.hypergradients.engine import MethodEngine
from rfho2.hypergradients.method import Method, from_the_start
from rfho2.hypergradients.real_time import forward_windows
from rfho2.hypergradients.sensitivity import (
    Directions,
    Pushed,
    StackedColumns,
    balanced_chunk,
    count_columns,
    directions,
    hypergradient_of,
    push_in_chunks,
)
from rfho2.hypergradients.windows import WindowSettings, window_engine, window_settings
from rfho2.problem import Problem


class ColumnShare(Consensus):
    """The columns that belong to this process, and the exchange of what each process computed along its columns.

    Args:
      mesh: all processes, with one device each, along `batch`.
      each_writes: whether every process writes checkpoints, because each carries its own columns, or only the first.
    """

    def __init__(self, mesh: dtensor.Mesh, each_writes: bool):
        if mesh.num_local_devices() != 1 or mesh.dim_names != [BATCH]:
            raise ValueError(
                f"mesh is {mesh}; columns are divided over processes with one device each: use rf.distribute.mesh()."
            )
        self.mesh, self.number, self.process = mesh, dtensor.num_clients(), dtensor.client_id()
        super().__init__(writes=each_writes or self.process == 0)
        self._together = DTensorFunction(lambda rows: whole(rows, mesh))

    def columns_each(self, hypers: Hypers) -> int:
        """Columns per process; the last processes may have columns of zeros among theirs."""
        return -(-count_columns(hypers) // self.number)

    def completed(self, problem: Problem, pushed: Pushed, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        """The hypergradient, from the readings along the columns of each process and the squares of its part of Z."""
        products = np.stack([reading.products for reading in pushed.readings])
        status = self.row((dict(hypers), k))
        row = np.concatenate([status, [np.float64(pushed.squares)], products.ravel()])[None]
        layout = dtensor.Layout.batch_sharded(self.mesh, BATCH, 2)
        with watchdog.together():
            rows = ordinary(self._together(dtensor.pack([tf.constant(row)], layout))).numpy()
        self.receive(rows[:, :2])
        every = rows[:, 3:].reshape(self.number, *products.shape).swapaxes(0, 1).reshape(len(products), -1)
        readings = [
            reading._replace(products=tf.constant(along, reading.products.dtype))
            for reading, along in zip(pushed.readings, every, strict=True)
        ]
        squares = tf.constant(rows[:, 2].sum(), pushed.squares.dtype)
        return hypergradient_of(problem, hypers, pushed._replace(readings=readings, squares=squares))


def forward_columns(
    problem: Problem, mesh: dtensor.Mesh, chunk: int | None = None, jit_compile: bool | None = None
) -> MethodEngine:
    """`rf.forward`, with the columns of Z divided over the processes of the mesh.

    Args:
      problem: on ordinary tensors, the same in every process.
      mesh: `rf.distribute.mesh()`, with one device in each process.
      chunk, jit_compile: as in `rf.forward`; a chunk consists of columns of one process.
    """
    if chunk is not None:
        chunk = errors.check_count("chunk", chunk)
    share = ColumnShare(mesh, each_writes=False)

    def make(problem: Problem, *_: Any) -> Method:
        def push(params: Nest, hypers: Hypers, k: tf.Tensor) -> Pushed:
            each = share.columns_each(hypers)
            size = min(chunk or balanced_chunk(each), each)
            filled = -(-each // size) * size  # as many columns as fill the chunks of a process
            pushed = push_in_chunks(problem, params, hypers, k, share.process * filled, filled, size)
            return pushed._replace(tangent=pushed.tangent._replace(sensitivity=StackedColumns(())))

        return from_the_start(push, complete=functools.partial(share.completed, problem))

    settings = {"method": "forward", "chunk": chunk, "processes": share.number}
    settings |= {"steps": problem.steps, "jit_compile": jit_compile}
    return MethodEngine(problem, settings, make, afresh=True, processes=share)


def real_time_columns(
    problem: Problem,
    hyper_batch: int,
    mesh: dtensor.Mesh,
    carry: bool = True,
    jit_compile: bool | None = None,
    *,
    discount: float = 1.0,
) -> MethodEngine:
    """`rf.real_time` in forward mode, with the columns of Z divided over the processes of the mesh.

    Each process carries its own columns, and therefore writes its own checkpoints, in a separate directory. Call
    `same_checkpoint` before a run: it takes all processes back to the last checkpoint that they have in common.

    Args:
      problem: on ordinary tensors, the same in every process.
      mesh: `rf.distribute.mesh()`, with one device in each process.
      hyper_batch, carry, jit_compile, discount: as in `rf.real_time`.
    """
    if isinstance(problem.batches, Stream):
        raise TypeError("batches is a stream, which every process would read separately; use rf.batches.shuffled.")
    settings = window_settings(hyper_batch, carry, discount, "forward")
    share = ColumnShare(mesh, each_writes=True)

    def along(hypers: Hypers) -> Directions:
        each = share.columns_each(hypers)
        return directions(hypers, share.process * each, each)

    def make(problem: Problem, settings: WindowSettings) -> Method:
        method = forward_windows(problem, settings, along, whole=False)
        return method._replace(complete=functools.partial(share.completed, problem))

    process_settings = {"process": share.process, "processes": share.number}
    return window_engine(problem, settings, make, jit_compile, share, process_settings)


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

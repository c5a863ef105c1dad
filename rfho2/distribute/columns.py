"""Columns of the sensitivity Z divided over processes: each pushes those of its own hypers, and m numbers travel.

Every process trains on all of the data with ordinary tensors, so that memory for Z and the time to push it are divided, not
those of the training: for many hypers and small states, as data parallelism is for large batches.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from rfho2.batches import Stream
from rfho2.core import errors, nest
from rfho2.core.compiled import Compiled
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.distribute import watchdog
from rfho2.distribute.consensus import Agreement
from rfho2.distribute.dtensor_function import Lowered
from rfho2.distribute.placement import BATCH, gather, ordinary, whole
from rfho2.hypergradients import RealTimeCarry
from rfho2.hypergradients.engine import BatchEngine, GoingOn, Probe
from rfho2.hypergradients.forward import (
    Pushed,
    Tangent,
    balanced,
    count,
    directions,
    hypergradient_of,
    push_steps,
    start_tangent,
)
from rfho2.problem import Problem


class Columns:
    """Which columns are this process's own, and the way to put together what each process read from them.

    Args:
      mesh: all processes, one device each, along `batch`.
    """

    def __init__(self, mesh: dtensor.Mesh):
        if mesh.num_local_devices() != 1 or mesh.dim_names != [BATCH]:
            raise ValueError(f"mesh is {mesh}; columns are divided over processes of one device each: rf.distribute.mesh().")
        self.mesh, self.processes, self.own = mesh, dtensor.num_clients(), dtensor.client_id()
        self.settings = {"process": self.own, "processes": self.processes}
        self.agreement = Agreement()
        self._together = Lowered(lambda rows: whole(rows, mesh))

    def share(self, hypers: Hypers) -> int:
        """The number of columns of each process; the last ones may have zero columns among them."""
        return -(-count(hypers) // self.processes)

    def whole(self, pushed: Pushed, hypers: Hypers, k: tf.Tensor) -> Pushed:
        """The readings along all columns, from those along the own ones."""
        products = np.stack([reading.products for reading in pushed.readings])
        row = np.concatenate([self.agreement.row((dict(hypers), k)), products.ravel()])[None]
        layout = dtensor.Layout.batch_sharded(self.mesh, BATCH, 2)
        with watchdog.together():
            rows = ordinary(self._together(dtensor.pack([tf.constant(row)], layout))).numpy()
        self.agreement.hear(rows[:, :2])
        every = rows[:, 2:].reshape(self.processes, *products.shape).swapaxes(0, 1).reshape(len(products), -1)
        readings = [
            reading._replace(products=tf.constant(along, reading.products.dtype))
            for reading, along in zip(pushed.readings, every, strict=True)
        ]
        return pushed._replace(readings=readings)


def forward_columns(
    problem: Problem, mesh: dtensor.Mesh, chunk: int | None = None, jit_compile: bool | None = None
) -> ForwardColumns:
    """`rf.forward`, with the columns of Z divided over the processes of the mesh.

    Args:
      problem: on ordinary tensors, the same in every process.
      mesh: `rf.distribute.mesh()`, with one device in each process.
      chunk, jit_compile: as those of `rf.forward`; a chunk is one of a process's own columns.
    """
    if chunk is not None:
        chunk = errors.check_count("chunk", chunk)
    return ForwardColumns(problem, Columns(mesh), chunk, jit_compile)


class ForwardColumns(BatchEngine):
    """See `forward_columns`."""

    def __init__(self, problem: Problem, columns: Columns, chunk: int | None, jit_compile: bool | None):
        self._columns, self._chunk = columns, chunk
        self.writes = columns.own == 0
        self.agreed = columns.agreement.among_all

        def push(params: Nest, hypers: Hypers, k: tf.Tensor, begin: tf.Tensor) -> Pushed:
            assert problem.steps is not None
            along = directions(hypers, begin, self._together(hypers))
            tangent = start_tangent(problem, params, hypers, along)
            pushed = push_steps(problem, tangent, hypers, along, k, 0, problem.steps, problem.batch)
            return pushed._replace(tangent=pushed.tangent._replace(sensitivity=()))

        settings = {"method": "forward", "chunk": chunk, "processes": columns.processes}
        super().__init__(problem, push, settings, jit_compile)  # type: ignore[arg-type]  # called from here only

    def __call__(self, params: Nest, hypers: Hypers, k: int | tf.Tensor = 0) -> HyperGradient:
        """The hypergradient, from every process's columns."""
        params, hypers = self._probe(params, hypers)
        k = tf.convert_to_tensor(k, tf.int32)
        first, together = self._columns.own * self._share(hypers), self._together(hypers)
        begins = range(first, first + self._share(hypers), together)
        parts: list[Pushed] = [self._compiled(params, hypers, k, tf.constant(begin)) for begin in begins]
        readings = [
            same[0]._replace(products=tf.concat([reading.products for reading in same], 0))
            for same in zip(*(part.readings for part in parts), strict=True)
        ]
        return hypergradient_of(self.problem, hypers, self._columns.whole(parts[0]._replace(readings=readings), hypers, k))

    def _together(self, hypers: Hypers) -> int:
        """Columns in a chunk."""
        own = -(-count(hypers) // self._columns.processes)
        return min(self._chunk or balanced(own), own)

    def _share(self, hypers: Hypers) -> int:
        """Columns of a process, as many as fill its chunks."""
        together = self._together(hypers)
        return -(-self._columns.share(hypers) // together) * together


def real_time_columns(
    problem: Problem, hyper_batch: int, mesh: dtensor.Mesh, carry: bool = True, jit_compile: bool | None = None
) -> RealTimeColumns:
    """`rf.real_time`, with the columns of Z divided over the processes of the mesh.

    Each process carries its own columns, and so writes checkpoints of its own, in a directory of its own; `same_checkpoint`
    before a run takes all of them to the last one that they have in common.

    Args:
      problem: on ordinary tensors, the same in every process.
      mesh: `rf.distribute.mesh()`, with one device in each process.
      hyper_batch, carry, jit_compile: as those of `rf.real_time`.
    """
    errors.check_count("hyper_batch", hyper_batch)
    if isinstance(problem.batches, Stream):
        raise TypeError("batches is a stream, which is read by each process for itself; use rf.batches.shuffled.")
    return RealTimeColumns(problem, hyper_batch, Columns(mesh), carry, jit_compile)


class RealTimeColumns(GoingOn):
    """See `real_time_columns`."""

    def __init__(self, problem: Problem, hyper_batch: int, columns: Columns, carry: bool, jit_compile: bool | None):
        self.problem, self._columns = problem, columns
        self.writes = True
        self.agreed = columns.agreement.among_all
        self.settings: dict[str, Any] = {
            "method": "real_time", "hyper_batch": hyper_batch, "carry": carry, "jit_compile": jit_compile,
            **columns.settings,
        }  # fmt: skip
        self.norms = {}  # each process sees those of its own columns only
        self._probe = Probe(problem)

        def start(params: Nest, hypers: Hypers) -> Tangent:
            return start_tangent(problem, params, hypers, self._along(hypers))

        def advance(c: RealTimeCarry, hypers: Hypers, k: tf.Tensor) -> tuple[Pushed, RealTimeCarry]:
            tangent = Tangent(c.state, c.sensitivity)
            pushed = push_steps(problem, tangent, hypers, self._along(hypers), k, c.t, hyper_batch, problem.batch)
            z = pushed.tangent.sensitivity
            kept = RealTimeCarry(pushed.tangent.state, z if carry else nest.zeros_like(z), c.t + hyper_batch)
            return pushed._replace(tangent=Tangent(pushed.tangent.state, ())), kept

        self._start, self._advance = Compiled(start, jit_compile=False), Compiled(advance, jit_compile)

    def _along(self, hypers: Hypers) -> dict[str, tf.Tensor]:
        share = self._columns.share(hypers)
        return directions(hypers, self._columns.own * share, share)

    def start(self, params: Nest, hypers: Hypers) -> RealTimeCarry:
        """s_0, the own columns of Z_0, and t = 0."""
        tangent = self._start(*self._probe(params, hypers))
        return RealTimeCarry(tangent.state, tangent.sensitivity, tf.constant(0))

    def forget(self, carry: RealTimeCarry) -> RealTimeCarry:
        """The same training with Z = 0."""
        return carry._replace(sensitivity=nest.zeros_like(carry.sensitivity))

    def advance(self, carry: RealTimeCarry, hypers: Hypers, k: int | tf.Tensor) -> tuple[HyperGradient, RealTimeCarry]:
        """`hyper_batch` more steps, and the hypergradient from every process's columns."""
        hypers = errors.checked_hypers(hypers, self.problem.dynamics.params(carry.state))
        k = tf.convert_to_tensor(k, tf.int32)
        pushed, carry = self._advance(carry, hypers, k)
        return hypergradient_of(self.problem, hypers, self._columns.whole(pushed, hypers, k)), carry


def same_checkpoint(directory: Path, mesh: dtensor.Mesh) -> None:
    """Where each process has a directory of checkpoints, removes those that not all of them have: a run was killed there.

    Args:
      directory: this process's own.
      mesh: `rf.distribute.mesh()`.
    """
    places = sorted(Path(directory).glob("ckpt-" + "[0-9]" * 8))
    newest = int(places[-1].name[-8:]) if places else 0
    last = int(np.min(gather(np.array([newest], np.int64), mesh)))
    for place in places:
        if int(place.name[-8:]) > last:
            shutil.rmtree(place)

"""An engine on a mesh that takes and gives ordinary tensors: driver, optimiser and checkpoints know nothing of the mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.experimental import dtensor

from rfho2.batches import Stream
from rfho2.core import errors, nest
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.distribute import watchdog
from rfho2.distribute.cluster import chief
from rfho2.distribute.consensus import Agreement
from rfho2.distribute.dtensor_function import Lowered
from rfho2.distribute.placement import ordinary, replicate, whole
from rfho2.hypergradients import Engine

SMALL = 64  # entries: DTensor takes smaller tensors of some dtypes for constants, and would lower again for other values


def on_mesh(engine: Engine, mesh: dtensor.Mesh) -> MeshEngine:
    """The engine, with its inputs replicated to the mesh and its results made whole again.

    What divides the work is the data: batches that were made with `shard` or `split`. All processes compute the same
    hypergradient, and so the same updates of the hypers.

    Args:
      engine: `rf.reverse(problem)`, `rf.forward(problem)` or `rf.real_time(problem, ...)`.
      mesh: that of the data.
    """
    if isinstance(engine.problem.batches, Stream):
        raise TypeError(
            "batches is a stream, which is read by each process for itself; use split(rf.batches.shuffled(...))."
        )
    return MeshEngine(engine, mesh)


class MeshEngine:
    """See `on_mesh`."""

    def __init__(self, engine: Engine, mesh: dtensor.Mesh):
        self.engine, self.mesh = engine, mesh
        self.problem = engine.problem
        self.settings: dict[str, Any] = dict(engine.settings)
        self.writes = chief()  # or checkpoints and logs would be written by every process
        self._agreement = Agreement()
        self.agreed = self._agreement.among_all
        self._call = self._lowered(engine)
        self._start = self._lowered(engine.start)
        self._advance = self._lowered(engine.advance)

    @property
    def jit_compiled(self) -> bool:
        """Whether XLA compiles it; known after the first call."""
        return self.engine.jit_compiled

    def __call__(self, params: Nest, hypers: Hypers, k: int | tf.Tensor = 0) -> HyperGradient:
        """The hypergradient, as that of the engine."""
        params = errors.checked_params(params)
        return self._run(self._call, params, errors.checked_hypers(hypers, params), tf.convert_to_tensor(k, tf.int32))

    def start(self, params: Nest, hypers: Hypers) -> Nest:
        """What is carried on, before the first hyper-iteration."""
        params = errors.checked_params(params)
        return self._run(self._start, params, errors.checked_hypers(hypers, params))

    def advance(self, carry: Nest, hypers: Hypers, k: int | tf.Tensor) -> tuple[HyperGradient, Nest]:
        """Hyper-iteration k."""
        return self._run(self._advance, carry, errors.checked_hypers(hypers, carry), tf.convert_to_tensor(k, tf.int32))

    def initial_state(self, params: Nest, hypers: Hypers) -> Nest:
        """s_0."""
        return self.engine.initial_state(params, hypers)

    def forget(self, carry: Nest) -> Nest:
        """In real time the same training with Z = 0."""
        return getattr(self.engine, "forget", lambda carry: carry)(carry)

    def _lowered(self, function: Callable[..., Any]) -> Lowered:
        """The function of an engine between ordinary tensors that lie on the mesh whole."""

        def run(dtypes: tuple[str, ...], told: tf.Tensor, *args: Nest) -> Any:
            leaves = [tf.cast(leaf, dtype) for leaf, dtype in zip(nest.flatten(args), dtypes, strict=True)]
            return whole((told, function(*nest.pack(args, leaves))), self.mesh)

        return Lowered(run)

    def _run(self, function: Lowered, *args: Nest) -> Any:
        args = nest.map(tf.convert_to_tensor, args)
        dtypes = tuple(leaf.dtype.name for leaf in nest.flatten(args))
        placed = replicate(nest.map(_widened, args), self.mesh)
        layout = dtensor.Layout.batch_sharded(self.mesh, self.mesh.dim_names[0], 2)
        row = tf.constant(self._agreement.row(args[1:])[None])
        told = dtensor.pack([row] * self.mesh.num_local_devices(), layout)
        with watchdog.together():
            with dtensor.default_mesh(self.mesh):
                found = function(dtypes, told, *placed)
            rows, found = ordinary(found)
        self._agreement.hear(rows.numpy())
        return found


def _widened(leaf: tf.Tensor) -> tf.Tensor:
    """A small tensor as float64, which DTensor does not take for a constant; int32 and float32 come back as they were."""
    return tf.cast(leaf, tf.float64) if leaf.shape.num_elements() <= SMALL else leaf

"""An engine on a mesh that takes and returns ordinary tensors, so that the driver need not know about the mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.experimental import dtensor

from rfho2.batches import Stream
from rfho2.core import nest
from rfho2.core.compiled import Compiled
from rfho2.core.dtensors import BROKEN_SOLVERS, DTensorFunction, widened
from rfho2.core.types import Nest
from rfho2.distribute import watchdog
from rfho2.distribute.cluster import chief
from rfho2.distribute.consensus import Consensus
from rfho2.distribute.placement import ordinary, replicate, whole
from rfho2.hypergradients.engine import Engine, MethodEngine


def on_mesh(engine: Engine, mesh: dtensor.Mesh) -> MethodEngine:
    """The engine, with its inputs replicated to the mesh and its results gathered.

    The data divide the work: make the batches with `shard` or `split`. All processes compute the same hypergradient, and so
    the same updates of the hypers.

    Args:
      engine: `rf.reverse(problem)`, `rf.forward(problem)`, `rf.real_time(problem, ...)` or `rf.implicit(problem)`.
      mesh: the mesh of the data.
    """
    if not isinstance(engine, MethodEngine):
        raise TypeError(
            f"engine is {type(engine).__name__}; a mesh runs rf.reverse, rf.forward, rf.real_time and rf.implicit."
        )
    if isinstance(engine.problem.batches, Stream):
        raise TypeError(
            "batches is a stream, which every process would read separately; use split(rf.batches.shuffled(...))."
        )
    solver = engine.settings.get("solver")
    if solver in BROKEN_SOLVERS:
        raise ValueError(f"solver is '{solver}', which DTensor cannot run; use solver='normal' or 'cg'.")
    return MethodEngine(engine.problem, dict(engine.settings), engine.make, engine.afresh, OnMesh(mesh))


class OnMesh(Consensus):
    """All processes of a mesh, which compute one hypergradient together; the first one writes."""

    def __init__(self, mesh: dtensor.Mesh):
        super().__init__(writes=chief())
        self.mesh = mesh

    def over(self, function: Compiled) -> Callable[..., Any]:
        """The function (carry or params, hypers, ...) of ordinary tensors, computed on the mesh."""

        def lowered(dtypes: tuple[str, ...], status: tf.Tensor, *args: Nest) -> Any:
            leaves = [tf.cast(leaf, dtype) for leaf, dtype in zip(nest.flatten(args), dtypes, strict=True)]
            return whole((status, function(*nest.pack(args, leaves))), self.mesh)

        on_devices = DTensorFunction(lowered)

        def run(*args: Nest) -> Any:
            args = nest.map(tf.convert_to_tensor, args)
            dtypes = tuple(leaf.dtype.name for leaf in nest.flatten(args))
            placed = replicate(nest.map(widened, args), self.mesh)
            layout = dtensor.Layout.batch_sharded(self.mesh, self.mesh.dim_names[0], 2)
            row = tf.constant(self.row(args[1:])[None])
            status = dtensor.pack([row] * self.mesh.num_local_devices(), layout)
            with watchdog.together():
                with dtensor.default_mesh(self.mesh):
                    returned = on_devices(dtypes, status, *placed)
                rows, result = ordinary(returned)
            self.receive(rows.numpy())
            return result

        return run

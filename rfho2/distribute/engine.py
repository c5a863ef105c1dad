"""An engine on a mesh that takes and returns ordinary tensors, so that the driver need not know of the mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.experimental import dtensor

from rfho2.batches import Stream
from rfho2.core import errors, nest
from rfho2.core.types import HyperGradient, Hypers, Nest, Signal
from rfho2.distribute import watchdog
from rfho2.distribute.cluster import chief
from rfho2.distribute.consensus import Consensus
from rfho2.distribute.dtensor_function import DTensorFunction
from rfho2.distribute.placement import ordinary, replicate, whole
from rfho2.hypergradients import episodes
from rfho2.hypergradients.engine import Engine, as_engine

SMALL = 64  # entries: DTensor treats smaller tensors of some dtypes as constants, and would lower again for other values


def on_mesh(engine: Engine, mesh: dtensor.Mesh) -> MeshEngine:
    """The engine, with its inputs replicated to the mesh and its results gathered.

    The data divide the work: make the batches with `shard` or `split`. All processes compute the same hypergradient, and so
    the same updates of the hypers.

    Args:
      engine: `rf.reverse(problem)`, `rf.forward(problem)`, `rf.real_time(problem, ...)` or `rf.implicit(problem)`.
      mesh: the mesh of the data.
    """
    if isinstance(engine.problem.batches, Stream):
        raise TypeError(
            "batches is a stream, which every process would read for itself; use split(rf.batches.shuffled(...))."
        )
    if engine.settings.get("solver") == "bicgstab":  # TensorFlow 2.21 ends with a segmentation fault
        raise ValueError("solver is 'bicgstab', which DTensor cannot run; use solver='normal' or 'cg'.")
    return MeshEngine(as_engine(engine), mesh)


class MeshEngine(Engine):
    """See `on_mesh`."""

    def __init__(self, engine: Engine, mesh: dtensor.Mesh):
        super().__init__(engine.problem, dict(engine.settings))
        self.engine, self.mesh = engine, mesh
        self._consensus = Consensus()
        self._call = self._lowered(engine)
        self._start = self._lowered(engine.start)
        self._advance = self._lowered(engine.advance)

    @property
    def jit_compiled(self) -> bool:
        """Whether XLA compiles the engine; known after the first call."""
        return self.engine.jit_compiled

    @property
    def afresh(self) -> bool:
        """Whether every hyper-iteration trains from the start."""
        return self.engine.afresh

    @property
    def writes(self) -> bool:
        """Whether this is the process that writes checkpoints and logs; otherwise every process would write them."""
        return chief()

    def agreed(self, own: Signal) -> Signal:
        """The signal of any process."""
        return self._consensus.among_all(own)

    def __call__(self, params: Nest, hypers: Hypers, k: int | tf.Tensor = 0) -> HyperGradient:
        """The hypergradient of training from `params` with `hypers`; k selects the validation batch."""
        first = episodes.params_at(params, 0)
        hypers = errors.checked_hypers(hypers, first)
        hypergradient = self._run(self._call, episodes.carried(params, first), hypers, tf.convert_to_tensor(k, tf.int32))
        self._norms = hypergradient.norms
        return hypergradient

    def start(self, params: Nest, hypers: Hypers) -> Nest:
        """What the first hyper-iteration starts from."""
        first = episodes.params_at(params, 0)
        return self._run(self._start, episodes.carried(params, first), errors.checked_hypers(hypers, first))

    def advance(self, carry: Nest, hypers: Hypers, k: int | tf.Tensor) -> tuple[HyperGradient, Nest]:
        """Hyper-iteration k."""
        hypers = errors.checked_hypers(hypers, episodes.example(carry))
        hypergradient, carry = self._run(self._advance, carry, hypers, tf.convert_to_tensor(k, tf.int32))
        self._norms = hypergradient.norms
        return hypergradient, carry

    def initial_state(self, params: Nest, hypers: Hypers) -> Nest:
        """s_0."""
        return self.engine.initial_state(params, hypers)

    def forget(self, carry: Nest) -> Nest:
        """The same training without memory of earlier hypers."""
        return self.engine.forget(carry)

    def _lowered(self, function: Callable[..., Any]) -> DTensorFunction:
        """A method of the engine as a function of replicated tensors on the mesh."""

        def run(dtypes: tuple[str, ...], told: tf.Tensor, *args: Nest) -> Any:
            leaves = [tf.cast(leaf, dtype) for leaf, dtype in zip(nest.flatten(args), dtypes, strict=True)]
            result = function(*nest.pack(args, leaves))
            return whole((told, result), self.mesh)

        return DTensorFunction(run)

    def _run(self, function: DTensorFunction, *args: Nest) -> Any:
        args = nest.map(tf.convert_to_tensor, args)
        dtypes = tuple(leaf.dtype.name for leaf in nest.flatten(args))
        placed = replicate(nest.map(_widened, args), self.mesh)
        layout = dtensor.Layout.batch_sharded(self.mesh, self.mesh.dim_names[0], 2)
        row = tf.constant(self._consensus.row(args[1:])[None])
        told = dtensor.pack([row] * self.mesh.num_local_devices(), layout)
        with watchdog.together():
            with dtensor.default_mesh(self.mesh):
                returned = function(dtypes, told, *placed)
            rows, result = ordinary(returned)
        self._consensus.receive(rows.numpy())
        return result


def _widened(leaf: tf.Tensor) -> tf.Tensor:
    """A small tensor as float64, which DTensor does not treat as a constant; int32 and float32 survive the conversion."""
    return tf.cast(leaf, tf.float64) if leaf.shape.num_elements() <= SMALL else leaf

"""`--mesh`: experiments whose examples are divided over several processes. Without the flag, these functions do nothing."""

from __future__ import annotations

import functools

from absl import flags
from tensorflow.experimental.dtensor import Mesh

import rfho2 as rf
from rfho2.core.types import Nest

FLAGS = flags.FLAGS


def enabled() -> bool:
    """Whether the binary has the flag, and it was given."""
    return "mesh" in FLAGS and FLAGS.mesh


def writes() -> bool:
    """Whether this process writes the results: on a mesh, only one process does."""
    return not enabled() or rf.distribute.chief()


@functools.cache
def mesh() -> Mesh:
    """The mesh of all processes."""
    return rf.distribute.mesh()


def divided(examples: Nest) -> Nest:
    """The examples, of which each process holds its share."""
    return rf.distribute.shard(examples, mesh()) if enabled() else examples


def on_mesh(engine: rf.Engine) -> rf.Engine:
    """The engine, for examples that are divided."""
    return rf.distribute.on_mesh(engine, mesh()) if enabled() else engine

"""`--mesh`: an experiment whose examples are divided over processes. Without the flag nothing of this does anything."""

from __future__ import annotations

import functools

from absl import flags
from tensorflow.experimental.dtensor import Mesh

import rfho2 as rf
from rfho2.core.types import Nest

FLAGS = flags.FLAGS


def define_flag() -> None:
    """Of binaries that can divide their examples."""
    flags.DEFINE_bool("mesh", False, "Divide the examples over the processes that DTENSOR_JOBS lists: docs/distribute.md.")


def asked() -> bool:
    """Whether the flag was given, to a binary that has it."""
    return "mesh" in FLAGS and FLAGS.mesh


def writes() -> bool:
    """Whether this process writes results: of those on a mesh one does."""
    return not asked() or rf.distribute.chief()


@functools.cache
def mesh() -> Mesh:
    """All processes."""
    return rf.distribute.mesh()


def divided(examples: Nest) -> Nest:
    """The examples, of which each process has its part."""
    return rf.distribute.shard(examples, mesh()) if asked() else examples


def on_mesh(engine: rf.Engine) -> rf.Engine:
    """The engine, for examples that are divided."""
    return rf.distribute.on_mesh(engine, mesh()) if asked() else engine

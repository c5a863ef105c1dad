"""Where tensors lie on a mesh of devices, here and in other processes, and the way back to ordinary ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from rfho2.core import errors, nest
from rfho2.core.types import Batches, Nest
from rfho2.distribute import dtensor_function as lowered
from rfho2.distribute import watchdog

BATCH = "batch"  # the dimension of a mesh that examples are divided over


def mesh(**dimensions: int) -> dtensor.Mesh:
    """The devices of all processes, laid out along named dimensions; without any, all of them along `batch`.

    >>> mesh(batch=1).dim_names
    ['batch']
    """
    device = dtensor.preferred_device_type()
    devices = dtensor.num_global_devices(device)
    dimensions = dimensions or {BATCH: devices}
    for name, size in dimensions.items():
        errors.check_count(name, size)
    if math.prod(dimensions.values()) != devices:
        raise ValueError(
            f"mesh: {dimensions} asks for {math.prod(dimensions.values())} devices, but the {dtensor.num_clients()} "
            f"processes have {devices} in all; start as many processes, or give rf.distribute.initialize(devices=...)."
        )
    create = dtensor.create_mesh if dtensor.num_clients() == 1 else dtensor.create_distributed_mesh
    return create(list(dimensions.items()), device_type=device)


def shard(data: Nest, on: dtensor.Mesh, dimension: str = BATCH) -> Nest:
    """Cuts every leaf along its first axis: each device keeps its own examples only.

    Every process passes the same whole data. What is sharded goes into `rf.batches.full` or `rf.fixed_product`; minibatches
    are cut by `split`.

    Args:
      data: nest of arrays or ordinary tensors; their first axis has to be a multiple of the dimension's size.
      on: the mesh.
      dimension: of the mesh.
    """
    lowered.drop()  # what the caller does with it next may be an op of its own on DTensors
    parts = on.dim_size(dimension)

    def cut(path: str, leaf: Any) -> tf.Tensor:
        array = np.asarray(leaf)
        if not array.ndim or array.shape[0] % parts:
            raise ValueError(
                f"data leaf '{path}' has shape {list(array.shape)}, which cannot be cut into {parts} equal parts along "
                f"the first axis; leave out {array.shape[0] % parts if array.ndim else 'it'}, or use another mesh."
            )
        size = array.shape[0] // parts
        places = [location[dimension] * size for location in on.local_device_locations()]
        return dtensor.pack(
            [tf.constant(array[at : at + size]) for at in places], dtensor.Layout.batch_sharded(on, dimension, array.ndim)
        )

    return nest.pack(data, [cut(path, leaf) for path, leaf in nest.leaves_with_path(data)])


def replicate(data: Nest, on: dtensor.Mesh) -> Nest:
    """Every leaf whole on every device; all processes pass the same."""

    def copy(leaf: Any) -> tf.Tensor:
        leaf = tf.convert_to_tensor(leaf)
        return dtensor.pack([leaf] * on.num_local_devices(), dtensor.Layout.replicated(on, leaf.shape.rank))

    return nest.map(copy, data)


def split(batches: Batches, on: dtensor.Mesh, dimension: str = BATCH) -> Batches:
    """Minibatches, each cut along its first axis; what they come from has to be replicated.

    Every process computes which examples are in a batch, and takes its own of them:
    `split(rf.batches.shuffled(replicate(data, mesh), 100, seed), mesh)`.
    """

    def cut(leaf: tf.Tensor) -> tf.Tensor:
        return dtensor.relayout(leaf, dtensor.Layout.batch_sharded(on, dimension, leaf.shape.rank))

    return lambda index: nest.map(cut, batches(index))


def whole(data: Nest, on: dtensor.Mesh) -> Nest:
    """Inside a graph: every leaf whole on every device, what is cut put together."""
    return nest.map(lambda leaf: dtensor.relayout(leaf, dtensor.Layout.replicated(on, leaf.shape.rank)), data)


def ordinary(data: Nest) -> Nest:
    """Leaves that are whole on every device, as ordinary tensors of this process; waits until they are computed."""

    def first(leaf: tf.Tensor) -> tf.Tensor:
        layout = dtensor.fetch_layout(leaf)
        if not layout.is_fully_replicated():
            raise ValueError(f"data has the layout {layout.sharding_specs}; only replicated tensors are whole here.")
        # By way of NumPy, to wait: two functions with collectives under way at the same time can deadlock.
        return tf.constant(dtensor.unpack(leaf)[0].numpy())

    return nest.map(first, data)


def gather(own: Any, on: dtensor.Mesh, dimension: str = BATCH) -> np.ndarray:
    """What each process has, one after the other along the first axis; as much from each of them."""
    lowered.drop()
    each = np.split(np.asarray(own), on.num_local_devices())
    cut = dtensor.pack([tf.constant(part) for part in each], dtensor.Layout.batch_sharded(on, dimension, each[0].ndim))
    together = tf.function(lambda rows: whole(rows, on), autograph=False)
    with watchdog.together():
        return ordinary(together(cut)).numpy()

"""Placement of tensors on a mesh of devices, in one or several processes, and conversion back to ordinary tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from rfho2.batches import of_episodes
from rfho2.core import dtensors, errors, nest
from rfho2.core.types import Batches, Nest
from rfho2.distribute import watchdog

BATCH = "batch"  # the mesh dimension along which examples are divided


def mesh(**dimensions: int) -> dtensor.Mesh:
    """The devices of all processes, along named dimensions; by default all of them along `batch`.

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
            f"mesh: {dimensions} needs {math.prod(dimensions.values())} devices, but the {dtensor.num_clients()} "
            f"processes have {devices} in total; start more processes, or call rf.distribute.initialize(devices=...)."
        )
    create = dtensor.create_mesh if dtensor.num_clients() == 1 else dtensor.create_distributed_mesh
    return create(list(dimensions.items()), device_type=device)


def shard(data: Nest, on: dtensor.Mesh, dimension: str = BATCH) -> Nest:
    """Shards every leaf along its first axis: each device keeps only its own examples.

    Every process passes the same complete data. Sharded data can be passed to `rf.batches.full` or `rf.fixed_product`; for
    minibatches use `split`.

    Args:
      data: nest of arrays or ordinary tensors; the size of their first axis has to be a multiple of the dimension's size.
      on: the mesh.
      dimension: the mesh dimension to shard over.
    """
    dtensors.drop()  # the caller may run its own ops on the DTensors next
    parts = on.dim_size(dimension)

    def cut(path: str, leaf: Any) -> tf.Tensor:
        array = np.asarray(leaf)
        if not array.ndim or array.shape[0] % parts:
            raise ValueError(
                f"data leaf '{path}' has shape {list(array.shape)}, which cannot be divided into {parts} equal parts along "
                f"the first axis; leave out {array.shape[0] % parts if array.ndim else 'it'}, or use another mesh."
            )
        size = array.shape[0] // parts
        places = [location[dimension] * size for location in on.local_device_locations()]
        cuts = [tf.constant(array[at : at + size]) for at in places]
        return dtensor.pack(cuts, dtensor.Layout.batch_sharded(on, dimension, array.ndim))

    return nest.pack(data, [cut(path, leaf) for path, leaf in nest.leaves_with_path(data)])


def replicate(data: Nest, on: dtensor.Mesh) -> Nest:
    """Every leaf complete on every device; all processes pass the same data."""

    def copy(leaf: Any) -> tf.Tensor:
        leaf = tf.convert_to_tensor(leaf)
        return dtensor.pack([leaf] * on.num_local_devices(), dtensor.Layout.replicated(on, leaf.shape.rank))

    return nest.map(copy, data)


def split(batches: Batches, on: dtensor.Mesh, dimension: str = BATCH) -> Batches:
    """Minibatches, each sharded along its first axis; the data they come from has to be replicated.

    Every process computes which examples are in a batch, and keeps its share:
    `split(rf.batches.shuffled(replicate(data, mesh), 100, seed), mesh)`.
    """

    def cut(leaf: tf.Tensor) -> tf.Tensor:
        return dtensor.relayout(leaf, dtensor.Layout.batch_sharded(on, dimension, leaf.shape.rank))

    if of_episodes(batches):
        return lambda index, k: nest.map(cut, batches(index, k))
    return lambda index: nest.map(cut, batches(index))


def whole(data: Nest, on: dtensor.Mesh) -> Nest:
    """Inside a graph: gathers every leaf, so that it is complete on every device."""
    return nest.map(lambda leaf: dtensor.relayout(leaf, dtensor.Layout.replicated(on, leaf.shape.rank)), data)


def ordinary(data: Nest) -> Nest:
    """Replicated leaves as ordinary tensors of this process; waits until they have been computed."""

    def first(leaf: tf.Tensor) -> tf.Tensor:
        layout = dtensor.fetch_layout(leaf)
        if not layout.is_fully_replicated():
            raise ValueError(f"data has the layout {layout.sharding_specs}; only replicated tensors can be converted.")
        # Conversion to NumPy waits: two functions with collectives that run at the same time can deadlock.
        return tf.constant(dtensor.unpack(leaf)[0].numpy())

    return nest.map(first, data)


def gather(own: Any, on: dtensor.Mesh, dimension: str = BATCH) -> np.ndarray:
    """Concatenates along the first axis what each process holds; all of them contribute the same number of rows."""
    dtensors.drop()
    each = np.split(np.asarray(own), on.num_local_devices())
    cut = dtensor.pack([tf.constant(part) for part in each], dtensor.Layout.batch_sharded(on, dimension, each[0].ndim))
    together = tf.function(lambda rows: whole(rows, on), autograph=False)
    with watchdog.together():
        return ordinary(together(cut)).numpy()

"""Arithmetic on nests of tensors: the vector-space operations that the algorithms need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from rfho2.core.types import Nest

map = tf.nest.map_structure
flatten = tf.nest.flatten
pack = tf.nest.pack_sequence_as


def map_once(function: Callable[..., Any], *nests: Nest) -> Nest:
    """Like `map`, but evaluates the function once for identical leaves, such as those that `broadcast_prefix` makes."""
    results: dict[tuple[int, ...], Any] = {}

    def remembered(*leaves: Any) -> Any:
        key = tuple(id(leaf) for leaf in leaves)
        if key not in results:
            results[key] = function(*leaves)
        return results[key]

    return map(remembered, *nests)


def add(a: Nest, b: Nest) -> Nest:
    """a + b, leaf by leaf."""
    return map(tf.add, a, b)


def zeros_like(nest: Nest) -> Nest:
    """The zero of the space of `nest`."""
    return map(tf.zeros_like, nest)


def dense(nest: Nest) -> Nest:
    """Converts the sparse gradients of lookups (`tf.IndexedSlices`) to tensors."""
    leaves = flatten(nest, expand_composites=False)
    return pack(nest, [tf.convert_to_tensor(leaf) for leaf in leaves])


def dot(a: Nest, b: Nest) -> tf.Tensor:
    """The inner product."""
    return tf.add_n([tf.reduce_sum(x * y) for x, y in zip(flatten(a), flatten(b), strict=True)])


def norm(a: Nest) -> tf.Tensor:
    """The Euclidean norm over all entries.

    >>> norm([tf.constant([3.0]), tf.constant(4.0)]).numpy().item()
    5.0
    """
    return tf.sqrt(dot(a, a))


def dots(columns: Nest, vector: Nest) -> tf.Tensor:
    """Z^T a: the inner product of every column of `columns` (leading axis) with `vector`.

    >>> dots(tf.eye(2), tf.constant([3.0, 4.0])).numpy().tolist()
    [3.0, 4.0]
    """
    pairs = zip(flatten(columns), flatten(vector), strict=True)
    return tf.add_n([tf.linalg.matvec(tf.reshape(z, [z.shape[0], -1]), tf.reshape(a, [-1])) for z, a in pairs])


def signature(nest: Nest) -> list[tuple[str, tuple[int | None, ...], str]]:
    """(path, shape, dtype) of every leaf: what may not change from step to step."""
    return [(path, tuple(leaf.shape), leaf.dtype.name) for path, leaf in leaves_with_path(nest)]


def leaves_with_path(nest: Nest, path: str = "") -> list[tuple[str, Any]]:
    """The leaves in `flatten` order, each with a readable path such as `params/kernel`."""
    if hasattr(nest, "_fields"):
        items = [(field, getattr(nest, field)) for field in nest._fields]
    elif isinstance(nest, Mapping):
        items = [(str(key), nest[key]) for key in sorted(nest)]
    elif isinstance(nest, list | tuple):
        items = [(str(i), value) for i, value in enumerate(nest)]
    else:
        return [(path or ".", nest)]
    prefix = path + "/" if path else ""
    return [pair for name, value in items for pair in leaves_with_path(value, prefix + name)]


def broadcast_prefix(prefix: Nest, nest: Nest) -> Nest:
    """Copies each leaf of `prefix` to every leaf of `nest` below it.

    >>> broadcast_prefix({"a": 1.0, "b": 2.0}, {"a": [0.0, 0.0], "b": 0.0})
    {'a': [1.0, 1.0], 'b': 2.0}
    """
    if not tf.nest.is_nested(prefix):
        return map(lambda _: prefix, nest)
    if isinstance(prefix, Mapping):
        return {key: broadcast_prefix(prefix[key], nest[key]) for key in nest}
    children = [broadcast_prefix(p, n) for p, n in zip(prefix, nest, strict=True)]
    return type(nest)(*children) if hasattr(nest, "_fields") else type(nest)(children)

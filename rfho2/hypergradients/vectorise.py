"""Functions vectorised over episodes, with derivatives that are vectorised too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Hypers, Nest

unconverted = tf.autograph.experimental.do_not_convert  # otherwise vectorized_map would rewrite the user's functions
UNSUITED = ("While", "If", "Case", "Random", "Call")  # parts of the names of ops that do not vectorise, or badly
UNROLLED = 8  # episodes: up to this number such functions are called one by one instead of in a loop, which is slower


class Stacked(NamedTuple):
    """The batches or the params of all episodes, along a new first axis of each leaf."""

    each: Nest


def stack(source: Callable[[tf.Tensor], Nest], k: tf.Tensor, n: int) -> Nest:
    """The values of `source` at episodes k n, ..., k n + n - 1, stacked; a single one if it is the same for all episodes."""
    episodes = k * n + tf.range(n)
    traced = tf.function(source, autograph=False).get_concrete_function(tf.TensorSpec([], tf.int32))
    if not _depends(traced):
        return source(episodes[0])

    @unconverted
    def flat(episode: tf.Tensor) -> list[tf.Tensor]:
        return [tf.identity(leaf) for leaf in _tensors(source(episode))]  # also of tensors from outside the graph

    if not any(part in op.type for op in traced.graph.get_operations() for part in UNSUITED):
        rows = tf.vectorized_map(flat, episodes, warn=False)
    elif n <= UNROLLED:
        rows = [tf.stack(leaves) for leaves in zip(*map(flat, tf.unstack(episodes)), strict=True)]
    else:
        spec = [tf.TensorSpec(leaf.shape, leaf.dtype) for leaf in _tensors(traced.structured_outputs)]
        rows = tf.map_fn(flat, episodes, fn_output_signature=spec)
    return Stacked(_filled(traced.structured_outputs, rows))


def vectorised(function: Callable[..., Nest], own: tuple[Nest, ...], hypers: Hypers, batch: Nest) -> Nest:
    """function(*own, hypers, batch) of every episode, along a new first axis of each leaf.

    The derivative is not left to a tape around the map, because `tf.vectorized_map` forgets the custom gradients of what it
    maps. It is a map of its own, with a tape for each episode.

    Args:
      function: of one episode.
      own: what each episode has for itself, stacked.
      hypers: shared by all episodes.
      batch: `Stacked`, or shared by all episodes and not differentiated.
    """
    stacked = isinstance(batch, Stacked)
    inputs = (own, batch.each if stacked else ())

    def single(leaves: list[tf.Tensor], hypers: Hypers) -> list[tf.Tensor]:
        mine, examples = _filled(inputs, leaves)
        result = function(*mine, hypers, examples if stacked else batch)
        structure.append(result)
        return [tf.identity(leaf) for leaf in _tensors(result)]

    structure: list[Nest] = []
    results = _mapped(single, _tensors(inputs), dict(hypers))
    return nest.pack(structure[0], results)


def _mapped(
    single: Callable[[list[tf.Tensor], Hypers], list[tf.Tensor]], own: list[tf.Tensor], hypers: dict[str, tf.Tensor]
) -> list[tf.Tensor]:
    """single(own[i], hypers) for all i; differentiable with respect to `own` and `hypers`."""

    @tf.custom_gradient
    def mapped(*leaves: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[tf.Tensor | None]]]:
        own, values = list(leaves[: len(leaves) - len(hypers)]), leaves[len(leaves) - len(hypers) :]
        shared = dict(zip(hypers, values, strict=True))

        def pull_back(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
            return _pulled_back(single, own, shared, list(upstream))

        return tf.vectorized_map(unconverted(lambda mine: single(mine, shared)), own, warn=False), pull_back

    results = mapped(*own, *hypers.values())
    return list(results) if isinstance(results, list | tuple) else [results]


def _pulled_back(
    single: Callable[..., list[tf.Tensor]], own: list[tf.Tensor], shared: dict[str, tf.Tensor], upstream: list[tf.Tensor]
) -> list[tf.Tensor | None]:
    """The derivatives of sum upstream . single(own, shared); None where there is none."""
    floating = [i for i, leaf in enumerate(own) if leaf.dtype.is_floating]
    connected: list[bool] = []

    @unconverted
    def pull_one(pair: tuple[list[tf.Tensor], list[tf.Tensor]]) -> list[tf.Tensor]:
        mine, up = pair
        sources = [*(mine[i] for i in floating), *shared.values()]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            results = single(mine, shared)
        derivatives = tape.gradient(results, sources, up)
        connected[:] = [derivative is not None for derivative in derivatives]
        return [tf.convert_to_tensor(derivative) for derivative in derivatives if derivative is not None]

    rows = iter(tf.vectorized_map(pull_one, (own, upstream), warn=False))
    derivatives = [next(rows) if is_connected else None for is_connected in connected]
    by_own = dict(zip(floating, derivatives, strict=False))
    by_shared = [None if row is None else tf.reduce_sum(row, axis=0) for row in derivatives[len(floating) :]]
    return [*(by_own.get(i) for i in range(len(own))), *by_shared]


def _depends(traced: Any) -> bool:
    """Whether an output of a traced function of one argument depends on it."""
    waiting, seen = [tensor.op for tensor in traced.outputs], set()
    while waiting:
        op = waiting.pop()
        if op.name not in seen:
            seen.add(op.name)
            waiting += [tensor.op for tensor in op.inputs]
    return traced.inputs[0].op.name in seen


def _tensors(structure: Nest) -> list[Any]:
    """The leaves that are not None."""
    return [leaf for leaf in nest.flatten(structure) if leaf is not None]


def _filled(structure: Nest, leaves: list[tf.Tensor]) -> Nest:
    """The structure with these leaves in the place of those that are not None."""
    rest = iter(leaves)
    return nest.map(lambda leaf: None if leaf is None else next(rest), structure)

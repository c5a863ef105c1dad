"""Functions vectorised over episodes, with derivatives that are vectorised too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.core import graphs, nest
from rfho2.core.types import Hypers, Nest

unconverted = tf.autograph.experimental.do_not_convert  # otherwise vectorized_map would rewrite the user's functions
UNSUITED = ("While", "If", "Case", "Random", "Call")  # parts of the names of ops that vectorise badly or not at all
UNROLLED = 8  # episodes: up to this number such functions are called one by one instead of in a loop, which is slower


class Stacked(NamedTuple):
    """The batches or the params of all episodes, along a new first axis of each leaf."""

    each: Nest


def stack(source: Callable[[tf.Tensor], Nest], k: tf.Tensor, n: int) -> Nest:
    """The values of `source` at episodes k n, ..., k n + n - 1, stacked; a single one if it is the same for all episodes."""
    episodes = k * n + tf.range(n)
    traced = graphs.of_index(source)
    if not graphs.depends(traced):
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


def vectorised(function: Callable[..., Nest], per_episode: tuple[Nest, ...], hypers: Hypers, batch: Nest) -> Nest:
    """function(*per_episode, hypers, batch) of every episode, along a new first axis of each leaf.

    A tape around the map cannot compute the derivative, because `tf.vectorized_map` loses the custom gradients of what it
    maps. A second map computes it, with a tape for each episode.

    Args:
      function: of one episode.
      per_episode: the arguments that differ between episodes, stacked.
      hypers: shared by all episodes.
      batch: `Stacked`, or shared by all episodes; not differentiated.
    """
    structure: list[Nest] = []

    def single(leaves: list[tf.Tensor], hypers: Hypers, examples: list[tf.Tensor]) -> list[tf.Tensor]:
        episode_batch = _filled(batch.each, examples) if isinstance(batch, Stacked) else batch
        structure.append(function(*nest.pack(per_episode, leaves), hypers, episode_batch))
        return [tf.identity(leaf) for leaf in nest.flatten(structure[-1])]

    examples = _tensors(batch.each) if isinstance(batch, Stacked) else []
    results = _mapped(single, nest.flatten(per_episode), dict(hypers), examples)
    return nest.pack(structure[0], results)


Single = Callable[[list[tf.Tensor], Hypers, list[tf.Tensor]], list[tf.Tensor]]
"""(per_episode, hypers, examples) of one episode -> results."""


def _mapped(single: Single, per_episode: list[tf.Tensor], hypers: Hypers, examples: list[tf.Tensor]) -> list[tf.Tensor]:
    """single(per_episode[i], hypers, examples[i]) for all i; differentiable with respect to `per_episode` and `hypers`."""

    @tf.custom_gradient
    def mapped(*leaves: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[tf.Tensor | None]]]:
        stacked, shared = list(leaves[: len(per_episode)]), dict(zip(hypers, leaves[len(per_episode) :], strict=True))

        def pull_back(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
            return _pulled_back(single, stacked, shared, examples, list(upstream))

        forward = unconverted(lambda pair: single(pair[0], shared, pair[1]))
        return tf.vectorized_map(forward, (stacked, examples), warn=False), pull_back

    results = mapped(*per_episode, *hypers.values())
    return list(results) if isinstance(results, list | tuple) else [results]


def _pulled_back(
    single: Single, per_episode: list[tf.Tensor], shared: Hypers, examples: list[tf.Tensor], upstream: list[tf.Tensor]
) -> list[tf.Tensor | None]:
    """The derivatives of sum upstream . single(per_episode, shared, examples) with respect to `per_episode` and `shared`.

    A derivative is None where there is no connection.
    """
    connected: list[bool] = []

    @unconverted
    def pull_one(parts: tuple[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]) -> list[tf.Tensor]:
        sources = [*parts[0], *shared.values()]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            results = single(parts[0], shared, parts[1])
        derivatives = tape.gradient(results, sources, parts[2])
        connected[:] = [derivative is not None for derivative in derivatives]
        return [tf.convert_to_tensor(derivative) for derivative in derivatives if derivative is not None]

    rows = iter(tf.vectorized_map(pull_one, (per_episode, examples, upstream), warn=False))
    derivatives = [next(rows) if is_connected else None for is_connected in connected]
    of_all = [None if row is None else tf.reduce_sum(row, axis=0) for row in derivatives[len(per_episode) :]]
    return [*derivatives[: len(per_episode)], *of_all]


def _tensors(structure: Nest) -> list[Any]:
    """The leaves that are not None."""
    return [leaf for leaf in nest.flatten(structure) if leaf is not None]


def _filled(structure: Nest, leaves: list[tf.Tensor]) -> Nest:
    """The structure with these leaves in place of those that are not None."""
    remaining = iter(leaves)
    return nest.map(lambda leaf: None if leaf is None else next(remaining), structure)

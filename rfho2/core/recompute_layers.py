"""A loop over equal layers: its derivatives of any order keep the inputs of the layers, and no activation inside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rfho2.core import loops, nest
from rfho2.core.compiled import graph_function
from rfho2.core.recompute import ZERO, check_closed
from rfho2.core.types import Nest

Layer = Callable[[Nest, Nest], Nest]
"""(params of a layer, x) -> x."""


def recompute_layers(block: Layer) -> Layer:
    """A network of n equal layers as one loop, of whose activations a derivative keeps the inputs of the layers.

    x_{i+1} = f(w_i, x_i), i = 0, ..., n - 1. The pull-back a_i = a_{i+1} df/dx, g_i = a_{i+1} df/dw computes f again. Its
    own derivative along (c_i, v_0) is the pull-back of the layers (w_i, c_i), (x, v) -> (f, df/dw c_i + df/dx v), and so on
    for every order.

    It takes as long as n calls of `rf.recompute(block)`, but is traced and compiled as a single layer.

    Args:
      block: (params, x) -> a nest with the structure, shapes and dtypes of x, which are floating; a pure function. Other
        tensors that it uses have to be constants. What all layers share can be a part of x.

    Returns:
      (params, x) -> the x after the last layer; the first axis of every leaf of the params is that of the layers.

    >>> layers = recompute_layers(lambda w, x: tf.tanh(w * x))
    >>> round(float(layers(tf.constant([0.5, 2.0]), tf.constant(1.0))), 4)  # tanh(2 tanh(0.5))
    0.7279
    """
    closed = graph_function(lambda w, x: block(w, x))

    def layers(params: Nest, x: Nest) -> Nest:
        params, x = nest.map(tf.convert_to_tensor, (params, x))
        count = _count(params)
        _check(closed, _at(params, 0), x)
        return _run(block, count, params, x)

    return layers


def _count(params: Nest) -> int:
    """The number of layers."""
    counts = {leaf.shape[0] if leaf.shape.rank else None for leaf in nest.flatten(params)}
    if len(counts) != 1 or None in counts or counts == {0}:
        shapes = {path: tuple(leaf.shape) for path, leaf in nest.leaves_with_path(params)}
        raise ValueError(
            f"recompute_layers: the params have the shapes {shapes}; the first axis of each has to be that of the layers. "
            f"Use tf.stack for params that are separate for each layer."
        )
    count = counts.pop()
    assert count is not None
    return count


def _check(closed: Any, w: Nest, x: Nest) -> None:
    """Rejects a block that is not closed, or that changes the structure of x."""
    outputs = check_closed("recompute_layers", closed, w, x).structured_outputs
    if nest.signature(outputs) != nest.signature(x) or any(not leaf.dtype.is_floating for leaf in nest.flatten(x)):
        raise ValueError(
            f"recompute_layers: the block makes {nest.signature(outputs)} from {nest.signature(x)}; both have to be "
            f"floating tensors of the same shapes, because the next layer continues from them."
        )


def _at(params: Nest, i: int | tf.Tensor) -> Nest:
    """The params of layer i."""
    return nest.map(lambda leaf: tf.gather(leaf, i), params)


def _floating(params: Nest) -> list[tf.Tensor]:
    return [leaf for leaf in nest.flatten(params) if leaf.dtype.is_floating]


def _replaced(params: Nest, floating: list[tf.Tensor]) -> Nest:
    """The params with other floating leaves."""
    new = iter(floating)
    return nest.map(lambda leaf: next(new) if leaf.dtype.is_floating else leaf, params)


def _run(block: Layer, count: int, params: Nest, x: Nest) -> Nest:
    """The last x; its gradient is `_pulled`."""
    weights, inputs = _floating(params), nest.flatten(x)

    @tf.custom_gradient
    def last(*leaves: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        w, start = _replaced(params, list(leaves[: len(weights)])), nest.pack(x, leaves[len(weights) :])
        # The number of layers is a tensor, because loops take several steps of known number together on a GPU.
        trajectory, end = loops.record(lambda x, i: block(_at(w, i), x), start, 0, tf.constant(count), count)
        return nest.flatten(end), lambda *adjoint: _pulled(block, count, trajectory, w, start, list(adjoint))

    result = last(*weights, *inputs)
    return nest.pack(x, result if isinstance(result, list | tuple) else [result])


def _pulled(
    block: Layer, count: int, trajectory: loops.Trajectory, params: Nest, x: Nest, adjoint: list[tf.Tensor]
) -> list[tf.Tensor]:
    """The gradients of sum(adjoint * last x) with respect to the floating leaves of the params and of the first x."""
    weights, inputs = _floating(params), nest.flatten(x)

    @tf.custom_gradient
    def gradients(*leaves: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        w = _replaced(params, list(leaves[: len(weights)]))
        start, a = nest.pack(x, leaves[len(weights) : -len(inputs)]), list(leaves[-len(inputs) :])
        example = _floating(_at(w, 0))

        def back(carry: Nest, x: Nest, i: tf.Tensor) -> Nest:
            a, slots = carry
            w_i = _at(w, i)
            with tf.GradientTape() as tape:
                tape.watch((w_i, x))
                y = nest.flatten(block(w_i, x))
            g, a = nest.dense(tape.gradient(y, (_floating(w_i), nest.flatten(x)), a, unconnected_gradients=ZERO))
            return a, loops.write_slot(slots, i, g)

        carry = a, loops.slots_for(example, count)
        first, slots = loops.fold_back(back, carry, trajectory, 0, tf.constant(count))

        def second(*along: tf.Tensor) -> list[tf.Tensor]:
            c, v = list(along[: len(weights)]), nest.pack(x, along[len(weights) :])
            with tf.GradientTape() as tape:
                tape.watch((w, start))
                _, pushed = _run(_with_push(block), count, (w, c), (start, v))
            of_both = tape.gradient(pushed, (_floating(w), nest.flatten(start)), nest.pack(x, a), unconnected_gradients=ZERO)
            return [*nest.flatten(of_both), *nest.flatten(pushed)]

        return [*loops.stack_slots(slots, example), *first], second

    return list(gradients(*weights, *inputs, *adjoint))


def _with_push(block: Layer) -> Layer:
    """((w, c), (x, v)) -> (f, df/dw c + df/dx v), by the transposed pull-back."""

    def both(params: Nest, inputs: Nest) -> Nest:
        (w, c), (x, v) = params, inputs
        with tf.GradientTape() as transposing:
            with tf.GradientTape() as tape:
                tape.watch((w, x))
                y = block(w, x)
            upstream = nest.zeros_like(y)
            transposing.watch(upstream)
            pulled = tape.gradient(y, (_floating(w), nest.flatten(x)), upstream, unconnected_gradients=ZERO)
            pulled = nest.dense(pulled)
        along = c, nest.flatten(v)
        return y, nest.dense(transposing.gradient(pulled, upstream, along, unconnected_gradients=ZERO))

    return both

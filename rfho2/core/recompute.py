"""Recomputes a part of a loss wherever a derivative needs it, to any order, so that no activation inside it is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.compiled import graph_function
from rfho2.core.types import Nest

ZERO = tf.UnconnectedGradients.ZERO


def recompute(block: Callable[..., Nest]) -> Callable[..., Nest]:
    """The same function, of whose activations no derivative keeps more than the arguments.

    y = f(w, x). The pull-back (w, x, u) -> u f'(w, x) computes f again, and so does the derivative of the pull-back, which a
    hypergradient needs. A loss that is a chain of n such blocks keeps n arguments and the activations of one block, and
    takes about a third more time. `tf.recompute_grad` has first derivatives only.

    All calls with arguments of the same shapes share one trace, so that a network of equal blocks is also traced faster.

    Args:
      block: (params, inputs, ...) -> outputs, nests of tensors; a pure function of its arguments. Other tensors that it uses
        have to be constants: variables, and what depends on arguments of an outer function, are refused.

    >>> layer = recompute(lambda w, x: tf.tanh(w * x))
    >>> with tf.GradientTape() as outer, tf.GradientTape() as tape:
    ...     w = tf.constant(0.5)
    ...     outer.watch(w)
    ...     tape.watch(w)
    ...     y = layer(w, layer(w, tf.constant(1.0)))
    ...     slope = tape.gradient(y, w)
    >>> round(float(outer.gradient(slope, w)), 4)
    0.832
    """
    functions = _Functions(block)

    def recomputed(*arguments: Nest) -> Nest:
        arguments = nest.map(lambda x: tf.convert_to_tensor(x) if isinstance(x, tf.Variable | np.ndarray) else x, arguments)
        leaves = nest.flatten(arguments)
        places = [i for i, leaf in enumerate(leaves) if tf.is_tensor(leaf) and leaf.dtype.is_floating]
        return _call(functions, arguments, leaves, places)

    return recomputed


class _Functions:
    """The block, its pull-back, and the pull-back of that; each is traced once for arguments of the same shapes."""

    def __init__(self, block: Callable[..., Nest]):
        self.block = block
        self.value = graph_function(lambda arguments: block(*arguments))
        self.pull_back = graph_function(self._pull_back)
        self.second = graph_function(self._second)

    def _pull_back(self, arguments: tuple[Nest, ...], upstream: list[tf.Tensor]) -> list[tf.Tensor]:
        """The gradients of sum(upstream * outputs) with respect to the floating-point leaves of the arguments."""
        return self._pulled(_after(arguments, upstream), upstream)

    def _pulled(self, arguments: tuple[Nest, ...], upstream: list[tf.Tensor]) -> list[tf.Tensor]:
        watched = _floating(arguments)
        with tf.GradientTape() as tape:
            tape.watch(watched)
            outputs = _floating(self.block(*arguments))
        return nest.dense(tape.gradient(outputs, watched, upstream, unconnected_gradients=ZERO))

    def _second(
        self, arguments: tuple[Nest, ...], upstream: list[tf.Tensor], cotangents: list[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """The gradients of sum(cotangents * pull_back) with respect to the leaves of the arguments, and to upstream."""
        arguments = _after(arguments, cotangents)
        watched = _floating(arguments)
        with tf.GradientTape() as tape:
            tape.watch((watched, upstream))
            pulled = self._pulled(arguments, upstream)
        return nest.dense(tape.gradient(pulled, (watched, upstream), cotangents, unconnected_gradients=ZERO))


def check_closed(name: str, function: Any, *arguments: Nest) -> Any:
    """The trace of a block; rejects one that uses tensors which are not its arguments and may depend on what is tuned."""
    concrete = function.get_concrete_function(*arguments)
    outside = [t for t in concrete.captured_inputs if t.dtype == tf.resource or tf.is_symbolic_tensor(t)]
    if outside:
        kind = "a variable" if outside[0].dtype == tf.resource else f"a tensor of shape {outside[0].shape}"
        raise ValueError(
            f"{name}: the block uses {kind} that is not one of its arguments, so that its derivative would be lost. "
            f"Pass everything that is not a constant as an argument."
        )
    return concrete


def _call(functions: _Functions, arguments: tuple[Nest, ...], leaves: list[Any], places: list[int]) -> Nest:
    def packed(changed: tuple[tf.Tensor, ...]) -> tuple[Nest, ...]:
        new = list(leaves)
        for place, leaf in zip(places, changed, strict=True):
            new[place] = leaf
        return nest.pack(arguments, new)

    check_closed("recompute", functions.value, arguments)
    structure: list[Nest] = []

    @tf.custom_gradient
    def value(*watched: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        outputs = functions.value(packed(watched))
        structure.append(outputs)
        flat = nest.flatten(outputs)
        real = [i for i, output in enumerate(flat) if output.dtype.is_floating]

        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
            return pull_back(*watched, *(upstream[i] for i in real))

        return flat, gradient

    @tf.custom_gradient
    def pull_back(*both: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        watched, upstream = both[: len(places)], both[len(places) :]
        pulled = functions.pull_back(packed(watched), list(upstream))

        def gradient(*cotangents: tf.Tensor) -> list[tf.Tensor]:
            of_watched, of_upstream = functions.second(packed(watched), list(upstream), list(cotangents))
            return [*of_watched, *of_upstream]

        return pulled, gradient

    flat = value(*(leaves[place] for place in places))
    return nest.pack(structure[-1], flat if isinstance(flat, list | tuple) else [flat])


def _floating(nested: Nest) -> list[tf.Tensor]:
    return [leaf for leaf in nest.flatten(nested) if tf.is_tensor(leaf) and leaf.dtype.is_floating]


def _after(arguments: tuple[Nest, ...], tensors: list[tf.Tensor]) -> tuple[Nest, ...]:
    """The arguments, but not before the tensors are there: otherwise compilers would find that they had f(w, x) already.

    They keep an order only between an operation and its inputs; so 0, as computed from the tensors, is added to the inputs.
    Only they are changed, not the params, where there are both: everything that is worth computing again depends on inputs.
    """
    first = tf.reshape(tensors[0], [-1])[:1]
    nothing = tf.reduce_sum(tf.where(first == first, tf.zeros_like(first), first))

    def delayed(leaf: Any) -> Any:
        return leaf + tf.cast(nothing, leaf.dtype) if tf.is_tensor(leaf) and leaf.dtype.is_floating else leaf

    if _floating(arguments[1:]):
        return (arguments[0], *nest.map(delayed, arguments[1:]))
    return nest.map(delayed, arguments)

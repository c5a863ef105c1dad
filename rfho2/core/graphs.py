"""Inspects traced functions: their ops, including those inside loops and branches, and which depend on an input."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Nest

CONTROL_FLOW = {"If", "StatelessIf", "Case", "StatelessCase", "While", "StatelessWhile"}


class Op(NamedTuple):
    """An op of a traced function.

    Attributes:
      kind: its type, such as "StopGradient".
      name: its name, which begins with the names of the layers that contain it.
      reached: whether it depends on the inputs that were followed. Inside a loop or a branch every op counts as dependent if
        the loop does.
      dtypes: of its outputs; empty inside a loop or a branch.
    """

    kind: str
    name: str
    reached: bool
    dtypes: tuple[tf.DType, ...] = ()

    @property
    def layer(self) -> str:
        """The layers that contain it, outermost first, separated by slashes."""
        return self.name.rpartition("/")[0] or self.name


def spec(nested: Nest) -> Nest:
    """The shapes and dtypes of a nest of tensors; None, which stands for a missing batch, stays None."""
    return nest.map(lambda x: None if x is None else tf.TensorSpec(x.shape, x.dtype), nested)


def trace(function: Callable[..., Any], followed: Nest, *other_arguments: Nest) -> tuple[Any, list[Op]]:
    """Traces function(followed, *other_arguments) for tensors or specs; returns the concrete function and its ops."""
    inputs: list[str] = []

    def traced(followed: Nest, *other_arguments: Nest) -> Any:
        inputs.extend(leaf.op.name for leaf in nest.flatten(followed))
        return function(followed, *other_arguments)

    concrete = tf.function(traced, autograph=False).get_concrete_function(spec(followed), *map(spec, other_arguments))
    return concrete, list(_ops(concrete.graph, set(inputs)))


def of_index(function: Callable[[tf.Tensor], Nest]) -> Any:
    """Traces a function of an index."""
    return tf.function(function, autograph=False).get_concrete_function(tf.TensorSpec([], tf.int32))


def depends(concrete: Any) -> bool:
    """Whether an output of a traced function depends on its first argument.

    >>> depends(of_index(lambda k: tf.constant(1.0))), depends(of_index(lambda k: [k + 1, tf.constant(1)]))
    (False, True)
    """
    waiting, seen = [tensor.op for tensor in concrete.outputs], set()
    while waiting:
        op = waiting.pop()
        if op.name not in seen:
            seen.add(op.name)
            waiting += [tensor.op for tensor in op.inputs]
    return concrete.inputs[0].op.name in seen


def nodes(graph: tf.Graph) -> Iterator[Any]:
    """The nodes of a graph and of all functions inside it."""
    definition = graph.as_graph_def()
    return itertools.chain(definition.node, *(function.node_def for function in definition.library.function))


def _ops(graph: Any, reached: set[str]) -> Iterator[Op]:
    bodies = {body.signature.name: body.node_def for body in graph.as_graph_def().library.function}
    for op in graph.get_operations():  # in the order in which they were traced: inputs come first
        hit = any(tensor.op.name in reached for tensor in op.inputs)
        if hit:
            reached.add(op.name)
        yield Op(op.type, op.name, hit, tuple(out.dtype for out in op.outputs))
        for inner in _inside(op.node_def, bodies, set()):
            yield Op(inner.op, f"{op.name}/{inner.name}", hit)


def _inside(node: Any, bodies: Mapping[str, Any], seen: set[str]) -> Iterator[Any]:
    """The nodes of the functions that a node calls."""
    for attribute in node.attr.values():
        for function in (attribute.func, *attribute.list.func):
            if function.name in bodies and function.name not in seen:
                seen.add(function.name)
                for inner in bodies[function.name]:
                    yield inner
                    yield from _inside(inner, bodies, seen)

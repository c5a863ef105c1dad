"""Which way a real-time tuner computes hypergradients: forward mode where it can and is cheap, reverse mode otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from rfho2.batches import Stream
from rfho2.core import nest
from rfho2.core.types import Batches, Hypers, Nest
from rfho2.dynamics.base import Loss
from rfho2.hypergradients.sensitivity import count_columns

MOST_COLUMNS = 3  # numbers tuned in forward mode, which costs 1 + 1.2 steps for each; reverse mode costs 3.2 steps in all
CONTROL_FLOW = {"If", "StatelessIf", "Case", "StatelessCase", "While", "StatelessWhile"}


def choose_mode(
    loss: Loss, params: Nest, hypers: Hypers, batches: Batches, mode: str | None, carry: bool | None, discount: float
) -> str:
    """The mode that the user asked for, or the better one.

    Args:
      loss: the training loss.
      mode, carry, discount: the tuner's arguments; `carry=True` asks for forward mode.
    """
    wanted = "forward" if carry else mode
    many = count_columns(hypers) > MOST_COLUMNS
    if wanted == "reverse" or (wanted is None and many):
        return "reverse"
    kinds = [] if discount == 0 else control_flow(loss, params, hypers, batches)
    if kinds and wanted == "forward":
        raise ValueError(
            f"{'mode is' if mode else 'carry is True, which needs mode'} 'forward', but the training loss has control flow "
            f"({', '.join(kinds)}) for which TensorFlow has no forward mode. Leave mode and carry out, and the tuner uses "
            f"reverse mode; or build recurrent layers with unroll=True."
        )
    return "reverse" if kinds else "forward"


def control_flow(loss: Loss, params: Nest, hypers: Hypers, batches: Batches) -> list[str]:
    """The kinds of control flow ("If", "Case", "While") in the loss that depend on the params or the hypers.

    TensorFlow's forward mode fails there, or works by chance. Control flow that depends on the examples alone does no harm.
    The loss is traced, without its derivatives.
    """
    inputs: list[str] = []

    def traced(params: Nest, hypers: Hypers, batch: Nest) -> tf.Tensor:
        inputs.extend(leaf.op.name for leaf in nest.flatten((params, hypers)))
        return loss(params, hypers, batch)

    spec = lambda x: tf.TensorSpec(x.shape, x.dtype)  # noqa: E731
    batch = batches.spec if isinstance(batches, Stream) else nest.map(spec, batches(tf.constant(0)))
    function = tf.function(traced, autograph=False)
    graph = function.get_concrete_function(nest.map(spec, params), nest.map(spec, dict(hypers)), batch).graph.as_graph_def()
    bodies = {body.signature.name: body.node_def for body in graph.library.function}
    reached, kinds = set(inputs), set()
    for node in graph.node:  # in the order in which they were traced: inputs come first
        if any(name.split(":")[0] in reached for name in node.input):
            reached.add(node.name)
            kinds |= set(_control_flow_of(node, bodies))
    return sorted(kinds)


def _control_flow_of(node: Any, bodies: Mapping[str, Any]) -> Iterator[str]:
    """The kinds of control flow of a node: its own, or those in the functions that it calls."""
    if node.op in CONTROL_FLOW:
        yield node.op.removeprefix("Stateless")
        return
    for attribute in node.attr.values():
        for inner in bodies.get(attribute.func.name, ()):
            yield from _control_flow_of(inner, bodies)

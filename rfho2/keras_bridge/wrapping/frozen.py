"""Divides a model into the part before its first trainable or random layer, which is computed once, and the rest."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Nest

MOST_BYTES = 2**31  # of the outputs that are kept
PREDICTED = 256  # examples in a batch


class Divided(NamedTuple):
    """A model in two parts that share its layers and variables.

    Attributes:
      base: inputs -> what the head takes; nothing in it is trained or random.
      head: the rest.
      until: the names of the last layers of the base.
    """

    base: keras.Model
    head: keras.Model
    until: str

    @property
    def told(self) -> str:
        """What the user is told while the base is computed."""
        return f"Computing '{self.until}', which is neither trained nor random, once"

    def of_arrays(self, x: Nest) -> Nest:
        """The outputs of the base for all examples, as arrays in the structure that the head takes."""
        return nest.map(np.asarray, self.base.predict(for_keras(x), PREDICTED, 0))

    def of_tensors(self, x: Nest) -> Nest:
        """The outputs of the base for a batch."""
        return self.base(x, training=False)

    def fits(self, examples: int) -> bool:
        """Whether the outputs of the base for so many examples can be kept in memory."""
        sizes = [spec.shape[1:] for spec in self.base.outputs]
        known = all(None not in shape for shape in sizes)
        return known and 4 * examples * sum(int(np.prod(shape)) for shape in sizes) <= MOST_BYTES


def for_keras(x: Nest) -> Nest:
    """The inputs as Keras's `evaluate` and `predict` take them: arrays of text as tensors."""
    return nest.map(lambda leaf: tf.constant(leaf) if np.asarray(leaf).dtype.kind in "USO" else leaf, x)


def divided(model: keras.Model) -> Divided | None:
    """The two parts of a functional or Sequential model, if the first has frozen weights or takes strings; else None."""
    graph: Any = getattr(model, "_functional", None) if isinstance(model, keras.Sequential) else model
    if not hasattr(graph, "_nodes_by_depth") or not _follows_its_graph(model):
        return None
    known, worth = {id(tensor) for tensor in graph.inputs}, any(_is_text(tensor) for tensor in graph.inputs)
    frontier: dict[int, Any] = {}
    nodes = [node for depth in sorted(graph._nodes_by_depth, reverse=True) for node in graph._nodes_by_depth[depth]]
    for node in nodes:
        if not node.input_tensors:
            continue  # an InputLayer
        if all(id(tensor) in known for tensor in node.input_tensors) and _is_fixed(node.operation):
            known |= {id(tensor) for tensor in node.outputs}
            worth = worth or _has_kernel(node.operation)
        else:
            frontier |= {id(tensor): tensor for tensor in node.input_tensors if id(tensor) in known}
    ends = [id(tensor) for tensor in graph.outputs]
    if not worth or any(end in known for end in ends) or not frontier or _only_inputs(frontier, graph):
        return None
    tensors = list(frontier.values())
    between = tensors[0] if len(tensors) == 1 else tensors
    base, head = keras.Model(graph._inputs_struct, between), keras.Model(between, graph._outputs_struct)
    if [v.path for v in head.trainable_variables] != [v.path for v in model.trainable_variables]:
        return None
    if any(_is_text(tensor) for tensor in tensors):
        return None
    return Divided(base, head, ", ".join(tensor._keras_history.operation.name for tensor in tensors))


def _follows_its_graph(model: keras.Model) -> bool:
    """Whether calling the model does what its graph says: a subclass may have a `call` of its own."""
    owner = next(kind for kind in type(model).__mro__ if "call" in vars(kind))
    return owner.__name__ in ("Functional", "Sequential") and owner.__module__.startswith("keras.")


def _is_fixed(operation: Any) -> bool:
    """Whether an operation computes the same in every step: no trained weights, nothing random, no batch statistics.

    Random layers are active in training even where the model calls them with training=False: Keras 3 overrides that.
    """
    if not isinstance(operation, keras.Layer):
        return True
    random = [v for v in operation.variables if v.name == "seed_generator_state"]
    return not (operation.trainable_variables or random or any(map(_does_more, operation._flatten_layers())))


def _does_more(layer: keras.Layer) -> bool:
    """Whether a layer does more in training than its outputs show: batch statistics, losses, masks for later layers."""
    statistics = isinstance(layer, keras.layers.BatchNormalization) and layer.trainable
    masks = isinstance(layer, keras.layers.Masking) or getattr(layer, "mask_zero", False)
    return statistics or masks or getattr(layer, "activity_regularizer", None) is not None


def _has_kernel(operation: Any) -> bool:
    return isinstance(operation, keras.Layer) and any(len(v.shape) > 1 for v in operation.variables)


def _is_text(tensor: Any) -> bool:
    return tf.as_dtype(tensor.dtype) == tf.string


def _only_inputs(frontier: dict[int, Any], graph: Any) -> bool:
    return set(frontier) <= {id(tensor) for tensor in graph.inputs}

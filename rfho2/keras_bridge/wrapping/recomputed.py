"""Keras layers whose activations no derivative keeps: `recompute` for layers, in a scope that holds their variables."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf
from keras.src.backend.common.stateless_scope import get_stateless_scope

from rfho2.core.recompute import recompute
from rfho2.core.types import Nest
from rfho2.keras_bridge.wrapping import patches


class RecomputedCall:
    """Replaces `layer.call` inside a scope of pure values; the values of its variables are arguments of the block."""

    def __init__(self, layer: keras.Layer):
        self.layer, self.variables = layer, list(layer.variables)
        self._call = layer.call
        self._block = recompute(self._in_scope)

    def __call__(self, *args: Nest, **kwargs: Nest) -> Nest:
        """The outputs of the layer; what it draws or assigns changes the values of the scope."""
        scope = get_stateless_scope()
        values = [tf.convert_to_tensor(scope.state_mapping.get(id(v), v.value)) for v in self.variables]
        outputs, assigned = self._block(values, args, kwargs)
        scope.state_mapping |= {id(self.variables[int(i)]): value for i, value in assigned.items()}
        return outputs

    def _in_scope(self, values: list[tf.Tensor], args: tuple[Nest, ...], kwargs: dict[str, Nest]) -> tuple[Nest, Nest]:
        """A call in a scope of its own: derivatives trace it when that of the model has been left."""
        layers = list(self.layer._flatten_layers())
        dtype = next(value.dtype.name for value in values if value.dtype.is_floating)
        scope = keras.StatelessScope(collect_losses=True)
        scope.state_mapping = {id(v): value for v, value in zip(self.variables, values, strict=True)}
        with (
            patches.differentiable_tensorflow(),
            patches.without_cudnn(layers),
            patches.computing_in(layers, dtype),
            scope,
        ):
            outputs = self._call(*args, **kwargs)
        if scope.losses:
            raise ValueError(
                f"recompute: layer '{self.layer.name}' adds a loss in its call, which would be lost. Choose other layers."
            )
        now = [scope.state_mapping[id(v)] for v in self.variables]
        return outputs, {str(i): new for i, (new, old) in enumerate(zip(now, values, strict=True)) if new is not old}


def recomputed_calls(model: keras.Model, chosen: Sequence[str | keras.Layer]) -> list[RecomputedCall]:
    """The calls of these layers, given by name or as objects."""
    layers = {layer.name: layer for layer in model._flatten_layers(include_self=False)}
    calls = []
    for one in chosen:
        name = one if isinstance(one, str) else one.name
        if name not in layers:
            raise ValueError(f"recompute: model '{model.name}' has no layer '{name}'; its layers are {sorted(layers)}.")
        inside = [
            layer.name for layer in layers[name]._flatten_layers() if isinstance(layer, keras.layers.BatchNormalization)
        ]
        if inside:
            raise ValueError(
                f"recompute: layer '{name}' contains the batch norm '{inside[0]}', whose statistics may change. "
                f"Choose layers without batch norm."
            )
        calls.append(RecomputedCall(layers[name]))
    return calls

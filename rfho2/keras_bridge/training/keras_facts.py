"""What a Keras model says about its training: steps of its own, weights of its losses, the layers of its params."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import keras

from rfho2.keras_bridge.wrapping.pure_model import Params


def check_kind(model: keras.Model) -> None:
    """Refuses what is not a Keras model, and a model with a custom training step, which rfho2 would not follow."""
    if not isinstance(model, keras.Model):
        raise TypeError(f"model is {type(model).__name__} {model!r:.80}; pass a keras.Model.")
    for name in ("train_step", "compute_loss"):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise ValueError(
                f"model '{model.name}' ({type(model).__name__}) has its own {name}, which rfho2 does not call, so the "
                f"training would differ from Keras's. Move what it computes into a loss or a layer (add_loss), or use "
                f"rf.from_keras and write the loss yourself."
            )


def compiled_loss_weights(model: keras.Model, outputs: Sequence[str]) -> list[float] | None:
    """The factors of the outputs that the model was compiled with, in the order of the outputs."""
    weights = getattr(getattr(model, "_compile_loss", None), "_user_loss_weights", None)
    if weights is None:
        return None
    structure = getattr(model, "_outputs_struct", None)
    names = sorted(structure) if isinstance(structure, Mapping) else list(outputs)
    if isinstance(weights, Mapping):
        if not set(weights) <= set(names):
            raise ValueError(f"loss_weights has {sorted(weights)}, but the model's outputs are {names}; compile it again.")
        return [float(weights.get(name, 1.0)) for name in names]
    if not isinstance(weights, list | tuple):
        return [float(weights)] * len(names)
    if len(weights) != len(names):
        raise ValueError(f"loss_weights has {len(weights)} factors for {len(names)} outputs; compile the model again.")
    return [float(factor) for factor in weights]


def layers_of(model: keras.Model, params: Params) -> dict[str, int]:
    """The number of the layer that owns each param, counting the layers with params in the order of the model's weights."""
    owners: dict[int, int] = {}
    for number, layer in enumerate(model._flatten_layers(include_self=False)):
        if not list(layer._flatten_layers(include_self=False)):  # contains no other layer
            owners |= {id(variable): number for variable in layer.trainable_variables}
    owner_of_param = [owners.get(id(variable), -1) for variable in model.trainable_variables]
    numbers = list(dict.fromkeys(owner_of_param))  # _flatten_layers lists the layers of a submodel in reverse order
    return {path: numbers.index(number) for path, number in zip(params, owner_of_param, strict=True)}

"""Converts the user's optimiser, a name, a Keras object or that of the compiled model; and back to a Keras object."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import keras

from rfho2.core.warn import warn
from rfho2.keras_bridge.training.tunables import OPTIMIZERS, TUNABLES

KERAS = {
    "sgd": keras.optimizers.SGD, "momentum": keras.optimizers.SGD, "nesterov": keras.optimizers.SGD,
    "rmsprop": keras.optimizers.RMSprop, "adagrad": keras.optimizers.Adagrad,
    "adam": keras.optimizers.Adam, "adamw": keras.optimizers.AdamW,
}  # fmt: skip
FEATURES = {  # of all Keras optimizers: the value that means "not used"
    "clipnorm": None,
    "clipvalue": None,
    "global_clipnorm": None,
    "use_ema": False,
    "gradient_accumulation_steps": None,
    "loss_scale_factor": None,
}


class Optimizer(NamedTuple):
    """An optimiser.

    Attributes:
      name: a key of `tunables.OPTIMIZERS`.
      settings: the settings that differ from the defaults, such as learning_rate or beta_1.
    """

    name: str
    settings: Mapping[str, float] = MappingProxyType({})

    @property
    def fixed(self) -> dict[str, float]:
        """The values of all settings that are not tuned."""
        return {name: TUNABLES[name].start for name in OPTIMIZERS[self.name][1]} | dict(self.settings)


def resolve_optimizer(optimizer: Any, model: keras.Model) -> Optimizer:
    """The optimiser that the user asked for; None means that of the compiled model, or momentum.

    A name that is also that of the compiled model's optimizer keeps its settings.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer
    if optimizer is None:
        if not model.compiled or model.optimizer is None:
            return Optimizer("momentum")
        return _from_keras(inner_optimizer(model.optimizer), "the model was compiled with")
    if isinstance(optimizer, keras.optimizers.Optimizer):
        return _from_keras(inner_optimizer(optimizer), "optimizer is")
    if not isinstance(optimizer, str) or optimizer not in OPTIMIZERS:
        raise ValueError(
            f"optimizer is {optimizer!r}; choose one of {sorted(OPTIMIZERS)}, or pass a Keras optimizer such as "
            f"keras.optimizers.Adam(1e-3)."
        )
    if model.compiled and is_kind(model.optimizer, optimizer):
        return resolve_optimizer(None, model)  # with the settings of the compiled one
    return Optimizer(optimizer)


def warn_of_state(optimizer: Any, model: keras.Model) -> None:
    """Warns if the optimizer has trained before: its state, such as Adam's moments, is not used."""
    keras_optimizer = inner_optimizer(model.optimizer if optimizer is None and model.compiled else optimizer)
    steps = (
        int(keras_optimizer.iterations)
        if isinstance(keras_optimizer, keras.optimizers.Optimizer) and keras_optimizer.built
        else 0
    )
    if steps and resolve_optimizer(keras_optimizer, model).name != "sgd":
        warn(
            f"{type(keras_optimizer).__name__} has already taken {steps} steps; its settings are used, but its moments or "
            f"velocities start afresh. The first steps may be rougher than if it had continued."
        )


def is_kind(optimizer: Any, name: str) -> bool:
    """Whether a Keras optimizer is the one of this name, so that settings can be written into it."""
    kind = inner_optimizer(optimizer)
    return isinstance(kind, keras.optimizers.Optimizer) and _unsupported(kind) is None and _from_keras(kind, "").name == name


def inner_optimizer(optimizer: Any) -> Any:
    """The optimizer inside a wrapper that scales the loss, as models in mixed precision have; or the optimizer itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _from_keras(optimizer: keras.optimizers.Optimizer, whose: str) -> Optimizer:
    kind = type(optimizer)
    reason = _unsupported(optimizer)
    if reason is not None:
        raise ValueError(
            f"{whose} {kind.__name__}{reason}, which rfho2 does not support. Pass another optimizer to "
            f"the tuner, such as optimizer='adam': one of {sorted(OPTIMIZERS)}, or a Keras optimizer of such a kind."
        )
    o: Any = optimizer
    settings = {"learning_rate": float(o.learning_rate.numpy())}
    if kind is keras.optimizers.SGD:
        if not o.momentum:
            return Optimizer("sgd", settings)
        return Optimizer("nesterov" if o.nesterov else "momentum", settings | {"momentum": float(o.momentum)})
    settings["epsilon"] = float(o.epsilon)
    if kind is keras.optimizers.RMSprop:
        return Optimizer("rmsprop", settings | {"rho": float(o.rho)})
    if kind is keras.optimizers.Adagrad:
        return Optimizer("adagrad", settings | {"initial_accumulator_value": float(o.initial_accumulator_value)})
    settings |= {"beta_1": float(o.beta_1), "beta_2": float(o.beta_2)}
    if o.weight_decay:
        return Optimizer("adamw", settings | {"weight_decay": float(o.weight_decay)})
    return Optimizer("adam", settings)


def _unsupported(optimizer: Any) -> str | None:
    """The feature of a Keras optimizer that rfho2 does not support, as a phrase: "" for its kind, None if there is none."""
    kind = type(optimizer)
    if kind not in KERAS.values():
        return ""
    for feature, unused in FEATURES.items():
        if getattr(optimizer, feature, unused) not in (unused, 0):
            return f" with {feature}={getattr(optimizer, feature)}"
    rate = optimizer._learning_rate
    if not hasattr(rate, "assign"):
        return f" with the learning rate {type(rate).__name__} (the tuner sets the rate)"
    for feature in ("amsgrad", "centered"):
        if getattr(optimizer, feature, False):
            return f" with {feature}=True"
    if kind is keras.optimizers.RMSprop and optimizer.momentum:
        return f" with momentum={optimizer.momentum}"
    if optimizer.weight_decay and kind not in (keras.optimizers.Adam, keras.optimizers.AdamW):
        return f" with weight_decay={optimizer.weight_decay} (decoupled: use AdamW)"
    excluded = [getattr(optimizer, f"_exclude_from_weight_decay{end}", None) for end in ("", "_pattern")]
    if optimizer.weight_decay and any(excluded):
        return " with exclude_from_weight_decay"
    return None


def to_keras(optimizer: Optimizer) -> keras.optimizers.Optimizer:
    """The same optimiser as a Keras object."""
    more = {"nesterov": True} if optimizer.name == "nesterov" else {}
    return KERAS[optimizer.name](**optimizer.fixed, **more)

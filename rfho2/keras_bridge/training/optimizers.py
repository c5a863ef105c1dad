"""Converts the user's optimiser, a name, a Keras object or that of the compiled model; and back to a Keras object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import keras

from rfho2.core.warn import warn
from rfho2.keras_bridge.training.schedules import Schedule, is_schedule
from rfho2.keras_bridge.training.tunables import DECOUPLED, OPTIMIZERS, TUNABLES

KERAS: dict[str, type[keras.optimizers.Optimizer]] = {
    "sgd": keras.optimizers.SGD, "momentum": keras.optimizers.SGD, "nesterov": keras.optimizers.SGD,
    "rmsprop": keras.optimizers.RMSprop, "adagrad": keras.optimizers.Adagrad, "adadelta": keras.optimizers.Adadelta,
    "adam": keras.optimizers.Adam, "adamw": keras.optimizers.AdamW, "nadam": keras.optimizers.Nadam,
    "adamax": keras.optimizers.Adamax, "lamb": keras.optimizers.Lamb, "lion": keras.optimizers.Lion,
    "adafactor": keras.optimizers.Adafactor,
}  # fmt: skip
if hasattr(keras.optimizers, "Muon"):
    KERAS["muon"] = keras.optimizers.Muon

ADAM = ("beta_1", "beta_2", "epsilon")
SETTINGS: dict[str, tuple[str, ...]] = {  # numbers of Keras's optimizers, beside learning_rate and weight_decay
    "sgd": (), "momentum": ("momentum",), "nesterov": ("momentum",), "rmsprop": ("rho", "epsilon", "momentum"),
    "adagrad": ("initial_accumulator_value", "epsilon"), "adadelta": ("rho", "epsilon"), "adam": ADAM, "adamw": ADAM,
    "nadam": ADAM, "adamax": ADAM, "lamb": ADAM, "lion": ("beta_1", "beta_2"),
    "adafactor": ("beta_2_decay", "epsilon_1", "epsilon_2", "clip_threshold"),
    "muon": ("adam_beta_1", "adam_beta_2", "adam_weight_decay", "epsilon", "momentum", "adam_lr_ratio", "rms_rate"),
}  # fmt: skip
OPTIONS: dict[str, tuple[str, ...]] = {  # what is no number
    "rmsprop": ("centered",), "adam": ("amsgrad",), "adamw": ("amsgrad",),
    "muon": ("ns_steps", "nesterov", "exclude_layers", "exclude_embeddings"),
}  # fmt: skip
CLIPPING = ("clipvalue", "clipnorm", "global_clipnorm")


class Optimizer(NamedTuple):
    """An optimiser.

    Attributes:
      name: a key of `tunables.OPTIMIZERS`.
      settings: the settings that differ from the defaults, such as learning_rate or beta_1.
      options: further arguments of the dynamics, such as amsgrad.
      schedule: the learning rate at each step, which the setting learning_rate multiplies; None if it is constant.
      first_step: the step of the schedule at which training begins.
      clipping: an argument of `rf.clipped`, or none.
      ema_momentum: of the average of the weights that is evaluated and kept; None if the weights themselves are.
      accumulation: the number of batches for each step.
      decays: Keras variable -> whether its weight decay applies to it; None if it applies to all.
    """

    name: str
    settings: Mapping[str, float] = MappingProxyType({})
    options: Mapping[str, Any] = MappingProxyType({})
    schedule: Schedule | None = None
    first_step: int = 0
    clipping: Mapping[str, float] = MappingProxyType({})
    ema_momentum: float | None = None
    accumulation: int = 1
    decays: Callable[[Any], bool] | None = None

    @property
    def decoupled(self) -> bool:
        """Whether weight decay is a setting of the optimiser, rather than a penalty in the loss."""
        return self.name in DECOUPLED or "weight_decay" in self.settings

    @property
    def tunable(self) -> tuple[str, ...]:
        """The settings of the dynamics that users can tune."""
        return (*OPTIMIZERS[self.name][1], *(("weight_decay",) if self.decoupled else ()))

    @property
    def fixed(self) -> dict[str, float]:
        """The values of all settings that are not tuned."""
        needed = (*OPTIMIZERS[self.name][1], *(("weight_decay",) if self.name == "adamw" else ()))
        return {name: TUNABLES[name].start for name in needed} | dict(self.settings)


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
    if not isinstance(optimizer, str) or optimizer not in KERAS:
        raise ValueError(
            f"optimizer is {optimizer!r}; choose one of {sorted(KERAS)}, or pass a Keras optimizer such as "
            f"keras.optimizers.Adam(1e-3)."
        )
    if model.compiled and is_kind(model.optimizer, optimizer):
        return resolve_optimizer(None, model)  # with the settings of the compiled one
    return Optimizer(optimizer)


def warn_of_state(optimizer: Any, model: keras.Model) -> None:
    """Warns if the optimizer has trained before: its state, such as Adam's moments, is not used."""
    keras_optimizer = inner_optimizer(model.optimizer if optimizer is None and model.compiled else optimizer)
    steps = steps_taken(keras_optimizer)
    if steps and resolve_optimizer(keras_optimizer, model).name != "sgd":
        warn(
            f"{type(keras_optimizer).__name__} has already taken {steps} steps; its settings are used, but its moments or "
            f"velocities start afresh. The first steps may be rougher than if it had continued."
        )


def steps_taken(optimizer: Any) -> int:
    """The batches that a Keras optimizer has seen."""
    return int(optimizer._iterations) if isinstance(optimizer, keras.optimizers.Optimizer) and optimizer.built else 0


def is_kind(optimizer: Any, name: str) -> bool:
    """Whether a Keras optimizer is the one of this name, so that settings can be written into it."""
    kind = inner_optimizer(optimizer)
    return (
        isinstance(kind, keras.optimizers.Optimizer) and _is_known(kind) and not _unsupported(kind) and _name(kind) == name
    )


def inner_optimizer(optimizer: Any) -> Any:
    """The optimizer inside a wrapper that scales the loss, as models in mixed precision have; or the optimizer itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def schedule_of(optimizer: Any) -> Schedule | None:
    """The learning-rate schedule of a Keras optimizer, if it has one."""
    rate = getattr(inner_optimizer(optimizer), "_learning_rate", None)
    return rate if is_schedule(rate) else None


def _name(optimizer: Any) -> str:
    """The key of `OPTIMIZERS` that stands for a Keras optimizer."""
    kind = type(optimizer)
    if kind is keras.optimizers.SGD:
        return ("nesterov" if optimizer.nesterov else "momentum") if optimizer.momentum else "sgd"
    if kind in (keras.optimizers.Adam, keras.optimizers.AdamW):
        return "adamw" if optimizer.weight_decay else "adam"
    return next(name for name, known in KERAS.items() if known is kind)


def _from_keras(optimizer: keras.optimizers.Optimizer, whose: str) -> Optimizer:
    kind = type(optimizer).__name__
    if not _is_known(optimizer):
        raise ValueError(
            f"{whose} {kind}, which rfho2 does not support. Pass another one to the tuner, such as optimizer='adam': one of "
            f"{sorted(KERAS)}, or a Keras optimizer."
        )
    reasons = _unsupported(optimizer)
    if reasons:
        raise ValueError(
            f"{whose} {kind} {' and '.join(reasons)}, which rfho2 does not support. Pass "
            f"optimizer=keras.optimizers.{kind}({_supported_arguments(optimizer)}) to the tuner instead."
        )
    o: Any = optimizer
    name, schedule = _name(o), schedule_of(o)
    settings = {"learning_rate": float(o.learning_rate) if schedule is None else 1.0}
    settings |= {one: float(getattr(o, one)) for one in SETTINGS[name]}
    options = {one: getattr(o, one) for one in OPTIONS.get(name, ())}
    if name == "muon":
        options["coefficients"] = (o.muon_a, o.muon_b, o.muon_c)
    if o.weight_decay or name == "muon":
        settings["weight_decay"] = float(o.weight_decay or 0.0)
    excluded = [getattr(o, f"_exclude_from_weight_decay{end}", None) for end in ("", "_pattern")]
    return Optimizer(
        name,
        settings,
        options,
        schedule,
        0 if schedule is None else steps_taken(o),
        {one: float(getattr(o, one)) for one in CLIPPING if getattr(o, one)},
        float(o.ema_momentum) if o.use_ema else None,
        o.gradient_accumulation_steps or 1,
        o._use_weight_decay if any(excluded) else None,
    )


def _is_known(optimizer: Any) -> bool:
    return type(optimizer) in KERAS.values()


def _unsupported(optimizer: Any) -> list[str]:
    """What rfho2 does not support about the settings of a Keras optimizer, as phrases."""
    reasons = []
    rate = optimizer._learning_rate
    if not hasattr(rate, "assign") and not is_schedule(rate):
        reasons.append(f"with a function as learning rate ({getattr(rate, '__name__', type(rate).__name__)})")
    if optimizer.use_ema and optimizer.ema_overwrite_frequency:
        reasons.append(f"with ema_overwrite_frequency={optimizer.ema_overwrite_frequency}")
    if getattr(optimizer, "rms_rate", 0.0) is None:
        reasons.append("with rms_rate=None")
    return reasons


def _supported_arguments(optimizer: Any) -> str:
    """The arguments of a Keras optimizer as it could be built instead, without what is not supported."""
    kind = type(optimizer)
    config = optimizer.get_config() | {"ema_overwrite_frequency": None, "name": kind().name}
    if schedule_of(optimizer) is None and callable(optimizer._learning_rate):
        config["learning_rate"] = 0.001
    defaults = kind().get_config() | {"name": kind().name}
    changed = {name: value for name, value in config.items() if value != defaults[name]}
    return ", ".join(f"{name}={'...' if isinstance(value, dict) else repr(value)}" for name, value in changed.items())


def to_keras(name: str) -> keras.optimizers.Optimizer:
    """The optimiser of this name as a Keras object, with the settings that the tuner starts from."""
    return KERAS[name](**Optimizer(name).fixed, **({"nesterov": True} if name == "nesterov" else {}))

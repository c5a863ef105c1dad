"""Hypers by name: where they start, how far they may go, and the scale on which they are moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rfho2 import dynamics
from rfho2.constraints.sets import Box
from rfho2.core.types import Hypers


class Knob(NamedTuple):
    """A hyper that users know by name.

    It is moved on a scale on which equal steps mean alike everywhere: learning rates by factors, momentum by factors of
    1 - momentum (the time it remembers). So one hyper-rate serves all, from any start.

    Attributes:
      start, low, high: by default.
      inside: value -> number that is optimised.
      outside: the inverse, of tensors.
      rate: how fast it moves beside the learning rate.
    """

    start: float
    low: float
    high: float
    inside: Callable[[Any], Any]
    outside: Callable[[tf.Tensor], tf.Tensor]
    rate: float = 1.0


def _identity(x: Any) -> Any:
    return x


KNOBS = {
    "learning_rate": Knob(0.01, 1e-6, 10.0, np.log, tf.exp),
    "momentum": Knob(0.9, 0.0, 0.999, lambda mu: -np.log1p(-np.asarray(mu)), lambda u: -tf.math.expm1(-u), 0.3),
    "weight_decay": Knob(1e-4, 1e-8, 1.0, np.log, tf.exp, 0.3),
    "label_smoothing": Knob(0.05, 0.0, 0.5, _identity, _identity, 0.05),
    "loss_weights": Knob(1.0, 1e-3, 1e3, np.log, tf.exp, 0.3),
    "regularization": Knob(1.0, 1e-4, 1e4, np.log, tf.exp),
}
SETTINGS: dict[
    str, tuple[Callable[..., dynamics.Dynamics], tuple[str, ...]]
] = {  # of the optimisers that can be asked for, with what they take beside the loss
    "sgd": (dynamics.gradient_descent, ("learning_rate",)),
    "momentum": (dynamics.momentum, ("learning_rate", "momentum")),
    "nesterov": (dynamics.nesterov, ("learning_rate", "momentum")),
    "rmsprop": (dynamics.rmsprop, ("learning_rate",)),
    "adagrad": (dynamics.adagrad, ("learning_rate",)),
    "adam": (dynamics.adam, ("learning_rate",)),
    "adamw": (dynamics.adamw, ("learning_rate", "weight_decay")),
}
SLOWER = 0.25
PER_LAYER = ("learning_rate", "weight_decay")


class Knobs(NamedTuple):
    """The hypers that were asked for.

    Attributes:
      start: their values, as users know them.
      ranges: (low, high) of each.
      labels: of the entries of each that is a vector: layers' or outputs' names.
    """

    start: dict[str, np.ndarray]
    ranges: dict[str, tuple[float, float]]
    labels: dict[str, Sequence[str]]

    def inside(self, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """What is optimised."""
        return {name: np.asarray(KNOBS[name].inside(np.asarray(value, np.float64))) for name, value in values.items()}

    def outside(self, hypers: Hypers) -> dict[str, tf.Tensor]:
        """What users know, from what is optimised."""
        return {name: KNOBS[name].outside(value) for name, value in hypers.items()}

    def constraints(self) -> dict[str, Box]:
        """The ranges, on the scale of what is optimised."""
        ends = {name: self.inside({name: np.asarray(pair)})[name] for name, pair in self.ranges.items()}
        return {name: Box(float(low), float(high)) for name, (low, high) in ends.items()}

    def rates(self, rate: float) -> dict[str, float]:
        """How fast each is moved."""
        return {name: rate * KNOBS[name].rate for name in self.start}

    def slower(self, hypers: Hypers) -> dict[str, tf.Tensor]:
        """A fraction of the learning rate, after steps that gave no finite numbers; of what is optimised."""
        if "learning_rate" not in hypers:
            return dict(hypers)
        moved = hypers["learning_rate"] + np.log(SLOWER)
        return {**hypers, "learning_rate": self.constraints()["learning_rate"].project(moved)}

    def named(self, hypers: Hypers) -> dict[str, float]:
        """Each number as users know it, by name: `learning_rate`, or `learning_rate/dense_1`; from what is optimised."""
        found: dict[str, float] = {}
        for name, value in self.outside(hypers).items():
            names = [f"{name}/{label}" for label in self.labels[name]] if name in self.labels else [name]
            found |= zip(names, map(float, np.ravel(value)), strict=True)
        return found


def knobs(
    hypers: Sequence[str] | Mapping[str, Any],
    ranges: Mapping[str, tuple[float, float]] | None,
    optimizer: str,
    layers: Sequence[str] = (),
    outputs: Sequence[str] = ("0",),
) -> Knobs:
    """From what a user asks for.

    Args:
      hypers: names, or a dict from name to the value to start from.
      ranges: of some of them, instead of the usual ones.
      optimizer: a key of `SETTINGS`.
      layers: their names, if learning rate and weight decay are to be each layer's own.
      outputs: names of the model's, for `loss_weights`.
    """
    if optimizer not in SETTINGS:
        raise ValueError(f"optimizer is {optimizer!r}; choose one of {sorted(SETTINGS)}.")
    names = [hypers] if isinstance(hypers, str) else list(hypers)
    known = [name for name in KNOBS if name != "momentum" or name in SETTINGS[optimizer][1]]
    for name in names:
        if name not in known:
            raise ValueError(f"hypers has '{name}'; with optimizer='{optimizer}' they can be {known}.")
    given = dict(hypers) if isinstance(hypers, Mapping) else {}
    bounds = {name: (ranges or {}).get(name, (KNOBS[name].low, KNOBS[name].high)) for name in names}
    unknown = sorted(set(ranges or {}) - set(names))
    if unknown:
        raise ValueError(f"ranges has {unknown}, which are not among the hypers {names}.")
    for name, (low, high) in bounds.items():
        if not low < high or not _finite_inside(name, low, high):
            least = "0 or more" if KNOBS[name].low == 0 else "above 0"
            most = ", and high below 1" if name == "momentum" else ""
            raise ValueError(f"ranges: '{name}' is ({low}, {high}); low has to be below high, and {least}{most}.")
    labels = {name: layers for name in names if layers and name in PER_LAYER}
    labels |= {name: outputs for name in names if name == "loss_weights"}
    start = {name: _start(name, given.get(name), *bounds[name], len(labels.get(name, ()))) for name in names}
    return Knobs(start, bounds, labels)


def _start(name: str, given: Any, low: float, high: float, size: int) -> np.ndarray:
    """Where a hyper starts: the number given or the usual one; copied to a vector of `size` entries, unless that is 0."""
    value = np.asarray(np.clip(KNOBS[name].start, low, high) if given is None else given, np.float64)
    if not np.all((low <= value) & (value <= high)):
        raise ValueError(
            f"hyper '{name}' starts at {value.tolist()}, outside of its range [{low:g}, {high:g}]; start inside, or pass "
            f"ranges={{'{name}': (low, high)}}."
        )
    try:
        return np.broadcast_to(value, [size] if size else []).copy()
    except ValueError:
        wanted = f"one number, or one for each of {size}" if size else "one number"
        raise ValueError(f"hyper '{name}' has shape {list(value.shape)}; pass {wanted}.") from None


def _finite_inside(name: str, low: float, high: float) -> bool:
    """Whether both ends of a range can be reached on the scale of what is optimised."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return bool(low >= 0 and np.all(np.isfinite(KNOBS[name].inside(np.asarray([low, high], np.float64)))))

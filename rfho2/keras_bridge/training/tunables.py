"""The hypers that users select by name: defaults, ranges, and the internal scale on which each is optimised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rfho2.constraints.sets import Box
from rfho2.core.types import Hypers
from rfho2.dynamics.adadelta import adadelta
from rfho2.dynamics.adafactor import adafactor
from rfho2.dynamics.adagrad import adagrad
from rfho2.dynamics.adam import adam, adamw
from rfho2.dynamics.adamax import adamax
from rfho2.dynamics.base import Dynamics
from rfho2.dynamics.gradient_descent import gradient_descent
from rfho2.dynamics.lamb import lamb
from rfho2.dynamics.lion import lion
from rfho2.dynamics.momentum import momentum, nesterov
from rfho2.dynamics.muon import muon
from rfho2.dynamics.nadam import nadam
from rfho2.dynamics.rmsprop import rmsprop


class Tunable(NamedTuple):
    """A hyper that users know by name.

    It is optimised on an internal scale on which a step means the same everywhere: learning rates change by factors,
    momentum by factors of 1 - momentum (the inverse of its memory). One hyper-rate therefore serves all hypers,
    from any start.

    `projected_adam(log_scale=...)` would not do the same: real time carries derivatives with respect to the internal number
    across updates, and those with respect to the hyper itself would weigh earlier steps differently.

    Attributes:
      start, low, high: the defaults, on the user's scale.
      to_internal: maps the user's value to the number that is optimised.
      to_user: the inverse, on tensors.
      rate: the speed relative to that of the learning rate.
    """

    start: float
    low: float
    high: float
    to_internal: Callable[[Any], Any]
    to_user: Callable[[tf.Tensor], tf.Tensor]
    rate: float = 1.0


TUNABLES = {
    "learning_rate": Tunable(0.01, 1e-6, 10.0, np.log, tf.exp),
    "momentum": Tunable(0.9, 0.0, 0.999, lambda mu: -np.log1p(-np.asarray(mu)), lambda u: -tf.math.expm1(-u), 0.3),
    "weight_decay": Tunable(1e-4, 1e-8, 1.0, np.log, tf.exp, 0.3),
    "label_smoothing": Tunable(0.05, 0.0, 0.5, lambda x: x, lambda x: x, 0.05),
    "loss_weights": Tunable(1.0, 1e-3, 1e3, np.log, tf.exp, 0.3),
    "regularization": Tunable(1.0, 1e-4, 1e4, np.log, tf.exp),
}
OPTIMIZERS: dict[str, tuple[Callable[..., Dynamics], tuple[str, ...]]] = {
    "sgd": (gradient_descent, ("learning_rate",)),
    "momentum": (momentum, ("learning_rate", "momentum")),
    "nesterov": (nesterov, ("learning_rate", "momentum")),
    "rmsprop": (rmsprop, ("learning_rate",)),
    "adagrad": (adagrad, ("learning_rate",)),
    "adam": (adam, ("learning_rate",)),
    "adamw": (adamw, ("learning_rate",)),
    "nadam": (nadam, ("learning_rate",)),
    "adamax": (adamax, ("learning_rate",)),
    "adadelta": (adadelta, ("learning_rate",)),
    "lamb": (lamb, ("learning_rate",)),
    "lion": (lion, ("learning_rate",)),
    "adafactor": (adafactor, ("learning_rate",)),
    "muon": (muon, ("learning_rate",)),
}
"""The optimisers a user may choose, each with the tunable settings it takes in addition to the loss."""

DECOUPLED = ("adamw", "lion", "muon")  # the hyper weight_decay is that of the optimiser; with others, a penalty in the loss
THROUGH_THE_GRADIENT = ("label_smoothing", "loss_weights", "regularization")  # hypers of which Lion sees only signs

PER_LAYER = ("learning_rate", "weight_decay")
LOWER = 0.25  # factor on a learning rate that is too large


class Tunables(NamedTuple):
    """The hypers that the user selected.

    Attributes:
      start: initial values, on the user's scale.
      ranges: (low, high) of each, on the user's scale.
      labels: names of the entries (layers, outputs or knots) of each hyper that is a vector.
    """

    start: dict[str, np.ndarray]
    ranges: dict[str, tuple[float, float]]
    labels: dict[str, Sequence[str]]

    def to_internal(self, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Converts from the user's scale to the scale that is optimised."""
        return {
            name: np.asarray(TUNABLES[name].to_internal(np.asarray(value, np.float64))) for name, value in values.items()
        }

    def to_user(self, hypers: Hypers) -> dict[str, tf.Tensor]:
        """Converts from the scale that is optimised to the user's scale."""
        return {name: TUNABLES[name].to_user(value) for name, value in hypers.items()}

    def constraints(self) -> dict[str, Box]:
        """The ranges on the internal scale."""
        ends = {name: self.to_internal({name: np.asarray(pair)})[name] for name, pair in self.ranges.items()}
        return {name: Box(float(low), float(high)) for name, (low, high) in ends.items()}

    def within_ranges(self, values: Mapping[str, Any]) -> Hypers:
        """Values of the user on the internal scale, moved into the ranges."""
        sets = self.constraints()
        return {name: sets[name].project(tf.constant(v)) for name, v in self.to_internal(values).items()}

    def rates(self, rate: float) -> dict[str, float]:
        """The hyper-rate of each hyper, given that of the learning rate."""
        return {name: rate * TUNABLES[name].rate for name in self.start}

    def with_lower_learning_rate(self, hypers: Hypers) -> dict[str, tf.Tensor]:
        """The hypers, on the internal scale, with a quarter of the learning rate; for use after steps that failed."""
        return self.with_learning_rate_times(LOWER, hypers)

    def with_learning_rate_times(self, factor: float, hypers: Hypers) -> dict[str, tf.Tensor]:
        """The hypers, on the internal scale, with another learning rate, within its range."""
        if "learning_rate" not in hypers:
            return dict(hypers)
        rate = hypers["learning_rate"] + np.log(factor)
        return {**hypers, "learning_rate": self.constraints()["learning_rate"].project(rate)}

    def rate_as_text(self, hypers: Hypers) -> str:
        """The learning rate, or the lowest and the highest of the layers."""
        rates = np.ravel(self.to_user({"learning_rate": hypers["learning_rate"]})["learning_rate"])
        return f"{rates[0]:.2g}" if len(rates) == 1 else f"{rates.min():.2g}-{rates.max():.2g}"

    def named(self, hypers: Hypers) -> dict[str, float]:
        """Every number on the user's scale by name, such as `learning_rate` or `learning_rate/dense_1`."""
        numbers: dict[str, float] = {}
        for name, value in self.to_user(hypers).items():
            names = [f"{name}/{label}" for label in self.labels[name]] if name in self.labels else [name]
            numbers |= zip(names, map(float, np.ravel(value)), strict=True)
        return numbers


def select_tunables(
    hypers: Sequence[str] | Mapping[str, Any],
    ranges: Mapping[str, tuple[float, float]] | None,
    optimizer: str,
    layers: Sequence[str] = (),
    outputs: Sequence[str] = ("0",),
    settings: Mapping[str, Any] | None = None,
    per_layer: Sequence[str] = PER_LAYER,
    peak: float | None = None,
    knots: Mapping[str, int] | None = None,
) -> Tunables:
    """Checks and resolves the user's selection.

    Args:
      hypers: names, or a dict from name to initial value.
      ranges: (low, high) for some of them; the others keep their default ranges.
      optimizer: a key of `OPTIMIZERS`.
      layers, per_layer: layer names, and the hypers that each of these layers gets separately.
      outputs: names of the model's outputs, for `loss_weights`.
      settings: settings of the optimiser, from which hypers start unless the user gives a value.
      peak: the highest rate of the optimiser's schedule, of which the learning rate is then a factor.
      knots: the number of values that each of these hypers takes in the course of the training.
    """
    names = _checked_names(hypers, optimizer)
    initial = {**(settings or {}), **(hypers if isinstance(hypers, Mapping) else {})}
    bounds = _checked_ranges(names, _of_factors(names, peak) | dict(ranges or {}))
    labels = {name: layers for name in names if layers and name in per_layer}
    labels |= {name: outputs for name in names if name == "loss_weights"}
    labels |= {name: [f"knot_{i}" for i in range(count)] for name, count in (knots or {}).items()}
    start = {name: _start(name, initial.get(name), *bounds[name], labels.get(name, ())) for name in names}
    return Tunables(start, bounds, labels)


def separate_hypers(
    per_layer: bool | str | Sequence[str] | None, hypers: Sequence[str] | Mapping[str, Any]
) -> Sequence[str]:
    """The hypers that each layer gets separately."""
    if per_layer is None or isinstance(per_layer, bool | np.bool_):
        return PER_LAYER if per_layer else ()
    separate = [per_layer] if isinstance(per_layer, str) else list(per_layer)
    named = [hypers] if isinstance(hypers, str) else list(hypers)
    for name in separate:
        if name not in PER_LAYER or name not in named:
            raise ValueError(
                f"per_layer has {name!r}, but it can only name hypers that are tuned ({named}) and that layers can have "
                f"separately ({list(PER_LAYER)})."
            )
    return separate


def _checked_names(hypers: Sequence[str] | Mapping[str, Any], optimizer: str) -> list[str]:
    names = [hypers] if isinstance(hypers, str) else list(hypers)
    available = [name for name in TUNABLES if name != "momentum" or name in OPTIMIZERS[optimizer][1]]
    for name in names:
        if name not in available:
            hint = " Build the optimizer with it: keras.optimizers.SGD(momentum=0.9)." if name == "momentum" else ""
            raise ValueError(f"hypers has '{name}'; with the optimizer '{optimizer}' choose from {available}.{hint}")
        if optimizer == "lion" and name in THROUGH_THE_GRADIENT:
            raise ValueError(
                f"hypers has '{name}', which cannot be tuned with Lion: it changes only the gradient, and Lion steps by the "
                f"gradient's sign, which has derivative 0. Tune 'learning_rate' or 'weight_decay', or use optimizer='adam'."
            )
    return names


def _of_factors(names: Sequence[str], peak: float | None) -> dict[str, tuple[float, float]]:
    """The range of a learning rate that is a factor on a schedule: it keeps the peak of the schedule in the usual range."""
    if peak is None or "learning_rate" not in names:
        return {}
    low, high = (end / peak for end in (TUNABLES["learning_rate"].low, TUNABLES["learning_rate"].high))
    return {"learning_rate": (min(low, 1.0), max(high, 1.0))}


def _checked_ranges(names: Sequence[str], ranges: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    unknown = sorted(set(ranges) - set(names))
    if unknown:
        raise ValueError(f"ranges has {unknown}, which are not among the hypers {names}.")
    bounds = {name: ranges.get(name, (TUNABLES[name].low, TUNABLES[name].high)) for name in names}
    for name, (low, high) in bounds.items():
        if not low < high or not _finite_internally(name, low, high):
            least = "0 or more" if TUNABLES[name].low == 0 else "above 0"
            most = ", and high below 1" if name == "momentum" else ""
            raise ValueError(f"ranges: '{name}' is ({low}, {high}); low must be below high, and {least}{most}.")
    return bounds


def _finite_internally(name: str, low: float, high: float) -> bool:
    """Whether both ends of a range are finite on the internal scale."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return bool(low >= 0 and np.all(np.isfinite(TUNABLES[name].to_internal(np.asarray([low, high], np.float64)))))


def _in_order(name: str, values: Mapping[str, Any], labels: Sequence[str]) -> list[Any]:
    """Values by layer or output, in the order of the labels; a layer may be named without the model."""
    if not labels:
        each = f"pass per_layer=['{name}'] for a value in each layer" if name in PER_LAYER else "pass one number"
        raise ValueError(f"hyper '{name}' is a dict, {dict(values)!r:.80}, but it is one number; {each}.")
    short = {label.rpartition("/")[2]: label for label in labels}
    full = {short.get(key, key): value for key, value in values.items()}
    if set(full) != set(labels):
        raise ValueError(f"hyper '{name}' has values for {sorted(values)}; pass one for each of {list(labels)}.")
    return [full[label] for label in labels]


def _start(name: str, initial: Any, low: float, high: float, labels: Sequence[str]) -> np.ndarray:
    """The user's initial value or the default; broadcast to a vector with an entry for each of the labels, if any."""
    initial = _in_order(name, initial, labels) if isinstance(initial, Mapping) else initial
    value = np.asarray(np.clip(TUNABLES[name].start, low, high) if initial is None else initial, np.float64)
    if not np.all((low <= value) & (value <= high)):
        raise ValueError(
            f"hyper '{name}' starts at {value.tolist()}, outside its range [{low:g}, {high:g}]; start inside it, or pass "
            f"ranges={{'{name}': (low, high)}}."
        )
    try:
        return np.broadcast_to(value, [len(labels)] if labels else []).copy()
    except ValueError:
        each = f", or per_layer=['{name}'] with one for each layer that has weights" if name in PER_LAYER else ""
        expected = (
            f"one number, or {len(labels)} numbers, for {', '.join(labels)}"
            if labels
            else f"one number{each} (a range is ranges=...)"
        )
        raise ValueError(f"hyper '{name}' has shape {list(value.shape)}; pass {expected}.") from None

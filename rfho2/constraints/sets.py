"""Constraint sets for hypers, each with its exact Euclidean projection.

`project(x)` is the point of the set nearest to x. It returns exact zeros, and returns points of the set unchanged, so that
projecting again changes no bit. NaN raises an error eagerly; inside a graph it propagates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import tensorflow as tf

from rfho2.constraints.projections import clipped_to_sum, direction_and_length

Array = Any
"""A number, an array or a tensor."""


@runtime_checkable
class Constraint(Protocol):
    """A closed convex set. Any object with these two methods can be used."""

    def project(self, x: tf.Tensor) -> tf.Tensor:
        """The point of the set nearest to x."""

    def contains(self, x: tf.Tensor, atol: float | None = None) -> tf.Tensor:
        """Whether x is in the set, up to `atol` in sums and norms; signs, bounds and symmetry are exact."""


@dataclass(frozen=True)
class Box:
    """{x : low <= x <= high}; the bounds are numbers or arrays that broadcast against x.

    >>> Box(0.0, 1.0).project(tf.constant([-1.0, 0.5, 2.0])).numpy().tolist()
    [0.0, 0.5, 1.0]
    """

    low: Array
    high: Array

    def __post_init__(self) -> None:
        if not np.all(np.asarray(self.low) <= np.asarray(self.high)):
            raise ValueError(f"Box: low {self.low} has to be at most high {self.high} everywhere (and neither NaN).")

    def project(self, x: tf.Tensor) -> tf.Tensor:
        """Each entry clipped to its bounds."""
        x = _checked(x)
        return tf.clip_by_value(x, *_like(x, self.low, self.high))

    def contains(self, x: tf.Tensor, atol: float | None = None) -> tf.Tensor:
        """Whether every entry is within its bounds, exactly unless `atol` is given."""
        x = tf.convert_to_tensor(x)
        low, high, slack = _like(x, self.low, self.high, atol or 0.0)
        return tf.reduce_all((x >= low - slack) & (x <= high + slack))


class NonNegative(Box):
    """{x : x >= 0}.

    >>> NonNegative().project(tf.constant([-1.0, 2.0])).numpy().tolist()
    [0.0, 2.0]
    """

    def __init__(self) -> None:
        super().__init__(0.0, math.inf)

    def contains(self, x: tf.Tensor, atol: float | None = None) -> tf.Tensor:
        """Whether no entry is negative; signs are exact, whatever `atol`."""
        return super().contains(x)

    def __repr__(self) -> str:
        return "NonNegative()"


@dataclass(frozen=True)
class BoxL1Ball:
    """`{x : low <= x <= high, sum |x| <= radius}`: bounded entries and a bounded sum (data hyper-cleaning).

    The projection is x_i = clip(soft(y_i, tau), low, high), where soft(y, tau) is soft thresholding, with the least tau >= 0
    that keeps the sum within the radius. tau is found exactly, from the sorted points at which an entry reaches a bound. The
    projection is *not* clipping followed by an L1 projection.

    >>> BoxL1Ball(1.5).project(tf.constant([3.0, 0.9, 0.9])).numpy().round(6).tolist()
    [1.0, 0.25, 0.25]
    """

    radius: float
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        _check_size(self, "radius", self.radius)
        if not self.low <= self.high:
            raise ValueError(f"{self}: low has to be at most high.")

    def project(self, x: tf.Tensor) -> tf.Tensor:
        """The nearest point, as described above."""
        x = _checked(x)
        inside = tf.clip_by_value(x, *_like(x, self.low, self.high))
        return tf.where(_within(inside, self.radius, None), inside, self._shrunk(x))

    def contains(self, x: tf.Tensor, atol: float | None = None) -> tf.Tensor:
        """Whether x is in the set: bounds exactly, the sum up to `atol` (by default 4 eps sum |x|)."""
        x = tf.convert_to_tensor(x)
        return Box(self.low, self.high).contains(x) & _within(x, self.radius, atol)

    def _shrunk(self, y: tf.Tensor) -> tf.Tensor:
        # |x_i| = clip(u_i - tau, a, b_i), x_i = s_i |x_i|, where s_i is the sign of y_i, or the only sign in the box.
        n, least = _entries(self, y), max(0.0, self.low, -self.high)  # 0 first: of 0 and -0, max takes the first
        if least * n > self.radius * (1 + 1e-12):
            raise ValueError(f"{self} is empty for {n} entries: each is at least {least} in size. Raise the radius.")
        negative = y < 0 if self.low < 0 < self.high else tf.fill(y.shape, self.low < 0)
        size = clipped_to_sum(tf.where(negative, -y, y), negative, least, (self.high, -self.low), self.radius)
        return tf.where(negative & (size > 0), -size, size)


@dataclass(frozen=True)
class L1Ball:
    """`{x : sum |x| <= radius}`.

    >>> L1Ball(1.0).project(tf.constant([2.0, -1.5, 0.1])).numpy().tolist()
    [0.75, -0.25, 0.0]
    """

    radius: float

    def __post_init__(self) -> None:
        _check_size(self, "radius", self.radius)

    def project(self, x: tf.Tensor) -> tf.Tensor:
        """Soft thresholding at the level that reduces the sum to the radius."""
        return BoxL1Ball(self.radius, -math.inf, math.inf).project(x)

    def contains(self, x: tf.Tensor, atol: float | None = None) -> tf.Tensor:
        """Whether x is in the set: the sum up to `atol` (by default 4 eps sum |x|)."""
        return _within(tf.convert_to_tensor(x), self.radius, atol)


@dataclass(frozen=True)
class Simplex:
    """{x : x >= 0, sum x = total}.

    >>> Simplex().project(tf.constant([0.5, 1.0, -3.0])).numpy().tolist()
    [0.25, 0.75, 0.0]
    """

    total: float = 1.0

    def __post_init__(self) -> None:
        _check_size(self, "total", self.total)

    def project(self, x: tf.Tensor) -> tf.Tensor:
        """max(x - tau, 0), with tau such that the sum is `total`."""
        x = _checked(x)
        if _entries(self, x) == 0 and self.total > 0:
            raise ValueError(f"{self} is empty for 0 entries.")
        projected = clipped_to_sum(x, tf.fill(x.shape, False), 0.0, (math.inf, math.inf), self.total)
        return tf.where(self.contains(x), x, projected)

    def contains(self, x: tf.Tensor, atol: float | None = None) -> tf.Tensor:
        """Whether x is in the set: signs exactly, the sum up to `atol` (by default 4 eps sum |x|)."""
        x = tf.convert_to_tensor(x)
        total = tf.reduce_sum(tf.cast(x, tf.float64))
        return tf.reduce_all(x >= 0) & (tf.abs(total - self.total) <= _slack(x, atol)) & (total < math.inf)


@dataclass(frozen=True)
class L2Ball:
    """`{x : ||x||_2 <= radius}`, over all entries.

    >>> L2Ball(1.0).project(tf.constant([3.0, 4.0], tf.float64)).numpy().round(6).tolist()
    [0.6, 0.8]
    """

    radius: float

    def __post_init__(self) -> None:
        _check_size(self, "radius", self.radius)

    def project(self, x: tf.Tensor) -> tf.Tensor:
        """x, scaled down to the radius if it is longer."""
        x = _checked(x)
        unit, _ = direction_and_length(x)
        return tf.where(self.contains(x), x, tf.cast(unit * self.radius, x.dtype))

    def contains(self, x: tf.Tensor, atol: float | None = None) -> tf.Tensor:
        """Whether x is in the set: the norm up to `atol` (by default 4 eps sum |x|)."""
        x = tf.convert_to_tensor(x)
        _, length = direction_and_length(x)
        return (length <= self.radius + _slack(x, atol)) & (length < math.inf)


@dataclass(frozen=True)
class SymmetricNonNegative:
    """{C : C = C^T, C >= 0, sum C <= total}: interactions between tasks; with `total` None the sum is unbounded.

    Without the symmetry, the set is convex and invariant under transposition; so its symmetric point nearest to C is the
    projection of (C + C^T) / 2.

    >>> SymmetricNonNegative().project(tf.constant([[1.0, 4.0], [-2.0, -1.0]])).numpy().tolist()
    [[1.0, 1.0], [1.0, 0.0]]
    """

    total: float | None = None

    def __post_init__(self) -> None:
        if self.total is not None:
            _check_size(self, "total", self.total)

    def project(self, x: tf.Tensor) -> tf.Tensor:
        """Symmetrises, then projects onto the non-negative matrices with a bounded sum."""
        x = _square(self, _checked(x))
        symmetric = x / 2 + tf.transpose(x) / 2
        if self.total is None:
            return tf.maximum(symmetric, 0)
        return BoxL1Ball(self.total, 0.0, math.inf).project(symmetric)

    def contains(self, x: tf.Tensor, atol: float | None = None) -> tf.Tensor:
        """Whether x is in the set: symmetry and signs exactly, the sum up to `atol` (by default 4 eps sum |x|)."""
        x = _square(self, tf.convert_to_tensor(x))
        inside = tf.reduce_all(x == tf.transpose(x)) & tf.reduce_all(x >= 0)
        return inside if self.total is None else inside & _within(x, self.total, atol)


def _within(x: tf.Tensor, radius: float, atol: float | None) -> tf.Tensor:
    total = tf.reduce_sum(tf.abs(tf.cast(x, tf.float64)))
    return (total <= radius + _slack(x, atol)) & (total < math.inf)


def _slack(x: tf.Tensor, atol: float | None) -> tf.Tensor:
    if atol is not None:
        return tf.constant(atol, tf.float64)
    eps = float(np.finfo(x.dtype.as_numpy_dtype).eps)
    return 4 * eps * tf.reduce_sum(tf.abs(tf.cast(x, tf.float64)))


def _like(x: tf.Tensor, *values: Array) -> list[tf.Tensor]:
    """The values in the dtype of x; tf.cast would first round a Python number to float32."""
    return [tf.cast(v, x.dtype) if tf.is_tensor(v) else tf.constant(v, x.dtype) for v in values]


def _entries(constraint: Any, x: tf.Tensor) -> int:
    n = x.shape.num_elements()
    if n is None:
        raise ValueError(f"{constraint}: x has the unknown shape {x.shape}; give it a static one, with tf.ensure_shape.")
    return n


def _checked(x: tf.Tensor) -> tf.Tensor:
    x = tf.convert_to_tensor(x)
    if not x.dtype.is_floating:
        raise TypeError(f"project: x has dtype {x.dtype.name}; pass a floating tensor.")
    if tf.executing_eagerly() and bool(tf.reduce_any(tf.math.is_nan(x))):
        raise ValueError(f"project: x has NaN among its {x.shape.num_elements()} entries; there is no nearest point to it.")
    return x


def _square(constraint: SymmetricNonNegative, x: tf.Tensor) -> tf.Tensor:
    if x.shape.rank != 2 or x.shape[0] != x.shape[1]:
        raise ValueError(f"{constraint}: x has shape {list(x.shape)}; pass a square matrix.")
    return x


def _check_size(constraint: Any, argument: str, value: float) -> None:
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"{type(constraint).__name__}: {argument} is {value}; it has to be finite and at least 0.")

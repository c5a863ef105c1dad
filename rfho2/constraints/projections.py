"""Arithmetic that projections share: the shift that gives a sum, and the direction and length of a vector."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from rfho2.core import loops


def clipped_to_sum(
    u: tf.Tensor, second_bound: tf.Tensor, least: float, most: tuple[float, float], total: float
) -> tf.Tensor:
    """clip(u - tau, least, b), tau such that the entries sum to `total`; b is most[1] where `second_bound`, else most[0].

    The sum decreases with tau, and is linear between the points u - least and u - b. Bisection finds the two neighbouring
    points around tau, and the linear equation between them is solved. All sums are computed directly, in float64: running
    sums would lose small entries next to huge ones.
    """
    dtype, shape, n = u.dtype, u.shape, u.shape.num_elements()
    if n == 0:
        return u
    limit = dtype.max / 4  # infinite entries count as very large
    u = tf.clip_by_value(tf.reshape(tf.cast(u, tf.float64), [-1]), -limit, limit)
    levels = [tf.constant(min(level, total), tf.float64) for level in (least, *most)]
    a, b = levels[0], tf.where(tf.reshape(second_bound, [-1]), levels[2], levels[1])

    def too_large(tau: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.clip_by_value(u - tau, a, b)) > total

    # tau is at most `total` below the least entry at which the sum is small enough. Everything is measured from that entry,
    # and clipped where it no longer matters, so that huge entries keep their differences.
    ordered = tf.sort(u)
    pivot = ordered[_first_not(too_large, ordered)]
    u, ordered = (tf.clip_by_value(x - pivot, -2 * total, 2 * total) for x in (u, ordered))
    low, high = tf.constant(-total, tf.float64), tf.constant(0.0, tf.float64)
    for level in levels:
        points = ordered - level
        index = _first_not(too_large, points)
        for point in (points[tf.maximum(index - 1, 0)], points[index]):
            below = too_large(point)
            low = tf.where(below, tf.maximum(low, point), low)
            high = tf.where(below, high, tf.minimum(high, point))
    middle = (low + high) / 2
    free = (u - middle > a) & (u - middle < b)
    fixed = tf.reduce_sum(tf.where(free, tf.zeros_like(u), tf.clip_by_value(u - middle, a, b)))
    count = tf.reduce_sum(tf.cast(free, tf.float64))
    solved = tf.math.divide_no_nan(tf.reduce_sum(tf.where(free, u, tf.zeros_like(u))) + fixed - total, count)
    tau = tf.where(count > 0, solved, middle)
    return tf.cast(tf.reshape(tf.clip_by_value(u - tau, a, b), shape), dtype)


def _first_not(condition: Callable[[tf.Tensor], tf.Tensor], ordered: tf.Tensor) -> tf.Tensor:
    """The index of the first entry for which the condition does not hold, by bisection; the last index if there is none.

    All steps but the first are powers of two, so that no bounds have to be checked. They are a loop, because XLA would fuse
    them into one another, and compile for minutes.
    """
    size = ordered.shape[0]
    step = 2 ** (size.bit_length() - 1)

    def onward(carry: tuple[tf.Tensor, tf.Tensor], _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        last, step = carry  # the last entry for which the condition is known to hold
        probe = last + step
        return tf.where(condition(tf.gather(ordered, probe)), probe, last), step // 2

    last = tf.where(condition(ordered[step - 1]), size - step, -1)
    last, _ = loops.fold(onward, (last, tf.constant(step // 2)), 0, size.bit_length() - 1)
    return tf.minimum(last + 1, size - 1)


def direction_and_length(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """x / ||x|| and ||x||, without overflow; next to infinite entries, finite ones count as 0."""
    x = tf.cast(x, tf.float64)
    if x.shape.num_elements() == 0:
        return x, tf.zeros([], tf.float64)
    infinite = tf.math.is_inf(x)
    some = tf.reduce_any(infinite)
    x = tf.where(some & ~tf.math.is_nan(x), tf.where(infinite, tf.sign(x), tf.zeros_like(x)), x)
    largest = tf.reduce_max(tf.abs(x))
    scaled = tf.math.divide_no_nan(x, largest)
    norm = tf.norm(scaled)
    length = tf.where(some, tf.constant(math.inf, tf.float64), norm * largest)
    return tf.math.divide_no_nan(scaled, norm), length

"""Solvers for linear systems M v = b on nests, where M is given only by its products.

Each solver is one while loop, in graph mode and under XLA. Conditions are written so that a NaN ends the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from rfho2.core import loops, nest, ops
from rfho2.core.types import Nest

Product = Callable[[Nest], Nest]
"""v -> M v."""

POWER_STEPS = 10  # products spent on the largest eigenvalue


class Solution(NamedTuple):
    """An approximate solution.

    Attributes:
      v: the solution.
      products: the number of products that it took.
      curvature: the least p^T M p / p^T p along the directions of `cg`; infinite for the other solvers.
      residual: |M v - b| / |b|, as `solve` computes it; the solvers themselves leave it at 0.
    """

    v: Nest
    products: tf.Tensor
    curvature: tf.Tensor
    residual: tf.Tensor


def solve(solver: Callable[[Nest, Nest | None], Solution], product: Product, b: Nest, start: Nest | None) -> Solution:
    """Solves M v = b at a scale on which squares neither vanish nor overflow, and computes the true residual.

    The residual takes one more product, because the recursions of the solvers drift away from it in float32. If b is 0, then
    so is v, and no product is computed. If the residual is NaN, then so is v: a wrong result is never returned silently.
    """
    zero = tf.zeros([], nest.flatten(b)[0].dtype)

    def solved() -> Solution:
        sizes = [tf.reduce_max(tf.abs(leaf)) for leaf in nest.flatten(b) if leaf.shape.num_elements()]
        size = tf.reduce_max(tf.stack(sizes))
        unit = nest.map(lambda b: b / size, b)
        solution = solver(unit, None if start is None else nest.map(lambda v: v / size, start))
        residual = nest.norm(nest.map(tf.subtract, product(solution.v), unit)) / nest.norm(unit)
        v = nest.map(lambda v: tf.where(residual == residual, v * size, residual), solution.v)
        return Solution(v, solution.products, solution.curvature, residual)

    def nothing() -> Solution:
        return Solution(nest.zeros_like(b), tf.constant(0), zero + float("inf"), zero)

    nonzero = tf.reduce_any(tf.stack([tf.reduce_any(leaf != 0) for leaf in nest.flatten(b)]))  # true for NaN too
    return tf.cond(nonzero, solved, nothing)


def cg(product: Product, b: Nest, start: Nest | None, iterations: int, tolerance: tf.Tensor) -> Solution:
    """Conjugate gradients, for symmetric positive definite M; one product per iteration.

    Stops at a direction p without positive curvature, p^T M p <= 0, and returns the last good iterate; `curvature` is then
    at most 0.

    Args:
      product: v -> M v.
      b: the right-hand side.
      start: the starting point; None means 0, which saves a product.
      iterations: the largest number of iterations.
      tolerance: of the residual, relative to |b|.

    >>> cg(lambda v: 2.0 * v, tf.constant([2.0, 4.0]), None, 5, tf.constant(1e-6)).v.numpy().tolist()
    [1.0, 2.0]
    """
    v, r, products = _first_residual(product, b, start)
    target = _target(b, _meaningful(tolerance, b))

    def unfinished(carry: Nest) -> tf.Tensor:
        i, _, _, _, rr, curvature = carry
        return (i < iterations) & (rr > target) & (curvature > 0)

    def iterate(carry: Nest) -> Nest:
        i, v, r, p, rr, curvature = carry
        q = product(p)
        pq = nest.dot(p, q)
        curvature = tf.minimum(curvature, _ratio(pq, nest.dot(p, p)))
        alpha = _ratio(rr, tf.maximum(pq, 0))
        v, r = _add(v, alpha, p), _add(r, -alpha, q)
        before, rr = rr, nest.dot(r, r)
        return i + 1, v, r, _add(r, _ratio(rr, before), p), rr, curvature

    rr = nest.dot(r, r)
    i, v, _, _, _, curvature = loops.repeat(unfinished, iterate, (tf.constant(0), v, r, r, rr, _infinity(rr)))
    return Solution(v, products + i, curvature, tf.zeros_like(rr))


def bicgstab(product: Product, b: Nest, start: Nest | None, iterations: int, tolerance: tf.Tensor) -> Solution:
    """Stabilised biconjugate gradients, for any M; two products per iteration. Returns the iterate with the least residual.

    The arguments are those of `cg`.
    """
    v, r, products = _first_residual(product, b, start)
    target, shadow = _target(b, _meaningful(tolerance, b)), r

    def unfinished(carry: Nest) -> tf.Tensor:
        return (carry[0] < iterations) & (nest.dot(carry[2], carry[2]) > target)

    def iterate(carry: Nest) -> Nest:
        i, v, r, p, q, (rho, alpha, omega), (best, least) = carry
        before, rho = rho, nest.dot(shadow, r)
        p = _add(r, _ratio(rho * alpha, before * omega), _add(p, -omega, q))
        q = product(p)
        alpha = _ratio(rho, nest.dot(shadow, q))
        s = _add(r, -alpha, q)
        t = product(s)
        omega = _ratio(nest.dot(t, s), nest.dot(t, t))
        v, r = _add(_add(v, alpha, p), omega, s), _add(s, -omega, t)
        rr = nest.dot(r, r)
        best = nest.map(lambda new, old: tf.where(rr < least, new, old), v, best)
        return i + 1, v, r, p, q, (rho, alpha, omega), (best, tf.where(rr < least, rr, least))

    zeros, rr = nest.zeros_like(r), nest.dot(r, r)
    one = tf.ones_like(rr)
    carry = loops.repeat(unfinished, iterate, (tf.constant(0), v, r, zeros, zeros, (one, one, one), (v, rr)))
    return Solution(carry[-1][0], products + 2 * carry[0], _infinity(rr), tf.zeros_like(rr))


def normal(
    product: Product, transposed: Product, b: Nest, start: Nest | None, iterations: int, tolerance: tf.Tensor
) -> Solution:
    """Least squares, min |M v - b|, by conjugate gradients (CGLS), for any M; two products per iteration.

    Slow but steady: it needs about the square of the iterations that `cg` would need, and its residual never grows. The
    arguments are those of `cg`, and `transposed` is v -> M^T v.
    """
    v, r, products = _first_residual(product, b, start)
    target = _target(b, _meaningful(tolerance, b))

    def unfinished(carry: Nest) -> tf.Tensor:
        i, _, r, _, gamma = carry
        return (i < iterations) & (nest.dot(r, r) > target) & (gamma > 0)

    def iterate(carry: Nest) -> Nest:
        i, v, r, p, gamma = carry
        q = product(p)
        alpha = _ratio(gamma, nest.dot(q, q))
        v, r = _add(v, alpha, p), _add(r, -alpha, q)
        s = transposed(r)
        before, gamma = gamma, nest.dot(s, s)
        return i + 1, v, r, _add(s, _ratio(gamma, before), p), gamma

    s = transposed(r)
    gamma = nest.dot(s, s)
    i, v, _, _, _ = loops.repeat(unfinished, iterate, (tf.constant(0), v, r, s, gamma))
    return Solution(v, products + 1 + 2 * i, _infinity(gamma), tf.zeros_like(gamma))


def fixed_point(
    product: Callable[[Nest, tf.Tensor], Nest],
    b: Nest,
    start: Nest | None,
    iterations: int,
    tolerance: tf.Tensor | None,
    rate: tf.Tensor | float = 1.0,
) -> Solution:
    """v <- v + rate (b - M v), `iterations` times; from 0, the first iteration takes no product and gives rate b.

    With M = I - A^T and rate 1 this is v <- A^T v + b, the partial sums of the Neumann series. It converges if every
    eigenvalue of I - rate M is inside the unit circle.

    Args:
      product: (v, i) -> M_i v; each iteration i may use the matrix of a different batch.
      b, start, iterations: as in `cg`.
      tolerance: of the residual before the last update, relative to |b|; None runs all iterations.
      rate: the step length.
    """
    target = None if tolerance is None else _target(b, tolerance)

    def unfinished(carry: Nest) -> tf.Tensor:
        i, _, rr = carry
        return (i < iterations) if target is None else (i < iterations) & (rr > target)

    def iterate(carry: Nest) -> Nest:
        i, v, _ = carry
        r = nest.map(tf.subtract, b, product(v, i))
        return i + 1, _add(v, rate, r), nest.dot(r, r)

    first = 0 if start is not None else 1
    v = start if start is not None else nest.map(lambda b: rate * b, b)
    i, v, rr = loops.repeat(unfinished, iterate, (tf.constant(first), v, _infinity(nest.dot(b, b))))
    return Solution(v, i - first, _infinity(rr), tf.zeros_like(rr))


def largest_eigenvalue(product: Product, like: Nest) -> tf.Tensor:
    """The largest |eigenvalue| of a symmetric M, by power iteration from a fixed random vector; slightly too small."""

    def iterate(carry: Nest, _: tf.Tensor) -> Nest:
        v = product(carry[0])
        size = nest.norm(v)
        return nest.map(lambda v: _ratio(v, size), v), size

    v = _random(7, like)
    size = nest.norm(v)
    return loops.fold(iterate, (nest.map(lambda v: v / size, v), size), 0, POWER_STEPS)[1]


def asymmetry(product: Product, like: Nest) -> tf.Tensor:
    """|u^T M v - v^T M u| for two random u and v, relative to the larger of the two: 0 if M is symmetric. Two products."""
    u, v = _random(8, like), _random(9, like)
    left, right = nest.dot(u, product(v)), nest.dot(v, product(u))
    return _ratio(tf.abs(left - right), tf.maximum(tf.abs(left), tf.abs(right)))


def _random(seed: int, like: Nest) -> Nest:
    """A fixed vector with entries uniform in [-1/2, 1/2)."""
    leaves = enumerate(nest.flatten(like))
    return nest.pack(like, [ops.uniform(tf.constant([seed, i]), tuple(x.shape), x.dtype) - 0.5 for i, x in leaves])


def _first_residual(product: Product, b: Nest, start: Nest | None) -> tuple[Nest, Nest, int]:
    """v, b - M v, and the number of products that it took."""
    if start is None:
        return nest.zeros_like(b), b, 0
    return start, nest.map(tf.subtract, b, product(start)), 1


def _meaningful(tolerance: tf.Tensor, b: Nest) -> tf.Tensor:
    """The tolerance, but at least the rounding error of the dtype.

    A residual that is updated instead of recomputed would keep falling to the smallest numbers, whose quotients lead away
    from the solution.
    """
    dtype = nest.flatten(b)[0].dtype
    return tf.maximum(tf.cast(tolerance, dtype), np.finfo(dtype.as_numpy_dtype).eps)


def _target(b: Nest, tolerance: tf.Tensor) -> tf.Tensor:
    """The squared residual at which to stop, relative to b: the first residual may be small already, after a warm start."""
    return tf.square(tf.cast(tolerance, nest.flatten(b)[0].dtype)) * nest.dot(b, b)


def _add(v: Nest, factor: tf.Tensor | float, direction: Nest) -> Nest:
    """v + factor direction."""
    return nest.map(lambda v, d: v + factor * d, v, direction)


def _ratio(numerator: tf.Tensor, denominator: tf.Tensor) -> tf.Tensor:
    """numerator / denominator, 0 if the denominator is 0: a method that breaks down stops moving."""
    nonzero = denominator != 0
    return tf.where(nonzero, numerator / tf.where(nonzero, denominator, tf.ones_like(denominator)), tf.zeros_like(numerator))


def _infinity(like: tf.Tensor) -> tf.Tensor:
    return tf.fill(like.shape, tf.constant(float("inf"), like.dtype))

"""Constraint sets for tests, and an independent projection: the conditions of optimality, solved in rational arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf

INF = math.inf
N = 6  # entries of a vector; matrices are 3 x 3

SIMPLEXES = [rf.Simplex(), rf.Simplex(0.3)]
BALLS = [
    rf.L1Ball(0.7),
    rf.BoxL1Ball(1.5),
    rf.BoxL1Ball(1.5, -0.375, 0.625),
    rf.BoxL1Ball(1.5, 0.125, 0.75),
    rf.BoxL1Ball(1.5, -0.75, -0.125),
    rf.BoxL1Ball(1.5, -1.0, 0.0),
    rf.BoxL1Ball(1.5, -INF, INF),
    rf.BoxL1Ball(1.5, -INF, 0.25),
    rf.BoxL1Ball(1.5, 0.125, INF),
    rf.BoxL1Ball(1.5, -INF, -0.125),
]
BOXES = [
    rf.NonNegative(),
    rf.Box(-0.5, 0.75),
    rf.Box(-INF, 0.25),
    rf.Box(np.linspace(-1.0, 0.25, N), np.linspace(0.0, 0.5, N)),
]
MATRICES = [rf.SymmetricNonNegative(), rf.SymmetricNonNegative(2.0)]
SETS = [*SIMPLEXES, *BALLS, *BOXES, rf.L2Ball(0.75), *MATRICES]
SUMS = [
    rf.Simplex(),
    rf.L1Ball(1.5),
    rf.L2Ball(1.5),
    rf.BoxL1Ball(1.5),
    rf.BoxL1Ball(1.5, -0.5, 0.75),
    rf.BoxL1Ball(1.5, 0.125),
]

every_set = pytest.mark.parametrize("constraint", SETS, ids=lambda c: repr(c)[:60])
both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
quick_in_float64 = pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.slow), np.float64])


def shape_for(constraint):
    return (3, 3) if isinstance(constraint, rf.SymmetricNonNegative) else (N,)


def eps(dtype):
    return float(np.finfo(dtype).eps)


def project(constraint, y, dtype=np.float64):
    y = np.asarray(y, dtype)
    x = constraint.project(tf.constant(y)).numpy()
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    return x


GRAPHS = {}


def project_in_graph(constraint, y, dtype=np.float64):
    """As in an update; one tf.function for each set, since tracing takes longer than all the rest."""
    graph = GRAPHS.setdefault(id(constraint), tf.function(constraint.project, autograph=False))
    return graph(tf.constant(y, dtype)).numpy()


def contains(constraint, x, atol=None):
    return bool(constraint.contains(tf.constant(x), atol))


def assert_same_bits(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), (a, b)


# An independent reference: the conditions of optimality, solved in rational arithmetic.


def fractions(values):
    """Exact; an infinite entry is one far beyond the range of floats."""
    return [Fraction(float(v)) if math.isfinite(v) else Fraction(10) ** 400 * (1 if v > 0 else -1) for v in np.ravel(values)]


def soft(y, tau):
    """argmin of (x - y)^2 / 2 + tau |x|; in an interval it is this one clipped, since the function is convex."""
    return max(abs(y) - tau, Fraction(0)) * (1 if y > 0 else -1)


def on_line(total, curve, taus):
    """curve(tau) at the tau where sum |curve| = total, the sum being decreasing and linear between the `taus`."""
    size = lambda tau: sum(map(abs, curve(tau)))  # noqa: E731
    left = max((t for t in taus if size(t) >= total), default=min(taus) - total)
    right = min((t for t in taus if size(t) <= total), default=max(taus))
    fall = size(left) - size(right)
    return curve(left if fall == 0 else left + (right - left) * (size(left) - total) / fall)


def box_l1_reference(y, radius, low, high):
    y, radius = fractions(y), Fraction(radius)
    low, high = (Fraction(v) if math.isfinite(v) else v for v in (low, high))
    bounds = [v for v in (low, high, Fraction(0)) if math.isfinite(v)]
    taus = {Fraction(0)} | {abs(v - bound) for v in y for bound in bounds}
    curve = lambda tau: [min(max(soft(v, tau), low), high) for v in y]  # noqa: E731
    inside = curve(Fraction(0))
    return inside if sum(map(abs, inside)) <= radius else on_line(radius, curve, taus)


def reference(constraint, y):
    """The projection in float64, from other formulas than the library's."""
    y = np.asarray(y)
    match constraint:
        case rf.Simplex(total=total):
            values, total = fractions(y), Fraction(total)
            taus = [*values, max(values) - total, min(values) - total]
            x = on_line(total, lambda tau: [max(v - tau, Fraction(0)) for v in values], taus)
        case rf.L1Ball(radius=radius):
            x = box_l1_reference(y, radius, -INF, INF)
        case rf.BoxL1Ball(radius=radius, low=low, high=high):
            x = box_l1_reference(y, radius, low, high)
        case rf.L2Ball(radius=radius):
            scaled = np.where(np.isinf(y), np.sign(y), 0.0) if np.isinf(y).any() else np.float64(y)
            length = math.hypot(*scaled.ravel())
            x = y if length <= radius and np.isfinite(y).all() else [float(v) / length * radius for v in scaled.ravel()]
        case rf.SymmetricNonNegative(total=total):
            symmetric = (np.float64(y) + np.float64(y).T) / 2
            x = np.maximum(symmetric, 0) if total is None else box_l1_reference(symmetric, total, 0.0, INF)
        case rf.Box(low=low, high=high):
            x = np.clip(np.float64(y), low, high)
    return np.array([float(v) for v in np.ravel(x)]).reshape(y.shape)


def feasible(constraint, rng, dtype):
    """A random point of the set, often on its boundary or at a corner, without the help of `project`."""
    shape = shape_for(constraint)
    sparse = rng.random(shape) < rng.choice([0.2, 0.5, 1.0])
    sparse.flat[rng.integers(sparse.size)] = True
    direction = rng.normal(size=shape) * sparse
    match constraint:
        case rf.Simplex(total=total):
            x = np.abs(direction) / np.abs(direction).sum() * total
        case rf.L2Ball(radius=radius):
            x = direction / np.linalg.norm(direction) * radius * rng.choice([1.0, rng.random()]) * (1 - eps(dtype))
        case rf.L1Ball(radius=radius):
            x = within(direction, np.zeros(shape), radius, rng, dtype)
        case rf.BoxL1Ball(radius=radius, low=low, high=high):
            least = np.full(shape, np.clip(0.0, low, high))
            target = np.clip(rng.choice([1.0, 100.0]) * direction, max(low, -2 * radius), min(high, 2 * radius))
            x = within(np.where(sparse, target, least), least, radius, rng, dtype)
        case rf.SymmetricNonNegative(total=total):
            x = np.abs(direction + direction.T)
            x = x if total is None else within(x, np.zeros(shape), total, rng, dtype)
        case rf.Box(low=low, high=high):
            x = np.clip(3 * direction, low, high)
    return np.asarray(x, dtype) + dtype(0)  # no negative zeros


def within(target, least, radius, rng, dtype):
    """On the segment from `least` to `target`, at its end in the ball or before; signs do not change along it."""
    size, longest = np.abs(least).sum(), np.abs(target).sum()
    share = 1.0 if longest <= radius else (radius - size) / (longest - size)
    return least + share * rng.choice([1.0, rng.random()]) * (1 - eps(dtype)) * (target - least)


def solver_conditions(constraint, y, point):
    """Bounds and conditions of a set for a general solver; its variables are the parts that `point` maps to x."""
    low, high = np.full(y.shape, -INF), np.full(y.shape, INF)
    conditions = []
    match constraint:
        case rf.Simplex(total=total):
            low = np.zeros(y.shape)
            conditions = [{"type": "eq", "fun": lambda parts: np.sum(point(parts)) - total}]
        case rf.L1Ball(radius=radius):
            conditions = [{"type": "ineq", "fun": lambda parts: radius - np.sum(parts)}]
        case rf.L2Ball(radius=radius):
            conditions = [{"type": "ineq", "fun": lambda parts: radius**2 - np.sum(point(parts) ** 2)}]
        case rf.BoxL1Ball(radius=radius):
            low, high = np.full(y.shape, constraint.low), np.full(y.shape, constraint.high)
            conditions = [{"type": "ineq", "fun": lambda parts: radius - np.sum(parts)}]
        case rf.SymmetricNonNegative(total=total):
            low = np.zeros(y.shape)
            upper = np.triu_indices(3, 1)
            skew = lambda parts: (point(parts).reshape(3, 3) - point(parts).reshape(3, 3).T)[upper]  # noqa: E731
            conditions = [{"type": "eq", "fun": skew}]
            if total is not None:
                conditions.append({"type": "ineq", "fun": lambda parts: total - np.sum(parts)})
        case rf.Box():
            low, high = np.broadcast_to(constraint.low, y.shape), np.broadcast_to(constraint.high, y.shape)
    return low, high, conditions

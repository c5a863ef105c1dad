"""Projections: feasible, idempotent to the bit, nearest (against rational arithmetic), and right on degenerate input."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import scipy.optimize
import tensorflow as tf

import rfho2 as rf
from tests.support.seeds import seed

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


# What holds of every set


@both_dtypes
@every_set
def test_projection_is_feasible_idempotent_and_equal_to_the_reference(constraint, dtype):
    rng = np.random.default_rng(seed(1))
    for scale in (0.2, 1.0, 1.0, 5.0, 20.0, 20.0, 1000.0):
        y = np.asarray(scale * rng.normal(size=shape_for(constraint)), dtype)
        x = project_in_graph(constraint, y, dtype)
        assert contains(constraint, x)
        assert_same_bits(project_in_graph(constraint, x, dtype), x)
        right = reference(constraint, y)
        np.testing.assert_allclose(x, right, rtol=0, atol=8 * eps(dtype) * max(1.0, np.abs(y).max()))
        np.testing.assert_array_equal(x == 0, right == 0)


@both_dtypes
@every_set
def test_projection_makes_an_obtuse_angle_with_random_feasible_points(constraint, dtype):
    rng = np.random.default_rng(seed(2))
    for scale in (1.0, 10.0):
        y = np.asarray(scale * rng.normal(size=shape_for(constraint)), dtype)
        x = np.float64(project_in_graph(constraint, y, dtype))
        for _ in range(100):
            z = np.float64(feasible(constraint, rng, dtype))
            inner = np.sum((y - x) * (z - x))
            assert inner <= 32 * eps(dtype) * np.linalg.norm(y - x) * (np.linalg.norm(z) + np.linalg.norm(x)), (y, z)


@both_dtypes
@every_set
def test_random_feasible_points_are_contained_and_their_own_projection_to_the_bit(constraint, dtype):
    rng = np.random.default_rng(seed(3))
    for _ in range(12):
        z = feasible(constraint, rng, dtype)
        assert contains(constraint, z), z
        assert_same_bits(project_in_graph(constraint, z, dtype), z)


@both_dtypes
@every_set
def test_projection_is_the_same_eagerly_and_in_a_graph(constraint, dtype):
    rng = np.random.default_rng(seed(4))
    y = np.asarray(3 * rng.normal(size=shape_for(constraint)), dtype)
    x, in_graph = project(constraint, y, dtype), project_in_graph(constraint, y, dtype)
    np.testing.assert_allclose(x, in_graph, rtol=0, atol=2 * eps(dtype) * max(1.0, np.abs(y).max()))
    np.testing.assert_array_equal(x == 0, in_graph == 0)
    assert_same_bits(project(constraint, x, dtype), x)


@pytest.mark.parametrize("constraint", [rf.BoxL1Ball(1.5, -0.5, 0.75), rf.Simplex(), rf.L2Ball(0.75)], ids=repr)
def test_projection_agrees_under_jit(constraint):
    y = tf.constant(np.random.default_rng(seed(5)).normal(size=N))
    jit = tf.function(constraint.project, autograph=False, jit_compile=True)
    np.testing.assert_allclose(jit(y), constraint.project(y), rtol=0, atol=1e-14)


@every_set
def test_projection_agrees_with_a_general_solver(constraint):
    y = 2 * np.random.default_rng(seed(6)).normal(size=shape_for(constraint))
    size = y.size  # the variables are the positive and the negative parts, so that sum |x| is smooth
    point = lambda parts: parts[:size] - parts[size:]  # noqa: E731
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
    for bound, sign in ((low, 1), (high, -1)):
        finite = np.isfinite(bound).ravel()
        if finite.any():
            inside = partial(
                lambda parts, bound, sign, finite: sign * (point(parts) - bound.ravel())[finite],
                bound=bound,
                sign=sign,
                finite=finite,
            )
            conditions.append({"type": "ineq", "fun": inside})
    found = scipy.optimize.minimize(
        lambda parts: 0.5 * np.sum((point(parts) - y.ravel()) ** 2),
        np.full(2 * size, 0.1),
        jac=lambda parts: np.concatenate([point(parts) - y.ravel(), y.ravel() - point(parts)]),
        bounds=[(0, None)] * (2 * size),
        constraints=conditions,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(project(constraint, y).ravel(), point(found.x), atol=2e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 20_000])
@both_dtypes
def test_projection_of_many_random_entries_agrees_with_bisection(dtype, n):
    y = np.asarray(np.random.default_rng(seed(7)).normal(0.5, 1.0, n), dtype)
    radius = 0.25 * n
    x = project(rf.BoxL1Ball(radius), y, dtype)
    low, high = 0.0, float(np.abs(y).max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(np.float64(y) - middle, 0, 1).sum() > radius else (low, middle)
    np.testing.assert_allclose(x, np.clip(np.float64(y) - high, 0, 1), rtol=0, atol=8 * eps(dtype))
    assert contains(rf.BoxL1Ball(radius), x)
    assert_same_bits(project(rf.BoxL1Ball(radius), x, dtype), x)


@pytest.mark.parametrize("shape", [(), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("constraint", SUMS, ids=repr)
def test_projection_of_any_rank_is_that_of_the_flat_entries(constraint, shape):
    y = np.asarray(3 * np.random.default_rng(seed(8)).normal(size=shape))
    np.testing.assert_array_equal(project(constraint, y).ravel(), project(constraint, y.ravel()))


# Values known in closed form


@both_dtypes
@pytest.mark.parametrize(
    ("constraint", "y", "right"),
    [
        (rf.BoxL1Ball(1.5), [3.0, 0.9, 0.9], [1.0, 0.25, 0.25]),
        (rf.BoxL1Ball(1.5), [-3.0, 0.25, 5.0], [0.0, 0.25, 1.0]),
        (rf.BoxL1Ball(1.5, -1.0, 1.0), [-3.0, 0.9, -0.9], [-1.0, 0.25, -0.25]),
        (rf.BoxL1Ball(1.0, 0.25, 1.0), [2.0, -7.0, 0.0], [0.5, 0.25, 0.25]),
        (rf.BoxL1Ball(1.0, -1.0, -0.25), [-2.0, 7.0, 0.0], [-0.5, -0.25, -0.25]),
        (rf.BoxL1Ball(1.0, 0.5, 1.0), [2.0, -7.0], [0.5, 0.5]),
        (rf.L1Ball(1.0), [2.0, -1.5, 0.125], [0.75, -0.25, 0.0]),
        (rf.L1Ball(1.0), [1.0, 1.0, -1.0, 1.0], [0.25, 0.25, -0.25, 0.25]),
        (rf.Simplex(), [0.5, 1.0, -3.0], [0.25, 0.75, 0.0]),
        (rf.Simplex(), [-4.0, -4.0], [0.5, 0.5]),
        (rf.L2Ball(1.25), [3.0, -4.0], [0.75, -1.0]),
        (rf.NonNegative(), [-1.0, 2.0, 0.0], [0.0, 2.0, 0.0]),
        (rf.Box([0.0, -1.0], [1.0, -0.5]), [2.0, 3.0], [1.0, -0.5]),
        (rf.SymmetricNonNegative(), [[1.0, 4.0], [-2.0, -1.0]], [[1.0, 1.0], [1.0, 0.0]]),
        (rf.SymmetricNonNegative(2.0), [[1.0, 4.0], [-2.0, -1.0]], [[2 / 3, 2 / 3], [2 / 3, 0.0]]),
        (rf.SymmetricNonNegative(1.0), [[0.0, 3.0], [3.0, 0.0]], [[0.0, 0.5], [0.5, 0.0]]),
    ],
    ids=lambda v: str(v)[:50],
)
def test_projection_by_hand(constraint, y, right, dtype):
    np.testing.assert_allclose(project(constraint, y, dtype), np.asarray(right, dtype), rtol=0, atol=2 * eps(dtype))


@pytest.mark.parametrize("constraint", [c for c in SETS if not isinstance(c, rf.Simplex)], ids=lambda c: repr(c)[:60])
@both_dtypes
def test_projection_of_zeros_is_the_feasible_point_nearest_to_zero(constraint, dtype):
    right = np.zeros(shape_for(constraint))
    if hasattr(constraint, "low"):
        right = np.clip(right, constraint.low, constraint.high)
    np.testing.assert_array_equal(project(constraint, np.zeros(right.shape), dtype), right)


@pytest.mark.parametrize(
    "constraint",
    [rf.L1Ball(0.0), rf.L2Ball(0.0), rf.BoxL1Ball(0.0), rf.BoxL1Ball(0.0, -1.0, 1.0), rf.Simplex(0.0), rf.Box(0.0, 0.0)],
    ids=repr,
)
@pytest.mark.parametrize("y", [[3.0, -1.0, 0.0], [0.0, 0.0], [-2.0], [1e30, 1e30]], ids=str)
@both_dtypes
def test_projection_on_the_origin_alone(constraint, y, dtype):
    np.testing.assert_array_equal(project(constraint, y, dtype), np.zeros(len(y)))


def test_projection_on_no_total_is_the_zero_matrix():
    np.testing.assert_array_equal(project(rf.SymmetricNonNegative(0.0), [[1.0, 2.0], [-3.0, 4.0]]), np.zeros((2, 2)))


@both_dtypes
@pytest.mark.parametrize("value", [-5.0, 0.3, 5.0])
@pytest.mark.parametrize("constraint", [rf.Simplex(0.3), *BALLS, rf.Box(-0.3, 0.7), rf.L2Ball(0.3)], ids=repr)
def test_projection_of_one_entry(constraint, value, dtype):
    y = np.asarray([value], dtype)
    bounds = [np.asarray(getattr(constraint, name, sign * INF)) for name, sign in (("low", -1), ("high", 1))]
    radius = getattr(constraint, "radius", INF)
    right = np.clip(y, *bounds).clip(-radius, radius)
    if isinstance(constraint, rf.Simplex):
        right = np.array([constraint.total])
    np.testing.assert_array_equal(project(constraint, y, dtype), np.asarray(right, dtype))


@both_dtypes
def test_bounds_are_kept_to_the_precision_of_the_entries(dtype):
    np.testing.assert_array_equal(project(rf.Box(0.1, 0.7), [-1.0, 1.0], dtype), np.asarray([0.1, 0.7], dtype))
    np.testing.assert_array_equal(project(rf.BoxL1Ball(10.0, 0.1, 0.7), [-1.0, 1.0], dtype), np.asarray([0.1, 0.7], dtype))
    crowded = project(rf.BoxL1Ball(1.0, 0.1, 0.7), [-1.0, 9.0, 9.0], dtype)
    np.testing.assert_allclose(crowded, np.asarray([0.1, 0.45, 0.45], dtype), rtol=0, atol=2 * eps(dtype))
    assert not contains(rf.Box(0.0, 0.1), np.nextafter(np.asarray([0.1], dtype), dtype(1)))
    assert contains(rf.Box(0.1, 0.1), np.asarray([0.1], dtype))


@pytest.mark.parametrize("constraint", [*SIMPLEXES, *BALLS, rf.L2Ball(0.75)], ids=repr)
def test_projection_keeps_ties(constraint):
    x = project(constraint, [0.7, -2.0, 0.7, 0.7, -2.0, 0.1])
    assert x[0] == x[2] == x[3]
    assert x[1] == x[4]


@both_dtypes
def test_boundary_points_are_unchanged_to_the_bit(dtype):
    for constraint, y in (
        (rf.L1Ball(1.0), [0.5, -0.25, 0.25]),
        (rf.BoxL1Ball(1.5), [1.0, 0.5, 0.0]),
        (rf.Simplex(), [0.5, 0.5, 0.0]),
        (rf.Simplex(), [0.1] * 10),
        (rf.L1Ball(1.0), [0.1] * 10),
        (rf.L2Ball(1.0), [0.6, 0.8]),
        (rf.Box(0.0, 1.0), [0.0, 1.0]),
        (rf.SymmetricNonNegative(1.0), [[0.5, 0.25], [0.25, 0.0]]),
    ):
        y = np.asarray(y, dtype)
        assert contains(constraint, y), constraint
        assert_same_bits(project(constraint, y, dtype), y)


# Huge and infinite entries

HUGE = [
    [1e30, 0.9, 0.3],
    [1e30, 0.9, -0.3],
    [-1e30, 0.9, 0.3],
    [1e30, 1e30, 0.3],
    [1e30, 1e30, 1e30],
    [1e30, 1e25, 1e25],
    [1e30, 1e30, 1e25],
    [-1e30, -1e30, -1e30],
    [1e10, 1e10 + 4096.0, 0.0],
    [INF, 0.9, 0.3],
    [-INF, 0.9, 0.3],
    [INF, INF, 0.3],
    [INF, -INF, 0.3],
    [INF, 1e20, 1e20],
]


@both_dtypes
@pytest.mark.parametrize("y", HUGE, ids=str)
@pytest.mark.parametrize("constraint", SUMS, ids=repr)
def test_projection_of_huge_and_infinite_entries(constraint, y, dtype):
    y = np.asarray(y, dtype)
    assert not contains(constraint, y)
    x = project_in_graph(constraint, y, dtype)
    np.testing.assert_allclose(x, reference(constraint, y), rtol=0, atol=8 * eps(dtype))
    assert contains(constraint, x)
    assert_same_bits(project_in_graph(constraint, x, dtype), x)


@both_dtypes
@pytest.mark.parametrize("constraint", SUMS, ids=repr)
def test_projection_of_the_largest_numbers(constraint, dtype):
    y = np.full(4, np.finfo(dtype).max)
    assert not contains(constraint, y)
    even = 0.75 if isinstance(constraint, rf.L2Ball) else getattr(constraint, "radius", 1.0) / 4
    np.testing.assert_allclose(project(constraint, y, dtype), even, rtol=4 * eps(dtype))


@both_dtypes
@pytest.mark.parametrize("corner", [1e30, INF])
def test_projection_of_a_matrix_with_huge_entries(corner, dtype):
    right = np.diag([1.0, 0.0])
    np.testing.assert_allclose(
        project(rf.SymmetricNonNegative(1.0), [[corner, 2.0], [0.0, 0.5]], dtype), right, atol=eps(dtype)
    )
    pair = project(rf.SymmetricNonNegative(1.0), [[2.0, corner], [corner, 0.5]], dtype)
    np.testing.assert_allclose(pair, [[0.0, 0.5], [0.5, 0.0]], atol=eps(dtype))


@both_dtypes
def test_projection_on_a_box_clips_infinite_entries(dtype):
    np.testing.assert_array_equal(project(rf.Box(-1.0, 2.0), [INF, -INF, 1e30], dtype), [2.0, -1.0, 2.0])
    np.testing.assert_array_equal(project(rf.NonNegative(), [1e30, -INF, -1e30], dtype), np.asarray([1e30, 0.0, 0.0], dtype))


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
def test_the_norm_of_an_l2_ball_neither_overflows_nor_underflows(unit):
    ball = rf.L2Ball(unit)
    inside = unit * np.array([0.6, 0.7])
    assert_same_bits(project(ball, inside), inside)
    np.testing.assert_allclose(project(ball, unit * np.array([30.0, 40.0])), unit * np.array([0.6, 0.8]), rtol=1e-14)


@both_dtypes
@pytest.mark.parametrize("power", [-20, 20])
def test_projection_scales_with_the_set_and_the_random_point(power, dtype):
    unit, y = 2.0**power, 3 * np.random.default_rng(seed(9)).normal(size=N)
    for make in (rf.Simplex, rf.L1Ball, rf.L2Ball, lambda r: rf.BoxL1Ball(r, -r / 4, r / 2)):
        one, scaled = project(make(1.0), y, dtype), project(make(unit), unit * y, dtype)
        np.testing.assert_allclose(scaled, unit * one, rtol=0, atol=4 * eps(dtype) * unit)


# NaN, empty, wrong types


@every_set
def test_nan_is_refused_eagerly(constraint):
    y = np.zeros(shape_for(constraint))
    y.flat[1] = math.nan
    with pytest.raises(ValueError, match="NaN"):
        constraint.project(tf.constant(y))
    assert not contains(constraint, y)


@both_dtypes
@every_set
def test_nan_propagates_in_a_graph(constraint, dtype):
    for background in (0.0, 0.1, 5.0):
        for where in range(math.prod(shape_for(constraint))):
            y = np.full(shape_for(constraint), background)
            y.flat[where] = math.nan
            assert np.isnan(project_in_graph(constraint, y, dtype).flat[where])


@every_set
def test_integers_are_refused(constraint):
    with pytest.raises(TypeError, match=r"int32.*floating"):
        constraint.project(tf.ones(shape_for(constraint), tf.int32))


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 2, 2)], ids=str)
@pytest.mark.parametrize("constraint", MATRICES, ids=repr)
def test_only_square_matrices_can_be_symmetric(constraint, shape):
    for method in (constraint.project, constraint.contains):
        with pytest.raises(ValueError, match="square"):
            method(tf.ones(shape))


@pytest.mark.parametrize("constraint", [rf.BoxL1Ball(0.5, 0.5, 1.0), rf.BoxL1Ball(0.5, -1.0, -0.5)], ids=repr)
def test_an_empty_set_is_refused(constraint):
    for method in (constraint.project, tf.function(constraint.project, autograph=False)):
        with pytest.raises(ValueError, match="empty for 2 entries"):
            method(tf.ones(2))


@pytest.mark.parametrize(
    "constraint", [*BALLS, rf.NonNegative(), rf.Box(0.0, 1.0), rf.L2Ball(1.0), rf.Simplex(0.0)], ids=repr
)
@both_dtypes
def test_projection_of_no_entries(constraint, dtype):
    for shape in ((0,), (2, 0)):
        assert project(constraint, np.zeros(shape), dtype).shape == shape
        assert contains(constraint, np.zeros(shape, dtype))


@pytest.mark.parametrize("constraint", MATRICES, ids=repr)
def test_projection_of_a_matrix_without_entries(constraint):
    assert project(constraint, np.zeros((0, 0))).shape == (0, 0)


def test_a_simplex_of_no_entries_is_empty():
    assert not contains(rf.Simplex(), np.zeros(0))
    with pytest.raises(ValueError, match="empty"):
        rf.Simplex().project(tf.zeros(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rf.Box(1.0, 0.0), "low 1.0 .* high 0.0"),
        (lambda: rf.Box(math.nan, 1.0), "NaN"),
        (lambda: rf.Box([0.0, 2.0], 1.0), "low .* high"),
        (lambda: rf.BoxL1Ball(1.0, 2.0, 1.0), "low .* high"),
        (lambda: rf.BoxL1Ball(-1.0), "radius is -1.0"),
        (lambda: rf.L1Ball(math.nan), "radius is nan"),
        (lambda: rf.L2Ball(INF), "radius is inf"),
        (lambda: rf.Simplex(-1.0), "total is -1.0"),
        (lambda: rf.SymmetricNonNegative(-1.0), "total is -1.0"),
    ],
)
def test_arguments_that_make_no_set_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# contains


@both_dtypes
def test_contains_allows_four_roundings_of_the_sum_and_no_more(dtype):
    for constraint in (rf.L1Ball(1.0), rf.BoxL1Ball(1.0), rf.Simplex(1.0)):
        for excess, right in ((2, True), (8, False), (1000, False)):
            x = np.asarray([0.5, 0.5 + excess * eps(dtype)], dtype)
            assert contains(constraint, x) is right, (constraint, excess)
            assert contains(constraint, x, 2000 * eps(dtype))
            assert not contains(constraint, x, 0.0)
    matrix = np.asarray([[0.0, 0.5 + 8 * eps(dtype)], [0.5 + 8 * eps(dtype), 0.0]], dtype)
    assert not contains(rf.SymmetricNonNegative(1.0), matrix)
    assert contains(rf.SymmetricNonNegative(), matrix)
    assert not contains(rf.L2Ball(1.0), np.asarray([1 + 8 * eps(dtype)], dtype))
    assert not contains(rf.Simplex(), np.asarray([0.5, 0.25], dtype))


@both_dtypes
@pytest.mark.parametrize("atol", [None, 0.1])
def test_contains_is_exact_in_signs_bounds_and_symmetry(atol, dtype):
    tiny = float(np.finfo(dtype).tiny)
    for constraint in (rf.NonNegative(), rf.Simplex(), rf.BoxL1Ball(1.0)):
        assert not contains(constraint, np.asarray([1.0, -tiny], dtype), atol), constraint
    assert not contains(rf.BoxL1Ball(9.0), np.asarray([0.0, 1 + eps(dtype)], dtype), atol)
    for constraint in MATRICES:
        assert not contains(constraint, np.asarray([[0.0, -tiny], [-tiny, 0.0]], dtype), atol)
        assert not contains(constraint, np.asarray([[0.0, 0.5], [0.5 + eps(dtype), 0.0]], dtype), atol)


@pytest.mark.parametrize("value", [INF, -INF, math.nan])
def test_contains_is_false_of_what_is_not_finite(value):
    for constraint in (*SUMS, rf.Box(-1.0, 1.0)):
        assert not contains(constraint, np.array([value, 0.0, 0.0])), constraint
    assert not contains(rf.SymmetricNonNegative(1.0), np.array([[value, 0.0], [0.0, 0.0]]))

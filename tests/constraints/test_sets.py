"""Projections: feasible, idempotent to the bit, nearest (compared with rational arithmetic), and known values."""

from functools import partial

import numpy as np
import pytest
import scipy.optimize
import tensorflow as tf

import rfho2 as rf
from tests.support.projections import (
    BALLS,
    INF,
    SETS,
    SIMPLEXES,
    SUMS,
    N,
    assert_same_bits,
    both_dtypes,
    contains,
    eps,
    every_set,
    feasible,
    project,
    project_in_graph,
    quick_in_float64,
    reference,
    shape_for,
    solver_conditions,
)
from tests.support.seeds import seed

# What holds of every set


def test_zeros_have_no_sign():
    for constraint in (rf.L1Ball(1.0), rf.BoxL1Ball(1.0, -1.0, 1.0), rf.BoxL1Ball(1.0, -1.0, 0.0)):
        x = project(constraint, [-3.0, -0.1, 0.1])
        assert np.any(x == 0), constraint
        assert not np.any(np.signbit(x[x == 0])), constraint


@quick_in_float64
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


@quick_in_float64
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


@quick_in_float64
@every_set
def test_random_feasible_points_are_contained_and_their_own_projection_to_the_bit(constraint, dtype):
    rng = np.random.default_rng(seed(3))
    for _ in range(12):
        z = feasible(constraint, rng, dtype)
        assert contains(constraint, z), z
        assert_same_bits(project_in_graph(constraint, z, dtype), z)


@quick_in_float64
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
    low, high, conditions = solver_conditions(constraint, y, point)
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
    optimum = scipy.optimize.minimize(
        lambda parts: 0.5 * np.sum((point(parts) - y.ravel()) ** 2),
        np.full(2 * size, 0.1),
        jac=lambda parts: np.concatenate([point(parts) - y.ravel(), y.ravel() - point(parts)]),
        bounds=[(0, None)] * (2 * size),
        constraints=conditions,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(project(constraint, y).ravel(), point(optimum.x), atol=2e-5)


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
    [
        rf.L1Ball(0.0),
        rf.L2Ball(0.0),
        rf.BoxL1Ball(0.0),
        rf.BoxL1Ball(0.0, -1.0, 1.0),
        rf.BoxL1Ball(1.0, 0.0, 0.0),
        rf.Simplex(0.0),
        rf.Box(0.0, 0.0),
    ],
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

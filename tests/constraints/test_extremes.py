"""Projections of huge, infinite, NaN and empty input, and what is rejected."""

import math

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.projections import (
    BALLS,
    INF,
    MATRICES,
    SUMS,
    N,
    assert_same_bits,
    contains,
    eps,
    every_set,
    project,
    project_in_graph,
    quick_in_float64,
    reference,
    shape_for,
)
from tests.support.seeds import seed

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


@quick_in_float64
@pytest.mark.parametrize(
    "y", [*HUGE[::4], *(pytest.param(y, marks=pytest.mark.slow) for y in HUGE if y not in HUGE[::4])], ids=str
)
@pytest.mark.parametrize("constraint", SUMS, ids=repr)
def test_projection_of_huge_and_infinite_entries(constraint, y, dtype):
    y = np.asarray(y, dtype)
    assert not contains(constraint, y)
    x = project_in_graph(constraint, y, dtype)
    np.testing.assert_allclose(x, reference(constraint, y), rtol=0, atol=8 * eps(dtype))
    assert contains(constraint, x)
    assert_same_bits(project_in_graph(constraint, x, dtype), x)


@quick_in_float64
@pytest.mark.parametrize("constraint", SUMS, ids=repr)
def test_projection_of_the_largest_numbers(constraint, dtype):
    y = np.full(4, np.finfo(dtype).max)
    assert not contains(constraint, y)
    even = 0.75 if isinstance(constraint, rf.L2Ball) else getattr(constraint, "radius", 1.0) / 4
    np.testing.assert_allclose(project(constraint, y, dtype), even, rtol=4 * eps(dtype))


@quick_in_float64
@pytest.mark.parametrize("corner", [1e30, INF])
def test_projection_of_a_matrix_with_huge_entries(corner, dtype):
    right = np.diag([1.0, 0.0])
    np.testing.assert_allclose(
        project(rf.SymmetricNonNegative(1.0), [[corner, 2.0], [0.0, 0.5]], dtype), right, atol=eps(dtype)
    )
    pair = project(rf.SymmetricNonNegative(1.0), [[2.0, corner], [corner, 0.5]], dtype)
    np.testing.assert_allclose(pair, [[0.0, 0.5], [0.5, 0.0]], atol=eps(dtype))


@quick_in_float64
def test_projection_on_a_box_clips_infinite_entries(dtype):
    np.testing.assert_array_equal(project(rf.Box(-1.0, 2.0), [INF, -INF, 1e30], dtype), [2.0, -1.0, 2.0])
    np.testing.assert_array_equal(project(rf.NonNegative(), [1e30, -INF, -1e30], dtype), np.asarray([1e30, 0.0, 0.0], dtype))


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
def test_the_norm_of_an_l2_ball_neither_overflows_nor_underflows(unit):
    ball = rf.L2Ball(unit)
    inside = unit * np.array([0.6, 0.7])
    assert_same_bits(project(ball, inside), inside)
    np.testing.assert_allclose(project(ball, unit * np.array([30.0, 40.0])), unit * np.array([0.6, 0.8]), rtol=1e-14)


@quick_in_float64
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


@quick_in_float64
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
@quick_in_float64
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


@quick_in_float64
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


@quick_in_float64
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

"""Linear solvers on nests: the solution, what it costs, and what they do where there is none."""

import numpy as np
import pytest
import tensorflow as tf

from rfho2.core import linear

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(6, 6))
SPD = ROOT @ ROOT.T + np.eye(6)
ANY = np.eye(6) + 0.3 * RNG.normal(size=(6, 6))
B = RNG.normal(size=6)


def nested(vector):
    """Six entries as a nest: the solvers work on the structure of the weights."""
    return {"w": tf.reshape(vector[:4], [2, 2]), "b": (vector[4:],)}


def flat(v):
    return tf.concat([tf.reshape(v["w"], [-1]), v["b"][0]], 0)


def product(matrix):
    return lambda v: nested(tf.linalg.matvec(tf.constant(matrix, flat(v).dtype), flat(v)))


def solve(name, matrix, b=B, start=None, iterations=100, tolerance=1e-13, jit_compile=False, dtype=np.float64):
    solvers = {
        "cg": lambda b, v: linear.cg(product(matrix), b, v, iterations, tolerance),
        "bicgstab": lambda b, v: linear.bicgstab(product(matrix), b, v, iterations, tolerance),
        "normal": lambda b, v: linear.normal(product(matrix), product(matrix.T), b, v, iterations, tolerance),
        "fixed_point": lambda b, v: linear.fixed_point(
            lambda v, i: product(matrix)(v), b, v, iterations, tolerance, 1 / linear.largest_eigenvalue(product(matrix), b)
        ),
    }
    first = None if start is None else nested(tf.constant(start, dtype))
    run = tf.function(lambda b, v: linear.solve(solvers[name], product(matrix), b, v), jit_compile=jit_compile)
    return run(nested(tf.constant(b, dtype)), first)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["graph", "jit"])
@pytest.mark.parametrize(
    ("name", "matrix", "iterations"),
    [("cg", SPD, 20), ("bicgstab", ANY, 40), ("normal", ANY, 40), ("fixed_point", SPD, 3000)],
    ids=["cg", "bicgstab", "normal", "fixed_point"],
)
def test_the_solution_is_that_of_numpy(name, matrix, iterations, jit_compile):
    solution = solve(name, matrix, iterations=iterations, jit_compile=jit_compile)
    np.testing.assert_allclose(flat(solution.v), np.linalg.solve(matrix, B), rtol=1e-10)
    assert float(solution.residual) < 1e-12
    assert int(solution.products) <= 2 * iterations + 1


def test_a_solver_makes_as_many_products_as_its_iterations_take():
    counts = {
        name: [int(solve(name, SPD, iterations=k, tolerance=0.0).products) for k in (1, 3)] for name in ("cg", "normal")
    }
    assert counts == {"cg": [1, 3], "normal": [3, 7]}


def test_cg_ends_after_as_many_products_as_there_are_eigenvalues():
    solution = solve("cg", np.diag([1.0, 1, 3, 3, 7, 7]), tolerance=1e-10)
    assert int(solution.products) == 3
    assert 1 <= float(solution.curvature) <= 7


def test_an_identity_takes_one_product():
    solution = solve("cg", np.eye(6))
    np.testing.assert_allclose(flat(solution.v), B, rtol=1e-15)
    assert int(solution.products) == 1
    assert float(solution.curvature) == 1.0


@pytest.mark.parametrize("name", ["cg", "bicgstab", "normal", "fixed_point"])
def test_nothing_is_computed_for_a_right_hand_side_of_zero(name):
    solution = solve(name, SPD, b=np.zeros(6), start=np.ones(6))
    np.testing.assert_array_equal(flat(solution.v), np.zeros(6))
    assert int(solution.products) == 0
    assert float(solution.residual) == 0.0


@pytest.mark.parametrize("name", ["cg", "bicgstab", "normal"])
def test_a_good_start_is_kept(name):
    exact = np.linalg.solve(SPD, B)
    solution = solve(name, SPD, start=exact, tolerance=1e-10)
    np.testing.assert_allclose(flat(solution.v), exact, rtol=1e-14)
    assert int(solution.products) <= 2


@pytest.mark.parametrize("size", [1e-36, 1e-20, 1e20, 1e36])
@pytest.mark.parametrize("name", ["cg", "bicgstab", "normal"])
def test_float32_takes_right_hand_sides_of_any_size(name, size):
    solution = solve(name, SPD, b=B * size, tolerance=1e-6, dtype=np.float32)
    np.testing.assert_allclose(flat(solution.v) / size, np.linalg.solve(SPD, B), rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["cg", "normal"])
def test_a_solution_is_kept_however_many_iterations_there_are(name):
    """Far below rounding, the recursions would go on with products that are nothing but error, and lose the solution."""
    rng = np.random.default_rng(0)
    matrix, b, error = np.diag(np.linspace(0.5, 2.0, 50)), rng.normal(size=50), 1e-9 * rng.normal(size=50)
    product = lambda v: tf.linalg.matvec(tf.constant(matrix, tf.float32), v) + tf.constant(error, tf.float32)  # noqa: E731
    arguments = (product, product) if name == "normal" else (product,)
    solution = tf.function(getattr(linear, name))(*arguments, tf.constant(b, tf.float32), None, 500, tf.constant(0.0))
    np.testing.assert_allclose(solution.v, np.linalg.solve(matrix, b), atol=1e-5)
    assert solution.products < 100


def test_cg_stops_where_the_curvature_is_not_positive_and_keeps_the_last_good_iterate():
    solution = solve("cg", np.diag([4.0, 3, 2, 1, 1, -0.5]))
    assert float(solution.curvature) <= 0
    assert float(solution.residual) > 1e-3
    assert np.all(np.isfinite(flat(solution.v)))
    v, b = flat(solution.v).numpy(), B
    assert 0.5 * v @ np.diag([4.0, 3, 2, 1, 1, -0.5]) @ v - b @ v < 0, "better than 0 on the quadratic"


def test_a_singular_system_has_the_solution_of_least_norm_or_an_honest_residual():
    matrix = np.diag([1.0, 2, 3, 4, 5, 0])
    inside = np.array([1.0, 1, 1, 1, 1, 0])
    np.testing.assert_allclose(flat(solve("cg", matrix, b=inside).v), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 0], rtol=1e-12)
    outside = solve("cg", matrix, b=np.ones(6))
    assert float(outside.residual) > 0.1


@pytest.mark.parametrize("name", ["cg", "bicgstab", "normal", "fixed_point"])
def test_nan_comes_out_as_nan(name):
    matrix = SPD.copy()
    matrix[2, 3] = np.nan
    assert np.all(np.isnan(flat(solve(name, matrix, iterations=5).v)))
    assert np.all(np.isnan(flat(solve(name, SPD, b=B * np.nan, iterations=5).v)))


def test_few_terms_of_the_neumann_series():
    a = 0.4 * SPD / np.linalg.norm(SPD, 2)
    fixed = tf.function(
        lambda b, n: linear.fixed_point(lambda v, i: tf.linalg.matvec(np.eye(6) - a, v), b, None, n, None), autograph=False
    )
    for terms, expected in ((1, B), (2, B + a @ B), (3, B + a @ B + a @ a @ B)):
        solution = fixed(tf.constant(B), terms)
        np.testing.assert_allclose(solution.v, expected, rtol=1e-14)
        assert int(solution.products) == terms - 1


def test_symmetry_is_seen():
    like = nested(tf.constant(B))
    assert float(linear.asymmetry(product(SPD), like)) < 1e-12
    assert float(linear.asymmetry(product(ANY), like)) > 1e-2
    assert float(linear.largest_eigenvalue(product(SPD), like)) == pytest.approx(np.linalg.eigvalsh(SPD)[-1], rel=0.05)

"""The small problems have the numbers computed elsewhere, and rfho2 says what the table quotes."""

import numpy as np
import pytest
import tensorflow as tf

from experiments.error_against_cost import honesty
from experiments.error_against_cost.small_problems import Equilibrium, Ridge, betty_cg


def test_ridge_has_the_golden_hypergradient():
    golden = [0.00032128998, 0.033158783, 0.18201407, 0.011895799, 0.012056687]
    np.testing.assert_allclose(Ridge().gradient(), golden, rtol=1e-6)


def test_the_derivative_of_few_steps_is_the_golden_one_of_reverse_mode():
    _, gradient = Ridge().after(7)
    np.testing.assert_allclose(gradient, [0.00040323613, 0.024339190, 0.11872871, 0.0054843679, 0.012670121], rtol=1e-6)
    np.testing.assert_allclose(Ridge().after(5000)[0], Ridge().solution, rtol=1e-9)


def test_the_equilibrium_has_the_derivative_of_differences():
    e, step = Equilibrium(), 1e-6
    np.testing.assert_allclose(e.z, [0.13891591, 0.48871786, 0.45982175, 0.17964744], rtol=1e-6)

    def objective(b):
        z = e.z
        for _ in range(500):
            z = np.tanh(e.m @ z + e.c + b)
        return 0.5 * np.sum((z - e.y) ** 2)

    differences = [(objective(e.b + d) - objective(e.b - d)) / (2 * step) for d in step * np.eye(4)]
    np.testing.assert_allclose(e.gradient(), differences, rtol=1e-6)


def test_bettys_first_step_is_right_and_later_ones_are_not():
    r = Ridge()
    b = r.right_side(r.solution)
    first = (b @ b) / (b @ r.hessian @ b) * b
    for alpha in (1.0, 0.1):
        np.testing.assert_allclose(betty_cg(r.hessian, b, 1, alpha), first)
        assert np.linalg.norm(r.hessian @ betty_cg(r.hessian, b, 20, alpha) - b) > 0.1 * np.linalg.norm(b)


@pytest.fixture(scope="module")
def early():
    return honesty.ridge(Ridge(), 4, arguments={})


def test_rfho2_says_that_four_steps_are_no_solution(early):
    gradient, says = early
    assert np.linalg.norm(gradient) == pytest.approx(0.2215, rel=1e-3)
    assert "not at a solution" in says


def test_rfho2_refuses_cg_on_a_map_that_is_not_symmetric():
    e = Equilibrium()
    row = honesty.equilibrium("somebody: CG", 1.5 * e.gradient(), e)
    assert row["theirs"] == "error 0.5"
    assert float(row["ours"].removeprefix("error ").split(",")[0]) < 1e-10
    assert "not symmetric" in row["says"]


def test_a_learning_rate_is_refused_by_name():
    r = Ridge()
    lr = {"lr": tf.constant(r.rate, tf.float64)}
    gradient, says = honesty.listen(honesty.ridge_problem(r, 5), tf.zeros(5, tf.float64), lr)
    assert np.isnan(gradient)
    assert "'lr' does not affect the solution" in says


def test_rows_of_missing_peers_say_so(monkeypatch):
    def absent(*_):
        raise ImportError("No module named 'jaxopt'")

    for name in ("hypertorch_rows", "jaxopt_rows"):
        monkeypatch.setattr(honesty, name, absent)
    monkeypatch.setattr(honesty, "betty_rows", list)
    rows = honesty.table_rows(None, None, None)
    assert [row.get("missing") for row in rows][:2] == ["No module named 'jaxopt'"] * 2
    assert {row["how"] for row in rows[2:]} == {"read"}

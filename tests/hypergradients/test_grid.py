"""Every optimiser on every problem: reverse = forward = central differences, in graph mode and under XLA."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.problems import (
    OPTIMISERS,
    PROBLEMS,
    STEPS,
    assert_agree,
    build,
    differences,
    quadratic,
    response,
)

QUICK = {("quadratic", optimiser) for optimiser in ("momentum", "rmsprop", "adamw")}
QUICK_XLA: set[tuple[str, str]] = set()  # golden numbers and all engines are compared under XLA elsewhere


def grid(quick):
    """All problems with all optimisers; those not in `quick` are marked slow."""
    for pair in itertools.product(PROBLEMS, OPTIMISERS):
        yield pytest.param(*pair, id="-".join(pair), marks=[] if pair in quick else [pytest.mark.slow])


@pytest.mark.parametrize(("name", "optimiser"), grid(QUICK))
def test_reverse_forward_and_differences_agree(name, optimiser):
    compare(name, optimiser, jit_compile=False)


@pytest.mark.parametrize(("name", "optimiser"), grid(QUICK_XLA))
def test_reverse_forward_and_differences_agree_under_xla(name, optimiser):
    compare(name, optimiser, jit_compile=True)


def compare(name, optimiser, jit_compile):
    problem, params, hypers = build(name, optimiser)
    backwards = rf.reverse(problem, jit_compile=jit_compile)(params, hypers)
    forwards = rf.forward(problem, jit_compile=jit_compile)(params, hypers)
    numerical = differences(lambda h: response(problem, params, h), hypers)
    assert_agree(backwards.grads, forwards.grads, rtol=1e-10)
    assert_agree(backwards.grads, numerical, rtol=1e-6)
    np.testing.assert_allclose(backwards.value, response(problem, params, hypers), rtol=1e-12)
    np.testing.assert_allclose(forwards.value, backwards.value, rtol=1e-12)
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), backwards.state, forwards.state)


def test_the_comparison_sees_a_wrong_derivative():
    problem, params, hypers = build("quadratic", "momentum")
    right = problem.dynamics

    def step(state, hypers, batch, t):  # drops the velocity's own history, as a forgotten term would
        return right.step(state._replace(velocity=tf.nest.map_structure(tf.stop_gradient, state.velocity)), hypers, batch, t)

    wrong = rf.Problem(right._replace(step=step), problem.objective, STEPS, problem.batches, problem.validation)
    numerical = differences(lambda h: response(wrong, params, h), hypers)
    for method in (rf.reverse, rf.forward):
        with pytest.raises(AssertionError):
            assert_agree(method(wrong, jit_compile=False)(params, hypers).grads, numerical, rtol=1e-6)


@pytest.mark.parametrize("method", [rf.reverse, rf.forward])
def test_gradient_descent_on_a_quadratic_has_its_closed_form(method):
    case, eta, c = quadratic(), 0.2, np.array([1.0, -2.0, 0.5])
    a, w0 = np.array(case.hypers["curvature"]), case.params.numpy()
    rho = 1 - eta * a
    w = c + rho**STEPS * (w0 - c)
    inner = (w - 0.3) * STEPS * rho ** (STEPS - 1) * (w0 - c)
    problem = rf.Problem(rf.gradient_descent(case.loss, "eta"), case.objective, STEPS)
    hypergradient = method(problem, jit_compile=False)(case.params, {"eta": eta, "curvature": a})
    np.testing.assert_allclose(hypergradient.state, w, rtol=1e-13)
    np.testing.assert_allclose(hypergradient.grads["curvature"], -eta * inner, rtol=1e-12)
    np.testing.assert_allclose(hypergradient.grads["eta"], np.sum(-a * inner), rtol=1e-12)


@pytest.mark.parametrize("method", [rf.reverse, rf.forward])
def test_one_step_includes_the_term_that_the_printed_algorithm_drops(method):
    problem, params, hypers = build("softmax_regression", "momentum", steps=1)
    numerical = differences(lambda h: response(problem, params, h), hypers)
    grads = method(problem, jit_compile=False)(params, hypers).grads
    assert np.linalg.norm(numerical["weights"]) > 1e-3
    assert_agree({"w": grads["weights"]}, {"w": numerical["weights"]}, rtol=1e-6)

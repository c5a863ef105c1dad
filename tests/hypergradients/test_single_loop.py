"""The single loop: one step and one product in each hyper-iteration, all at the same state."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(8, 4))
HESSIAN = ROOT.T @ ROOT / 8 + 0.3 * np.eye(4)
CROSS, SHIFT, FIRST = RNG.normal(size=(4, 2)), RNG.normal(size=4), RNG.normal(size=4)
RATE = 0.9 / np.linalg.eigvalsh(HESSIAN)[-1]
X = {"x": tf.constant([0.3, -0.2], tf.float64)}


def loss(z, hypers, batch):
    linear = tf.linalg.matvec(tf.constant(CROSS), hypers["x"]) + SHIFT
    return tf.tensordot(z, 0.5 * tf.linalg.matvec(tf.constant(HESSIAN), z) + linear, 1)


def objective(z, hypers, batch):
    return 0.5 * tf.reduce_sum((z - 1.0) ** 2) + 0.05 * tf.reduce_sum(hypers["x"] ** 2)


def problem(steps=1, dynamics=None):
    return rf.Problem(dynamics or rf.gradient_descent(loss, RATE), objective, steps)


def test_it_is_the_recursion_of_soba():
    """In its variables: v here is minus v there, divided by the rate."""
    engine = rf.implicit(problem(), single_loop=True, jit_compile=False)
    carry, x = engine.start(tf.constant(FIRST), X), np.asarray(X["x"])
    z, v = FIRST, np.zeros(4)
    for k in range(5):
        hypergradient, carry = engine.advance(carry, {"x": tf.constant(x)}, k)
        gradient = CROSS.T @ v + 0.1 * x
        np.testing.assert_allclose(hypergradient.grads["x"], gradient, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(hypergradient.value, objective(z, {"x": x}, None), rtol=1e-12)
        z, v = z - RATE * (HESSIAN @ z + CROSS @ x + SHIFT), v - RATE * (HESSIAN @ v + (z - 1))
        np.testing.assert_allclose(hypergradient.state, z, rtol=1e-12, atol=1e-14)
        x = x - 0.1 * gradient


@pytest.mark.parametrize(
    "dynamics", [None, pytest.param(rf.momentum(loss, RATE, 0.5), marks=pytest.mark.slow)], ids=["descent", "momentum"]
)
def test_with_hypers_at_rest_it_ends_at_the_implicit_hypergradient(dynamics):
    engine = rf.implicit(problem(dynamics=dynamics), single_loop=True, jit_compile=False)
    result = rf.HyperOptimizer(engine, rf.projected_adam(0.0)).run(tf.constant(FIRST), X, 300)
    exact = rf.implicit(problem(1000), tolerance=1e-12, jit_compile=False)(tf.constant(FIRST), X)
    last = result.history[-1]
    assert last["norm of hypergradient/x"] == pytest.approx(float(tf.norm(exact.grads["x"])), rel=1e-9)
    assert last["residual"] < 1e-12
    assert last["linear residual"] < 1e-12
    assert abs(last["predicted change"]) < 1e-12


def test_what_it_leaves_no_choice_of_is_refused():
    with pytest.raises(ValueError, match="steps is 3; with single_loop=True a hyper-iteration takes one step"):
        rf.implicit(problem(3), single_loop=True)
    with pytest.raises(ValueError, match="solver is 'cg', but single_loop=True does not use it"):
        rf.implicit(problem(), solver="cg", single_loop=True)

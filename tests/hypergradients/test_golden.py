"""Numbers from the original authors' records (float32), and the paper's Appendix C."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.dynamics.base import gradient

METHODS = [(method, jit) for method in (rf.reverse, rf.forward) for jit in (False, True)]
IDS = [f"{method.__name__}-{'jit' if jit else 'graph'}" for method, jit in METHODS]
GRAPHS_QUICK = [pytest.param(*pair, marks=pytest.mark.slow if pair[1] else ()) for pair in METHODS]


def inner(p, hypers, batch):
    return tf.reduce_mean(p["v1"] ** 2) + tf.reduce_sum(hypers["lam"] * p["v2"] ** 2)


def outer(p, hypers, batch):
    return tf.reduce_mean(p["v1"] * p["v2"])


@pytest.mark.parametrize(
    ("method", "jit_compile"), [*METHODS[:3], pytest.param(*METHODS[3], marks=pytest.mark.slow)], ids=IDS
)
def test_case_a(method, jit_compile):
    params = {"v1": tf.constant([[1.0, -1, 1], [2, 10, 2]]), "v2": tf.constant([-1, 1, 0.2])}
    problem = rf.Problem(rf.momentum(inner, "eta", "mu"), outer, 10)
    grads = method(problem, jit_compile=jit_compile)(params, {"lam": tf.ones(3), "eta": 0.1, "mu": 0.5}).grads
    np.testing.assert_allclose(grads["lam"], [-0.018393533, 0.055180617, 0.003678706], rtol=1e-5)
    np.testing.assert_allclose(grads["eta"], 0.5387227, rtol=1e-5)
    np.testing.assert_allclose(grads["mu"], -0.07654226, rtol=1e-5)


@pytest.mark.parametrize(("method", "jit_compile"), GRAPHS_QUICK, ids=IDS)
def test_case_b(method, jit_compile):
    params = {"v1": tf.constant([1.0, 3]), "v2": tf.constant([[-1.0, -2], [1, 0]])}
    problem = rf.Problem(rf.momentum(inner, "eta", "mu"), outer, 10)
    grads = method(problem, jit_compile=jit_compile)(params, {"lam": tf.zeros((2, 2)), "eta": 0.1, "mu": 0.9}).grads
    np.testing.assert_allclose(grads["lam"], [[-1.2182361, -7.3094177], [1.2182361, 0]], rtol=1e-5)
    np.testing.assert_allclose(grads["eta"], -1.2315257, rtol=1e-5)
    np.testing.assert_allclose(grads["mu"], 4.794621, rtol=1e-5)


def test_case_c_hessian_vector_product():
    x, v = tf.constant([1.0, -2.0, 0.5]), tf.constant([0.3, 1.0, -1.0])
    cubic = lambda x, hypers, batch: 3 * tf.reduce_sum(x**3)  # noqa: E731
    with tf.autodiff.ForwardAccumulator(x, v) as accumulator:
        g = gradient(cubic, x, {}, None, tf.constant(0))
    np.testing.assert_allclose(accumulator.jvp(g), 18 * x * v, rtol=1e-6)
    with tf.GradientTape() as tape:
        tape.watch(x)
        g = gradient(cubic, x, {}, None, tf.constant(0))
    np.testing.assert_allclose(tape.gradient(g, x, v), 18 * x * v, rtol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("optimiser", ["gradient_descent", pytest.param("momentum", marks=pytest.mark.slow)])
def test_appendix_c_first_real_time_hypergradient_at_rate_zero(optimiser, jit_compile):
    """With eta = 0 it is -grad E(w_0) . sum over s of grad J_s(w_0)."""
    rng, delta = np.random.default_rng(0), 5
    x, y = tf.constant(rng.normal(size=(20, 3))), tf.constant(rng.normal(size=20))
    w0 = tf.constant(rng.normal(size=3))

    def error(w, hypers, batch):
        return tf.reduce_mean((tf.linalg.matvec(batch[0], w) - batch[1]) ** 2)

    batches = rf.batches.shuffled((x, y), batch_size=4, seed=1)
    make = {
        "gradient_descent": lambda: rf.gradient_descent(error, "eta"),
        "momentum": lambda: rf.momentum(error, "eta", 0.0),
    }
    problem = rf.Problem(make[optimiser](), error, None, batches, rf.batches.full((x[:7], y[:7])))
    engine = rf.real_time(problem, hyper_batch=delta, jit_compile=jit_compile)
    hypergradient, carry = engine.advance(engine.start(w0, {"eta": 0.0}), {"eta": 0.0}, 0)
    total = sum(gradient(error, w0, {}, batches(tf.constant(s)), tf.constant(s)) for s in range(delta))
    expected = -tf.reduce_sum(gradient(error, w0, {}, (x[:7], y[:7]), tf.constant(0)) * total)
    np.testing.assert_allclose(hypergradient.grads["eta"], expected, rtol=1e-12)
    np.testing.assert_array_equal(problem.dynamics.params(carry.state), w0)

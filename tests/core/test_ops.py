"""The product with a fixed matrix has the derivatives of tf.matmul, in both modes, to second order."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.core import devices, ops
from tests.support.problems import assert_agree

RNG = np.random.default_rng(0)
X, Y = tf.constant(RNG.normal(size=(12, 4))), tf.constant(RNG.integers(0, 3, 12))
W = tf.constant(RNG.normal(size=(4, 3)))


def problem(product):
    def loss(w, hypers, batch):
        return tf.reduce_mean(hypers["weights"] * tf.nn.sparse_softmax_cross_entropy_with_logits(Y, product(w)))

    def objective(w, hypers, batch):
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(Y, product(w)))

    return rf.Problem(rf.momentum(loss, "lr", 0.9), objective, 5)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["graph", "jit"])
@pytest.mark.parametrize(
    ("method", "pieces"),
    [
        (rf.reverse, 2),
        (rf.forward, 1),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((rf.reverse, 1), (rf.forward, 2))),
    ],
)
def test_hypergradients_equal_those_of_matmul(monkeypatch, method, pieces, jit_compile):
    monkeypatch.setattr(ops, "_pieces", lambda matrix, w: pieces)
    hypers = {"lr": 0.1, "weights": RNG.uniform(0.1, 1.0, 12)}
    fixed, plain = (
        method(problem(product), jit_compile=jit_compile)(W, hypers) for product in (rf.fixed_product(X), lambda w: X @ w)
    )
    assert_agree(fixed.grads, plain.grads, rtol=1e-10)
    np.testing.assert_allclose(fixed.state.params, plain.state.params, rtol=1e-12)


def test_on_a_gpu_products_with_few_columns_are_divided(monkeypatch):
    def pieces(rows, inner, columns, dtype=tf.float32):
        return ops._pieces(tf.TensorSpec((rows, inner), dtype), tf.TensorSpec((inner, columns), dtype))

    monkeypatch.setattr(devices, "gpu", lambda: False)
    assert pieces(5000, 784, 10) == 1
    monkeypatch.setattr(devices, "gpu", lambda: True)
    assert (pieces(5000, 784, 10), pieces(784, 5000, 10), pieces(784, 20000, 10)) == (7, 40, 40)
    assert (pieces(20000, 784, 10), pieces(200, 1000, 10)) == (2, 25)
    assert pieces(97, 1009, 3) == 1  # a prime
    assert pieces(5000, 784, 65) == pieces(5000, 784, 10, tf.float64) == pieces(10, 30, 2) == 1


@pytest.mark.slow
def test_it_passes_the_check():
    check = rf.check_hypergradient(problem(rf.fixed_product(X)), W, {"lr": 0.1, "weights": RNG.uniform(0.1, 1.0, 12)})
    assert check.ok, str(check)


def test_eager_derivatives_of_first_and_second_order():
    product = rf.fixed_product(X)
    cube = lambda f: lambda w: tf.reduce_sum(f(w) ** 3)  # noqa: E731
    for fixed, plain in [(cube(product), cube(lambda w: X @ w))]:
        results = []
        for f in (fixed, plain):
            with tf.GradientTape() as outer:
                outer.watch(W)
                with tf.GradientTape() as inner:
                    inner.watch(W)
                    value = f(W)
                first = inner.gradient(value, W)
            second = outer.gradient(first, W, tf.ones_like(W))
            with tf.autodiff.ForwardAccumulator(W, tf.ones_like(W)) as accumulator, tf.GradientTape() as tape:
                tape.watch(W)
                value = f(W)
                gradient = tape.gradient(value, W)
            results.append({"first": first, "second": second, "forward": accumulator.jvp(gradient)})
        assert_agree(*results, rtol=1e-12)

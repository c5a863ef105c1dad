"""The bilevel benchmark: its metric is the true gradient, and all methods go down."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from experiments.benchmarks import bilevel, bilevel_methods, bilevel_report
from tests.support.binaries import run_binary


@pytest.fixture(scope="module")
def quadratics():
    return bilevel.quadratics(0)


def test_the_value_is_the_squared_norm_of_the_implicit_hypergradient(quadratics):
    x = tf.constant(np.random.default_rng(0).normal(size=bilevel.SIZE), tf.float32)
    found = rf.implicit(quadratics.problem(300), iterations=100, tolerance=1e-7)(quadratics.z, {"x": x})
    measured = quadratics.measure(found.state, x)
    assert measured["value"] == pytest.approx(float(tf.reduce_sum(found.grads["x"] ** 2)), rel=1e-4)
    assert measured["distance of z"] < 1e-8


def test_mean_matrices_are_those_of_the_rows():
    rng = np.random.default_rng(1)
    rows = bilevel.samples(rng, 500, 7)
    means = bilevel.Means.of(rows)
    z, x = rng.normal(size=(2, 7))
    expected = z @ means.zz @ z / 2 + x @ means.xx @ x / 2 + x @ means.xz @ z + means.z @ z + means.x @ x
    assert float(bilevel.mean_of(tf.constant(z), tf.constant(x), rows)) == pytest.approx(expected)


@pytest.mark.parametrize("name", bilevel_methods.METHODS)
def test_every_method_goes_down_on_quadratics(quadratics, name):
    settings = (0.1, 1.0) if name == "SOBA, batches" else (1.0,) if "SOBA" in name else (0.3,)
    states = bilevel_methods.METHODS[name].run(quadratics, settings, 64, 0)
    first, *_, last = (quadratics.measure(*state)["value"] for state in itertools.islice(states, 20))
    assert last < first / 4


def test_half_of_the_labels_are_drawn_anew_and_weights_of_batches_are_those_of_their_digits():
    case = bilevel.cleaning(0, 300, 100)
    rows = tf.nest.map_structure(lambda column: column[100:150], case.train)
    x = tf.constant(np.random.default_rng(0).normal(size=300), tf.float32)
    logits = tf.zeros((50, 10))
    expected = tf.reduce_mean(tf.sigmoid(x[100:150]) * tf.nn.sparse_softmax_cross_entropy_with_logits(rows.labels, logits))
    assert float(case.inner(case.z, x, rows)) == pytest.approx(float(expected), rel=1e-5)
    clean = bilevel.mnist.load().labels[np.random.default_rng(0).permutation(20_000)[:300]]
    assert np.mean(clean != case.train.labels.numpy()) == pytest.approx(0.45, abs=0.1)


def test_a_run_that_diverges_is_the_worst(quadratics):
    case = quadratics
    states = iter([(case.z, case.x), (case.z, case.x * np.inf)])
    curve = bilevel_methods.curve(case, states, 1.0)
    assert curve[-1]["value"] == np.inf
    assert bilevel_report.reached(curve, 1.0) == np.inf


@pytest.mark.slow
def test_the_quick_preset(tmp_path):
    ended = run_binary("bilevel_benchmark", "--preset=quick", f"--output_dir={tmp_path}")
    assert ended.code == 0, ended.err[-2000:]
    assert "| implicit, 10 steps, continued |" in ended.out
    assert (tmp_path / "bilevel.png").stat().st_size > 1000

"""The bilevel benchmark: its metric is the true gradient, and all methods go down."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from experiments.benchmarks import bilevel, bilevel_methods
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


def asked(case, seconds=0.3):
    return bilevel_methods.Asked("quadratics", case, seconds, 64, 0, bilevel_methods.Invocation())


QUICK = ("single loop, batches",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in bilevel_methods.METHODS]
)
def test_every_method_goes_down_on_quadratics(quadratics, name):
    settings = {"single loop, batches": (0.1, 1.0), "single loop, all examples": (1.0,)}.get(name, (0.3,))
    (curve,) = bilevel_methods.METHODS[name].curves(asked(quadratics, 1.0), [settings])  # a busy machine may pause for 0.3
    assert curve[-1]["value"] < curve[0]["value"] / 4
    assert curve[-1]["seconds"] >= 1.0


def test_half_of_the_labels_are_drawn_anew_and_weights_of_batches_are_those_of_their_digits():
    case = bilevel.cleaning(0, 300, 100)
    rows = tf.nest.map_structure(lambda column: column[100:150], case.train)
    x = tf.constant(np.random.default_rng(0).normal(size=300), tf.float32)
    logits = tf.zeros((50, 10))
    expected = tf.reduce_mean(tf.sigmoid(x[100:150]) * tf.nn.sparse_softmax_cross_entropy_with_logits(rows.labels, logits))
    assert float(case.inner(case.z, x, rows)) == pytest.approx(float(expected), rel=1e-5)
    clean = bilevel.mnist.load().labels[np.random.default_rng(0).permutation(20_000)[:300]]
    assert np.mean(clean != case.train.labels.numpy()) == pytest.approx(0.45, abs=0.1)


@pytest.mark.slow
def test_a_run_that_diverges_is_the_worst(quadratics):
    diverging, fine = bilevel_methods.METHODS["single loop, all examples"].curves(asked(quadratics), [(1e-9,), (1.0,)])
    assert diverging[-1]["value"] == np.inf
    assert bilevel_methods.reached(diverging, 1.0) == np.inf
    assert bilevel_methods.score("quadratics", fine) < bilevel_methods.score("quadratics", diverging)


def test_settings_are_chosen_by_goals_then_by_seconds():
    quick = [{"seconds": 0.1, "value": 1e-5}, {"seconds": 0.2, "value": 1e-7}]
    exact = [{"seconds": 0.1, "value": 1e-5}, {"seconds": 0.3, "value": 1e-12}]
    near = [{"seconds": 0.05, "value": 1e-5}]
    assert sorted([near, exact, quick], key=lambda curve: bilevel_methods.score("quadratics", curve)) == [quick, exact, near]


@pytest.mark.slow
def test_the_quick_preset(tmp_path):
    ended = run_binary("bilevel_benchmark", "--preset=quick", f"--output_dir={tmp_path}")
    assert ended.code == 0, ended.err[-2000:]
    assert "| implicit, 10 steps, continued |" in ended.out
    assert (tmp_path / "bilevel.png").stat().st_size > 1000

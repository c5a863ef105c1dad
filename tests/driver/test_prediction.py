"""Hypergradients that do not predict the objective are reported once; where nothing can be compared, no claim is made."""

import dataclasses
import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.driver.prediction import Change, predicted
from tests.support.digits import few_digits

WORDS = "do not predict|chaotic"


def logistic(steps, rate_of="r", validation=None, batches=None):
    """s <- r s (1 - s): converges for r = 2.5, is chaotic for r = 3.9."""
    dynamics = rf.Dynamics(lambda w, h: w, lambda s, h, batch, t: h["r"] * s * (1.0 - s), lambda s: s)
    objective = lambda s, h, batch: (s - 0.3) ** 2  # noqa: E731
    return rf.Problem(dynamics, objective, steps, batches, validation)


@functools.cache
def plain(make):
    """The engine of 40 steps, traced once for all tests."""
    return make(logistic(40), jit_compile=False)


def warnings_of(engine, hypers, rate, iterations=12, params=None, **settings):
    """The warnings of a run, and its result."""
    params = tf.constant(0.4, tf.float64) if params is None else params
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = rf.HyperOptimizer(engine, rf.projected_adam(rate), **settings).run(params, hypers, iterations)
    return [str(w.message) for w in caught if "predict" in str(w.message) or "chaotic" in str(w.message)], result


@pytest.mark.parametrize("make", [rf.reverse, rf.forward])
def test_a_training_that_converges_is_predicted(make):
    messages, result = warnings_of(plain(make), {"r": 2.5}, 0.02)
    assert messages == []
    assert result.history[-1]["value"] != result.history[0]["value"]


def test_a_chaotic_training_is_reported_once_with_what_to_try():
    (message,), result = warnings_of(plain(rf.reverse), {"r": 3.9}, 1e-3, 35)
    assert "of its last 10 changes" in message
    assert "The adjoint grows" in message
    for remedy in ("truncate=", "discount=", "clip="):
        assert remedy in message
    assert abs(result.history[0]["hypergradient/r"]) > 1e3


def test_forward_mode_reports_it_by_the_size_of_the_hypergradient():
    (message,), _ = warnings_of(plain(rf.forward), {"r": 3.9}, 1e-3)
    assert "far too large are a sign of chaotic training" in message


def test_a_run_too_short_for_ten_changes_is_judged_at_its_end():
    engine = plain(rf.reverse)
    assert warnings_of(engine, {"r": 3.9}, 1e-3, 3)[0] == []  # two changes may be an accident
    (message,), _ = warnings_of(engine, {"r": 3.9}, 1e-3, 4)
    assert "3 of its last 3 changes" in message


def test_updates_that_are_too_large_are_reported_as_such():
    loss = lambda w, h, batch: (w - 1.0) ** 2  # noqa: E731
    wave = lambda w, h, batch: tf.sin(83.0 * h["x"]) + 0.0 * w  # noqa: E731
    engine = rf.reverse(rf.Problem(rf.gradient_descent(loss, 0.1), wave, 2), jit_compile=False)
    assert "smaller hyper-rate" in warnings_of(engine, {"x": 0.3}, 0.2)[0][0]
    assert warnings_of(engine, {"x": 0.3}, 1e-3)[0] == []


def test_a_wrong_hypergradient_is_reported():
    @tf.custom_gradient
    def square(x):
        return x**2, lambda upstream: -2.0 * x * upstream  # the wrong sign

    loss = lambda w, h, batch: (w - 1.0) ** 2  # noqa: E731
    objective = lambda w, h, batch: square(h["x"]) + 0.0 * w  # noqa: E731
    engine = rf.reverse(rf.Problem(rf.gradient_descent(loss, 0.1), objective, 2), jit_compile=False)
    assert "rf.check_hypergradient" in warnings_of(engine, {"x": 0.3}, 0.01)[0][0]


def test_truncation_that_leaves_out_what_matters_is_reported():
    loss = lambda w, h, batch: 0.5 * (w - h["target"]) ** 2 * tf.where(batch < 5, 1.0, 0.0)  # noqa: E731
    objective = lambda w, h, batch: w**2 + 1e-3 * h["target"]  # noqa: E731
    problem = rf.Problem(rf.gradient_descent(loss, 0.5), objective, 10, lambda t: t)
    for truncate, wrong in ((None, False), (3, True)):
        engine = rf.reverse(problem, truncate=truncate, jit_compile=False)
        assert bool(warnings_of(engine, {"target": 1.0}, 0.02, params=tf.constant(0.4))[0]) == wrong


@pytest.mark.parametrize(
    ("why", "options", "params"),
    [
        ("validation data that change", {"validation": lambda k: k}, None),
        pytest.param("episodes", {"batches": lambda t, k: k}, None, marks=pytest.mark.slow),
        ("params that change", {}, lambda k: 0.4 + 0.001 * tf.cast(k, tf.float64)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_no_claim_is_made_where_values_cannot_be_compared(why, options, params):
    """Only the growth of the adjoint is judged."""
    problem = logistic(40, **options)
    reverse = rf.reverse(problem, jit_compile=False)
    (message,), _ = warnings_of(reverse, {"r": 3.9}, 1e-3, params=params)
    assert "predict" not in message
    assert "The adjoint grows" in message
    assert warnings_of(reverse, {"r": 2.5}, 0.2, params=params)[0] == []
    tiny = dataclasses.replace(problem, objective=lambda s, h, batch: 1e-9 * (s - 0.3) ** 2)  # whose adjoint is tiny, too
    assert warnings_of(rf.forward(tiny, jit_compile=False), {"r": 3.9}, 1e-3, params=params)[0] == []


def test_no_claim_is_made_in_real_time():
    assert warnings_of(rf.real_time(logistic(None), 5, jit_compile=False), {"r": 3.9}, 1e-3, 25)[0] == []


def test_constant_validation_of_the_users_own_is_recognised():
    problem = logistic(40, validation=lambda k: tf.constant(1.0))
    assert "do not predict" in warnings_of(rf.reverse(problem, jit_compile=False), {"r": 3.9}, 1e-3)[0][0]


def test_rounding_errors_are_not_reported():
    """In float32 a converged objective moves by its last bits only."""
    loss = lambda w, h, batch: (w - h["x"]) ** 2  # noqa: E731
    objective = lambda w, h, batch: 100.0 + 1e-6 * w  # noqa: E731
    engine = rf.reverse(rf.Problem(rf.gradient_descent(loss, 0.4), objective, 20), jit_compile=False)
    assert warnings_of(engine, {"x": 0.3}, 0.1, params=tf.constant(0.0))[0] == []


def test_most_changes_have_to_be_predicted():
    right, wrong, tiny = Change(1.0, 1.2), Change(1.0, -100.0), Change(1e-7, -1e-7)
    assert predicted([right, right, wrong, wrong], 1e-6)
    assert not predicted([right, wrong, wrong], 1e-6)
    assert predicted([right, right, right, *[tiny] * 5], 1e-6)
    assert predicted([wrong, wrong], 1e-6)  # too few


# An optimiser whose state overflows


def test_a_hypergradient_whose_square_overflows_is_a_divergence_instead_of_a_hyper_that_stands_still():
    steep = lambda w, h, batch: 1e25 * h["x"] + 0.0 * w  # noqa: E731
    engine = rf.reverse(rf.Problem(rf.gradient_descent(steep, 0.0), steep, 1), jit_compile=False)
    tuner = rf.HyperOptimizer(engine, rf.projected_adam(0.1))
    with pytest.raises(rf.DivergenceError, match="not finite: optimiser's state"):
        tuner.run(tf.constant(0.0), {"x": 1.0}, 3)
    result = rf.HyperOptimizer(engine, rf.projected_adam(0.1), clip=1.0).run(tf.constant(0.0), {"x": 1.0}, 3)
    np.testing.assert_allclose(result.hypers["x"], 0.7, rtol=1e-5)


def test_an_optimiser_that_uses_infinity_on_purpose_may():
    """As the best value so far, for instance."""

    def update(grads, state, hypers):
        return {name: hyper - 0.1 * grads[name] for name, hyper in hypers.items()}, state

    optimizer = rf.HyperUpdate(lambda hypers: tf.constant(np.inf), update, {})
    loss = lambda w, h, batch: (w - h["x"]) ** 2  # noqa: E731
    engine = rf.reverse(rf.Problem(rf.gradient_descent(loss, 0.1), loss, 2), jit_compile=False)
    assert len(rf.HyperOptimizer(engine, optimizer).run(tf.constant(0.0), {"x": 1.0}, 3).history) == 3


# A network


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "chaotic"), [(0.1, False), (0.3, True)])
def test_a_network_with_a_large_learning_rate_is_chaotic(rate, chaotic):
    """A 784-32-32-10 network, 500 digits, half of whose labels are wrong; prints the figures in docs/faults.md."""
    split, rng = few_digits(train=500, validation=500), np.random.default_rng(0)
    sizes = {"first": (784, 32), "second": (32, 32), "last": (32, 10)}
    params = {name: rng.normal(size=shape) / np.sqrt(shape[0]) for name, shape in sizes.items()}
    train, validation = [(part.images.astype(float), part.labels) for part in (split.train, split.validation)]

    def loss(w, hypers, batch):
        logits = tf.tanh(tf.tanh(batch[0] @ w["first"]) @ w["second"]) @ w["last"]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch[1], logits))

    full = rf.batches.full
    engine = rf.reverse(rf.Problem(rf.gradient_descent(loss, "lr"), loss, 200, full(train), full(validation)))
    messages, result = warnings_of(engine, {"lr": rate}, 0.01 * rate, 11, params)
    ends = [float(engine(params, {"lr": rate * (1 + side)}).value) for side in (-0.01, 0.01)]
    quotient = (ends[1] - ends[0]) / (0.02 * rate)
    print(f"\nhypergradient {result.history[0]['hypergradient/lr']:.3g}, difference quotient {quotient:.3g}")
    print(messages)
    assert bool(messages) == chaotic
    assert not chaotic or "The adjoint grows" in messages[0]

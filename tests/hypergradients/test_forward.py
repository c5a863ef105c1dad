"""Forward mode in chunks of columns: the same hypergradient, whatever the chunk."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.hypergradients import sensitivity
from tests.support.problems import assert_agree, build


@pytest.mark.parametrize("chunk", [3, 5, *(pytest.param(chunk, marks=pytest.mark.slow) for chunk in (1, 99))])
def test_chunks_give_what_reverse_gives(chunk):
    """7 columns: an incomplete last chunk of separate and of vectorised columns, one by one, more than there are."""
    problem, params, hypers = build("quadratic", "momentum", steps=4)
    backwards = rf.reverse(problem, jit_compile=False)(params, hypers)
    forwards = rf.forward(problem, chunk=chunk, jit_compile=False)(params, hypers)
    assert forwards.value == backwards.value
    tf.nest.map_structure(np.testing.assert_array_equal, forwards.state, backwards.state)
    assert_agree(forwards.grads, backwards.grads, rtol=1e-10)


@pytest.mark.slow
def test_chunks_under_xla():
    problem, params, hypers = build("softmax_regression", "momentum", dtype=tf.float32)
    whole, chunked = (rf.forward(problem, chunk=chunk, jit_compile=True)(params, hypers) for chunk in (None, 6))
    assert_agree(chunked.grads, whole.grads, rtol=1e-4)


def test_chunks_with_several_objectives_and_a_running_cost():
    built, params, hypers = build("softmax_regression", "momentum")
    objectives = {
        "end": rf.Objective(built.objective, ["weights", "momentum"]),
        "way": rf.Objective(rf.RunningCost(built.objective, every=2), ["learning_rate"]),
    }
    problem = rf.Problem(built.dynamics, objectives, built.steps, built.batches, built.validation)
    whole = rf.reverse(problem, jit_compile=False)(params, hypers)
    chunked = rf.forward(problem, chunk=5, jit_compile=False)(params, hypers)
    for name in objectives:
        np.testing.assert_allclose(chunked.value[name], whole.value[name], rtol=1e-12)
    assert_agree(chunked.grads, whole.grads, rtol=1e-10)


def sizes_of_chunks(monkeypatch, m, chunk):
    """The columns that are pushed together for m hypers, in a problem whose hypergradient is known in closed form."""
    sizes = []
    directions = sensitivity.directions
    monkeypatch.setattr(sensitivity, "directions", lambda *args: sizes.append(args[2]) or directions(*args))

    def loss(w, hypers, batch):
        return 0.5 * tf.reduce_sum(hypers["decay"] * w**2)

    problem = rf.Problem(rf.gradient_descent(loss, 0.1), lambda w, hypers, batch: tf.reduce_sum(w), steps=3)
    rng = np.random.default_rng(0)
    w, decay = rng.normal(size=m), rng.uniform(size=m)
    hypergradient = rf.forward(problem, chunk=chunk, jit_compile=False)(tf.constant(w), {"decay": decay})
    np.testing.assert_allclose(hypergradient.grads["decay"], -0.3 * w * (1 - 0.1 * decay) ** 2, rtol=1e-12)
    return set(sizes)


@pytest.mark.parametrize(
    ("m", "chunk", "size"),
    [
        (65, None, 33),
        (20, 7, 7),
        *(pytest.param(*m, marks=pytest.mark.slow) for m in ((64, None, 64), (1000, None, 63), (20, 50, 20))),
    ],
)
def test_chunks_have_the_given_size_and_are_even_by_default(monkeypatch, m, chunk, size):
    assert sizes_of_chunks(monkeypatch, m, chunk) == {size}


def test_a_column_that_is_not_finite_does_not_touch_the_others():
    def loss(w, hypers, batch):
        return (hypers["a"] + 1e308 * hypers["b"]) * tf.reduce_sum(w**2)  # the derivative by b overflows

    problem = rf.Problem(rf.gradient_descent(loss, 0.1), lambda w, hypers, batch: tf.reduce_sum(w), steps=2)
    hypers = {"a": 0.5, "b": 0.0}
    for chunk in (1, 2):
        grads = rf.forward(problem, chunk=chunk, jit_compile=False)(tf.ones(2, tf.float64), hypers).grads
        assert np.isfinite(grads["a"])
        assert not np.isfinite(grads["b"])


def test_a_chunk_has_to_be_a_count():
    problem, _, _ = build("quadratic", "momentum")
    with pytest.raises(ValueError, match="chunk is 0"):
        rf.forward(problem, chunk=0)


@pytest.mark.slow
def test_counts_from_numpy_are_counts():
    built, params, hypers = build("quadratic", "momentum")
    problem = rf.Problem(built.dynamics, built.objective, np.int64(4), built.batches, built.validation)
    whole = rf.reverse(problem, checkpoints=np.int64(2), truncate=np.int32(3), jit_compile=False)(params, hypers)
    plain = rf.reverse(problem, truncate=3, jit_compile=False)(params, hypers)
    assert_agree(whole.grads, plain.grads, rtol=1e-12)
    rf.forward(problem, chunk=np.int64(5), jit_compile=False)(params, hypers)


@pytest.mark.slow
def test_columns_share_the_step_also_where_a_hyper_scales_the_loss():
    """The compiled program has no more products for a loss times a hyper than for the loss."""

    def products(loss, hypers):
        problem = rf.Problem(rf.momentum(loss, "lr", "mu" if "mu" in hypers else 0.5), error, 4)
        engine = rf.forward(problem, jit_compile=True)
        engine(params, hypers)
        tensors = {name: tf.constant(value) for name, value in hypers.items()}
        program = engine._compiled.xla.experimental_get_compiler_ir(params, tensors, tf.constant(0), ())
        return program(stage="optimized_hlo").count(" dot(")

    def error(p, hypers, batch):
        return tf.reduce_mean(tf.square(tf.tanh(x @ p["v"]) @ p["w"] - 1.0))

    x = tf.constant(np.random.default_rng(0).normal(size=(9, 5)), tf.float32)
    params = {"v": tf.ones([5, 6]), "w": tf.ones([6, 2])}
    plain = products(error, {"lr": 0.1, "mu": 0.5})
    assert products(lambda p, h, b: h["rho"] * error(p, h, b), {"lr": 0.1, "rho": 0.5}) == plain


@pytest.mark.slow
def test_few_columns_and_many_are_pushed_alike(monkeypatch):
    """By two tapes, and by an accumulator."""
    built, params, hypers = build("tanh_network", "momentum", 4)
    few = rf.forward(built, jit_compile=False)(params, hypers)
    monkeypatch.setattr(sensitivity, "MAX_SEPARATE", 0)
    many = rf.forward(built, jit_compile=False)(params, hypers)
    assert_agree(few.grads, many.grads, rtol=1e-12)


def test_a_step_whose_transposed_derivative_is_sparse():
    """The pull-back of a segment sum is a lookup, and its transpose would be sparse."""
    rows = tf.constant([2, 0, 2])

    def step(state, hypers, batch, t):
        return tf.math.unsorted_segment_sum(hypers["scale"] * state, rows, 3)

    dynamics = rf.Dynamics(lambda params, hypers: params, step, lambda state: state)
    problem = rf.Problem(dynamics, lambda w, h, b: tf.reduce_sum(w**2), 2)
    params, hypers = tf.constant([1.0, 2.0, 3.0], tf.float64), {"scale": 0.5}
    pair = [make(problem, jit_compile=False)(params, hypers).grads for make in (rf.forward, rf.reverse)]
    assert_agree(*pair, rtol=1e-12)


@pytest.mark.parametrize("kind", [pytest.param("cond", marks=pytest.mark.slow), "loop"])
def test_forward_mode_follows_control_flow_and_leaves_it_to_the_graph_where_xla_fails(kind):
    def bent(w):
        if kind == "cond":
            return tf.cond(tf.reduce_sum(w) > 0, lambda: w**3, lambda: w**2)
        return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.sin(x) + w), (0, w))[1]

    loss = lambda w, hypers, batch: tf.reduce_sum(tf.cosh(bent(w)))  # noqa: E731
    problem = rf.Problem(rf.gradient_descent(loss, "lr"), loss, 3)
    params, hypers = tf.constant([0.3, 0.2], tf.float64), {"lr": 0.05}
    exact = rf.reverse(problem, jit_compile=False)(params, hypers).grads
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "XLA cannot compile")
        engine = rf.forward(problem)
        assert_agree(engine(params, hypers).grads, exact, rtol=1e-12)
    assert not engine.jit_compiled

"""Runs over episodes resume bit-identically, and recognise a directory that another function of initial params wrote."""

import functools
import sys

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.driver import checkpoint_store
from rfho2.driver.fingerprint import of_function
from tests.support import episodes
from tests.support.checkpoints import At, assert_identical, contents, interrupt

ITERATIONS = 5
K = tf.TensorSpec([], tf.int32)


@functools.cache
def engine():
    return rf.reverse(episodes.problem(steps=3), jit_compile=False)


@functools.cache
def adam():
    return rf.projected_adam(0.02, log_scale=["lr"])


def run(directory=None, params=episodes.start, callbacks=(), each=None):
    tuner = rf.HyperOptimizer(each or engine(), adam(), callbacks)
    return tuner.run(params, episodes.hypers(), ITERATIONS, directory)


@pytest.mark.parametrize("together", [pytest.param(False, marks=pytest.mark.slow), True], ids=["in turn", "together"])
@pytest.mark.slow
def test_a_run_over_episodes_resumes_to_the_same_bits(together, tmp_path):
    averaged = rf.average(engine(), 2, together)
    straight = run(each=averaged)
    for at in (0, 3):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / str(at), callbacks=[At(at, interrupt)], each=averaged)
        assert_identical(run(tmp_path / str(at), each=averaged), straight)
    for other in (engine(), rf.average(engine(), 3, together), rf.average(engine(), 2, not together)):
        with pytest.raises(ValueError, match="another problem"):
            run(tmp_path / "0", each=other)


def test_every_hyper_iteration_starts_from_its_own_params():
    hypers, history = episodes.hypers(), run().history
    for k, row in enumerate(history[:3]):
        at = {name: tf.constant(row[name], tf.float64) for name in hypers}
        expected = episodes.response(engine().problem, episodes.start(k), at, k)
        assert row["value"] == pytest.approx(float(expected), rel=1e-12)


# The fingerprint of a function


def later(k):
    """As `episodes.start`, except from episode 4 on."""
    return tf.nest.map_structure(lambda x: tf.where(k > 3, x + 1.0, x), episodes.start(k))


def test_a_function_with_other_values_or_another_graph_belongs_to_another_problem(tmp_path):
    run(tmp_path)
    before = contents(tmp_path)
    shifted = lambda k: episodes.start(k + 1)  # noqa: E731
    for other, part in ((shifted, "initial params"), (episodes.start(0), "initial params"), (later, checkpoint_store.GRAPH)):
        with pytest.raises(ValueError, match=f"another problem.*{part}"):
            run(tmp_path, params=other)
        assert contents(tmp_path) == before


def test_under_another_version_of_tensorflow_another_graph_is_no_other_problem(tmp_path, monkeypatch):
    run(tmp_path)
    monkeypatch.setattr(checkpoint_store, "versions", lambda: {"tensorflow": "another"})
    with pytest.warns(UserWarning, match="Results may differ"):
        run(tmp_path, params=later)
    with pytest.raises(ValueError, match=r"another problem.*initial params"):
        run(tmp_path, params=lambda k: episodes.start(k + 1))


def loop(factor):
    def inside(i, x):
        return i + 1, tf.cond(i % 2 == 0, lambda: factor * x, lambda: tf.switch_case(i % 3, [lambda: x + factor, lambda: x]))

    return lambda k: tf.while_loop(lambda i, x: i < k, inside, (tf.constant(0), tf.constant(1.0)))[1]


def captured(factor):
    table = tf.constant(np.arange(1000.0) * np.where(np.arange(1000) == 500, factor, 1.0))
    return lambda k: tf.gather(table, k)


def called(factor):
    return lambda k: tf.function(lambda x: factor * x, autograph=False)(tf.cast(k, tf.float32))


def differentiated(factor):
    @tf.custom_gradient
    def custom(x):
        return x**2, lambda upstream: factor * upstream

    def gradient(k):
        x = tf.cast(k, tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = custom(x)
        return y + tape.gradient(y, x)

    return gradient


@pytest.mark.parametrize("family", [loop, captured, called, differentiated], ids=lambda family: family.__name__)
def test_the_hash_of_a_graph_depends_on_what_it_computes_alone(family):
    first = of_function(family(2.0), K)
    tf.function(loop(3.0), autograph=False)(tf.constant(1))  # moves the counters in the names of functions
    assert of_function(family(2.0), K) == first
    assert of_function(family(3.0), K) != first


def test_a_graph_may_be_deeper_than_the_stack_of_python():
    assert of_function(lambda k: functools.reduce(lambda x, _: -x, range(sys.getrecursionlimit()), k), K)


def test_the_hash_of_a_graph_sees_which_output_of_a_node_is_used_and_in_which_order():
    halves = [
        lambda k: tf.split(tf.stack([k, -k]), 2)[0],
        lambda k: tf.split(tf.stack([k, -k]), 2)[1],
        lambda k: tf.split(tf.stack([-k, k]), 2)[0],
        lambda k: (k, 2 * k),
        lambda k: (2 * k, k),
    ]
    assert len({of_function(half, K) for half in halves}) == len(halves)


def test_the_hash_of_a_graph_ignores_what_does_not_reach_an_output():
    def with_more(k):
        tf.sin(tf.cast(k, tf.float32))
        return k + 1

    assert of_function(with_more, K) == of_function(lambda k: k + 1, K)

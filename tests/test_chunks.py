"""Forward mode in chunks of columns: the same hypergradient, whatever the chunk."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.hypergradients import forward
from tests.helpers import assert_agree, build


@pytest.mark.parametrize("chunk", [1, 3, 5, 13, 14, 99])
def test_chunks_give_what_reverse_gives(chunk):
    """14 columns: one by one, with a last chunk that is not full, vectorised, all but one, all, more than there are."""
    problem, params, hypers = build("softmax_regression", "momentum")
    whole = rf.reverse(problem, jit_compile=False)(params, hypers)
    found = rf.forward(problem, chunk=chunk, jit_compile=False)(params, hypers)
    assert found.value == whole.value
    tf.nest.map_structure(np.testing.assert_array_equal, found.state, whole.state)
    assert_agree(found.grads, whole.grads, rtol=1e-10)


def test_chunks_under_xla():
    problem, params, hypers = build("softmax_regression", "adam", dtype=tf.float32)
    whole, found = (rf.forward(problem, chunk=chunk, jit_compile=True)(params, hypers) for chunk in (None, 6))
    assert_agree(found.grads, whole.grads, rtol=1e-4)


def test_chunks_with_several_objectives_and_a_running_cost():
    built, params, hypers = build("softmax_regression", "momentum")
    objectives = {
        "end": rf.Objective(built.objective, ["weights", "momentum"]),
        "way": rf.Objective(rf.RunningCost(built.objective, every=2), ["learning_rate"]),
    }
    problem = rf.Problem(built.dynamics, objectives, built.steps, built.batches, built.validation)
    whole = rf.reverse(problem, jit_compile=False)(params, hypers)
    found = rf.forward(problem, chunk=5, jit_compile=False)(params, hypers)
    for name in objectives:
        np.testing.assert_allclose(found.value[name], whole.value[name], rtol=1e-12)
    assert_agree(found.grads, whole.grads, rtol=1e-10)


def test_thousands_of_columns_are_taken_a_few_at_a_time_by_default(monkeypatch):
    sizes = []
    push = forward.push_forward
    monkeypatch.setattr(forward, "push_forward", lambda *args: sizes.append(args[3]["decay"].shape[0]) or push(*args))
    n = 1000

    def loss(w, hypers, batch):
        return 0.5 * tf.reduce_sum(hypers["decay"] * w**2)

    problem = rf.Problem(rf.gradient_descent(loss, 0.1), lambda w, hypers, batch: tf.reduce_sum(w), steps=3)
    rng = np.random.default_rng(0)
    w, decay = rng.normal(size=n), rng.uniform(size=n)
    found = rf.forward(problem, jit_compile=False)(tf.constant(w), {"decay": decay})
    assert set(sizes) == {forward.TOGETHER}
    np.testing.assert_allclose(found.grads["decay"], -0.3 * w * (1 - 0.1 * decay) ** 2, rtol=1e-12)


def test_a_chunk_has_to_be_a_count():
    problem, _, _ = build("quadratic", "momentum")
    with pytest.raises(ValueError, match="chunk is 0"):
        rf.forward(problem, chunk=0)

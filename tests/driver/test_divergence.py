"""Divergence: what the error says, and what is left of the run."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.tuning import METHODS, Recorder, run, same_bits, visit, visiting

EXPLODING = 1e30  # a learning rate that leads to inf - inf


@pytest.mark.parametrize("method", METHODS)
def test_the_error_names_the_hyper_iteration_the_quantities_and_the_norms(method):
    recorder = Recorder()
    with pytest.raises(rf.DivergenceError) as caught:
        visit([0.1, 0.2, EXPLODING, 0.1], method=method, callbacks=[recorder])
    message = str(caught.value)
    assert isinstance(caught.value, ArithmeticError)
    assert caught.value.iteration == 2
    assert "hyper-iteration 2" in message
    assert all(name in message for name in ("value", "hypergradient of lr", "hypergradient of weights", "Norms", "Try"))
    assert recorder.events == ["start", 0, 1, "end"]
    finished = visit([0.1, 0.2], method=method)
    for result in (caught.value.result, recorder.result):
        assert [row["value"] for row in result.history] == [row["value"] for row in finished.history]
        assert same_bits([result.state, result.best], [finished.state, finished.best])
        assert float(result.hypers["lr"]) == np.float32(EXPLODING)  # where it went wrong


def test_a_hypergradient_that_diverges_alone_is_named():
    def root(w, hypers, batch):  # finite at 0, its derivative is not
        return tf.sqrt(hypers["a"]) + tf.reduce_sum(hypers["b"] * w**2)

    problem = rf.Problem(rf.gradient_descent(lambda w, hypers, batch: tf.reduce_sum(w**2), 0.25), root, steps=1)
    tuner = rf.HyperOptimizer(rf.reverse(problem, jit_compile=False), rf.projected_adam(0.1))
    with pytest.raises(rf.DivergenceError) as caught:
        tuner.run(tf.constant([4.0, 3.0]), {"a": 0.0, "b": [1.0, 1.0]}, 3)
    bad, norms = str(caught.value).split("Norms:")
    assert "hypergradient of a" in bad
    assert "hypergradient of b" not in bad
    assert "value: 6.25" in norms
    assert f"hypergradient of b: {np.hypot(4.0, 2.25):.6g}" in norms


def test_an_adjoint_that_overflows_where_forward_mode_does_not_is_named():
    def loss(w, hypers, batch):  # w[1] is and stays 0, but would grow if it were not
        return (w[0] - 1) ** 2 + hypers["l2"] * tf.reduce_sum(w**2) + 1e6 * w[1] ** 2

    problem = rf.Problem(rf.gradient_descent(loss, 0.01), lambda w, hypers, batch: (w[0] - 1) ** 2 + 0.1 * w[1], steps=100)
    hypers = {"l2": 0.1}
    with pytest.raises(rf.DivergenceError, match=r"the backward pass is not.* NaN .* rf.forward"):
        rf.HyperOptimizer(rf.reverse(problem, jit_compile=False), rf.projected_adam(0.1)).run(tf.zeros(2), hypers, 1)
    assert np.isfinite(rf.forward(problem, jit_compile=False)(tf.zeros(2), hypers).grads["l2"])


def test_divergence_at_the_first_hyper_iteration_has_no_results(tmp_path):
    with pytest.raises(rf.DivergenceError) as caught:
        visit([EXPLODING, 0.1], checkpoint_dir=tmp_path)
    assert not list(tmp_path.glob("ckpt-*"))
    assert caught.value.iteration == 0
    assert caught.value.result.history == []
    assert caught.value.result.best is None
    assert "hyper-iteration -1" not in str(caught.value)


@pytest.mark.parametrize("method", ["reverse", "real_time"])
def test_divergence_leaves_the_checkpoints_unchanged(method, tmp_path):
    rates = [0.1, 0.2, 0.3, EXPLODING]
    visiting_all = visiting(rates)
    run(visiting_all, 3, method, checkpoint_dir=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for _ in range(2):  # each run ends in the same way
        with pytest.raises(rf.DivergenceError) as caught:
            run(visiting_all, 4, method, checkpoint_dir=tmp_path)
        assert caught.value.iteration == 3
        assert [row["iteration"] for row in caught.value.result.history] == [0, 1, 2]
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(run(visiting_all, 3, method, checkpoint_dir=tmp_path).history) == 3


def test_divergence_between_two_checkpoints_loses_no_finished_hyper_iteration(tmp_path):
    rates, recorder = [0.1, 0.2, 0.3, EXPLODING], Recorder()
    with pytest.raises(rf.DivergenceError) as caught:
        run(visiting(rates), 4, checkpoint_dir=tmp_path, checkpoint_every=2)
    assert [row["iteration"] for row in caught.value.result.history] == [0, 1, 2]
    with pytest.raises(rf.DivergenceError):
        run(visiting(rates), 4, checkpoint_dir=tmp_path, checkpoint_every=2, callbacks=[recorder])
    assert recorder.run.first == 3  # the checkpoint has everything that the message promises

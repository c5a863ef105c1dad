"""Training in real time: its first hypergradient, the hypers it finds, how it resumes, and streams as its data."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from experiments.phone_classification import methods, network
from tests.support.devices import same_bits
from tests.support.phones import TINY, tiny_speech, tiny_trainer


@pytest.mark.slow
def test_the_first_hypergradient_of_the_null_teacher():
    """Appendix C: with all hypers 0, that of eta is minus the validation gradient times the sum of training gradients."""
    trainer = tiny_trainer()
    problem, p = trainer.problem, trainer.params
    zeros = {name: tf.constant(0.0) for name in ("rho", "eta", "mu")}

    def gradient(function, batch):
        with tf.GradientTape() as tape:
            tape.watch(p)
            value = function(p, zeros, batch)
        flat = tape.gradient(value, p, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return np.concatenate([flat[name].numpy().ravel() for name in sorted(flat)]).astype(float)

    steps = sum(gradient(network.loss, problem.batch(tf.constant(t))) for t in range(TINY.hyper_batch))
    expected = -gradient(network.error, problem.validation(tf.constant(0))) @ steps
    grads = trainer.tuned(p, zeros).grads
    assert float(grads["eta"]) == pytest.approx(expected, rel=1e-4)
    assert float(grads["rho"]) == float(grads["mu"]) == 0.0, "nothing moves yet, so that these cannot matter"


@pytest.mark.slow
def test_real_time_moves_the_hypers_inside_their_sets():
    curve = methods.real_time(tiny_trainer(), methods.NULL_TEACHER).curve
    etas = [row["eta"] for row in curve]
    assert etas[0] == 0.0 < etas[-1]
    assert all(row["rho"] >= 0 and row["eta"] >= 0 and 0 <= row["mu"] <= 1 for row in curve)
    assert curve[-1]["value"] < curve[0]["value"]


@pytest.mark.slow
@same_bits
def test_killed_training_in_real_time_resumes_bit_identically(tmp_path, monkeypatch):
    trainer = tiny_trainer()
    monkeypatch.setattr(trainer, "training", dataclasses.replace(TINY, checkpoint_every=2))
    whole = methods.real_time(trainer, methods.TAUGHT)
    calls, metrics = itertools.count(), trainer.metrics

    def killed(*args):
        if next(calls) == 5:
            raise KeyboardInterrupt
        return metrics(*args)

    monkeypatch.setattr(trainer, "metrics", killed)
    with pytest.raises(KeyboardInterrupt):
        methods.real_time(trainer, methods.TAUGHT, directory=tmp_path)
    monkeypatch.setattr(trainer, "metrics", metrics)
    resumed = methods.real_time(trainer, methods.TAUGHT, directory=tmp_path)
    assert without_seconds(resumed.curve) == without_seconds(whole.curve)
    tf.nest.map_structure(np.testing.assert_array_equal, resumed.last, whole.last)


def without_seconds(curve):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in curve]


@pytest.mark.slow
def test_an_endless_stream_feeds_real_time():
    data, whole = tiny_speech(), tiny_trainer().problem
    rows = tf.data.Dataset.from_tensor_slices(data.train).shuffle(1000, seed=0).repeat()
    batches = rows.batch(TINY.batch_size, drop_remainder=True).map(data.multitask_examples)
    streamed = rf.Problem(whole.dynamics, whole.objective, None, rf.batches.stream(batches), whole.validation)
    engine = rf.real_time(streamed, 4, jit_compile=False)
    tuner = rf.HyperOptimizer(engine, rf.projected_adam(0.05, {"eta": rf.NonNegative()}))
    result = tuner.run(tiny_trainer().params, methods.NULL_TEACHER, iterations=5)
    assert result.history[-1]["eta"] > 0
    assert result.history[-1]["value"] < result.history[0]["value"]

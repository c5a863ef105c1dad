"""The network of phone classification and what it is fed."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from data.speech import timit
from experiments.phone_classification import network as phone_network
from tests.support.corpora import tiny_corpus


@pytest.fixture(scope="module")
def corpus():
    return tiny_corpus()


@pytest.fixture(scope="module")
def data(corpus):
    return phone_network.speech(corpus, timit.split(corpus.utterances), dimension=5)


def small(data, seed=0):
    return phone_network.network(1353, data.table.shape[1], width=6, layers=2, seed=seed)


def test_windows_never_leave_their_sentence(corpus, data):
    frames = tf.constant([0, 39, 40, 60])
    scaled = (corpus.features - data.mean.numpy()) / data.deviation.numpy()
    expected = [
        [0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5],
        [34, 35, 36, 37, 38, 39, 39, 39, 39, 39, 39],
        [40, 40, 40, 40, 40, 40, 41, 42, 43, 44, 45],
        list(range(55, 66)),
    ]
    np.testing.assert_allclose(data.inputs(frames), scaled[np.array(expected)].reshape(4, -1), rtol=1e-4, atol=1e-5)


def test_scaling_and_targets_come_from_the_training_speakers(corpus, data):
    train = corpus.features[data.train.numpy()]
    np.testing.assert_allclose(data.mean, train.mean(0), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(data.deviation, train.std(0), rtol=1e-3)
    other = corpus._replace(features=corpus.features.copy(), phones=corpus.phones.copy())
    for part in (data.validation.numpy(), data.test.numpy()):
        other.features[part] += 7.0
        other.phones[np.unique(corpus.segments[part])] = 60
    again = phone_network.speech(other, timit.split(corpus.utterances), dimension=5)
    for name in ("mean", "deviation", "table"):
        np.testing.assert_array_equal(getattr(again, name), getattr(data, name))
    np.testing.assert_array_equal(*(tf.gather(d.targets, data.train) for d in (again, data)))


def test_the_parts_do_not_share_speakers(corpus, data):
    speaker = np.repeat([u.speaker for u in corpus.utterances], np.diff(corpus.offsets))
    groups = [set(speaker[part.numpy()]) for part in (data.train, data.validation, data.test)]
    assert sum(len(g) for g in groups) == len(set.union(*groups)) == 6


def test_frames_of_one_phone_and_context_share_a_target(corpus, data):
    targets, train = data.targets.numpy(), data.train.numpy()
    for segment in np.unique(corpus.segments[train]):
        assert len(set(targets[corpus.segments == segment])) == 1
    assert set(targets[train]) == set(range(len(data.table)))


def test_the_loss_is_what_the_paper_says(data):
    p, (x, y, target) = small(data), data.multitask_examples(data.train[:7])
    z = np.maximum(0, np.maximum(0, x @ p["w0"]) @ p["w1"])
    scores = z @ p["wp"].numpy()
    primary = np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(7), y])
    secondary = np.mean((z @ p["ws"].numpy() - target) ** 2) / 2
    for rho in (0.0, 1.6):
        found = phone_network.loss(p, {"rho": tf.constant(rho)}, (x, y, target))
        assert float(found) == pytest.approx(primary + rho * secondary, rel=1e-5)
    assert float(phone_network.error(p, {}, (x, y))) == pytest.approx(primary, rel=1e-5)


def test_accuracy_counts_every_frame_once(data, monkeypatch):
    monkeypatch.setattr(phone_network, "CHUNK", 100)
    p, frames = small(data), data.train[:270]
    x, y = data.examples(frames)
    expected = np.mean(np.argmax(phone_network.logits(p, x), 1) == y)
    assert float(phone_network.accuracy_on(data)(p, frames)) == pytest.approx(expected, abs=1e-6)


def test_the_first_hypergradient_of_the_null_teacher(data):
    """Appendix C: with all hypers 0 it is minus the validation gradient times the sum of the training gradients, for eta."""
    delta, p = 5, small(data)
    problem = phone_network.problem(data, batch_size=20, validation_size=30, seed=3)
    zeros = {name: tf.constant(0.0) for name in ("rho", "eta", "mu")}

    def gradient(function, batch):
        with tf.GradientTape() as tape:
            tape.watch(p)
            value = function(p, zeros, batch)
        flat = tape.gradient(value, p, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return np.concatenate([flat[name].numpy().ravel() for name in sorted(flat)]).astype(float)

    steps = sum(gradient(phone_network.loss, problem.batch(tf.constant(t))) for t in range(delta))
    expected = -gradient(phone_network.error, problem.validation(tf.constant(0))) @ steps
    found = rf.real_time(problem, delta, jit_compile=False)(p, zeros).grads
    assert float(found["eta"]) == pytest.approx(expected, rel=1e-4)
    assert float(found["rho"]) == float(found["mu"]) == 0.0, "nothing moves yet, so that these cannot matter"


def test_a_stream_without_end_feeds_real_time(data):
    rows = tf.data.Dataset.from_tensor_slices(data.train).shuffle(1000, seed=0).repeat().batch(20, drop_remainder=True)
    whole = phone_network.problem(data, 20, 30, seed=0)
    streamed = rf.Problem(
        whole.dynamics, whole.objective, None, rf.batches.stream(rows.map(data.multitask_examples)), whole.validation
    )
    tuner = rf.HyperOptimizer(
        rf.real_time(streamed, 4, jit_compile=False), rf.projected_adam(0.05, {"eta": rf.NonNegative()})
    )
    result = tuner.run(small(data), {"rho": 0.0, "eta": 0.0, "mu": 0.0}, iterations=5)
    assert result.history[-1]["eta"] > 0
    assert result.history[-1]["value"] < result.history[0]["value"]

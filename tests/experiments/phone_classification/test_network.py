"""The network of phone classification, its inputs, targets and losses."""

import numpy as np
import pytest
import tensorflow as tf

from data.speech import timit
from experiments.phone_classification import network
from tests.support.corpora import tiny_corpus
from tests.support.phones import tiny_speech


@pytest.fixture(scope="module")
def corpus():
    return tiny_corpus()


@pytest.fixture(scope="module")
def data():
    return tiny_speech()


def small(data):
    return network.initial_params(1353, data.table.shape[1], width=6, layers=2, seed=0)


def test_shared_weights_are_drawn_before_those_of_the_tasks():
    params, rng = network.initial_params(4, 2, width=3, layers=2, seed=5), np.random.default_rng(5)
    for name, shape in {"w0": (4, 3), "w1": (3, 3), "wp": (3, 183), "ws": (3, 2)}.items():
        np.testing.assert_array_equal(params[name], rng.normal(size=shape, scale=shape[0] ** -0.5).astype(np.float32))
    assert list(params) == ["w0", "w1", "b0", "b1", "wp", "bp", "ws", "bs"]
    assert not any(np.any(params[name]) for name in ("b0", "b1", "bp", "bs"))


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
    changed = network.speech(other, timit.split(corpus.utterances), dimension=5)
    for name in ("mean", "deviation", "table"):
        np.testing.assert_array_equal(getattr(changed, name), getattr(data, name))
    np.testing.assert_array_equal(*(tf.gather(d.targets, data.train) for d in (changed, data)))


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
        value = network.loss(p, {"rho": tf.constant(rho)}, (x, y, target))
        assert float(value) == pytest.approx(primary + rho * secondary, rel=1e-5)
    assert float(network.error(p, {}, (x, y))) == pytest.approx(primary, rel=1e-5)


def test_accuracy_counts_every_frame_once(data, monkeypatch):
    monkeypatch.setattr(network, "CHUNK", 100)
    p, frames = small(data), data.train[:270]
    x, y = data.examples(frames)
    expected = np.mean(np.argmax(network.logits(p, x), 1) == y)
    assert float(network.accuracy_on(data)(p, frames)) == pytest.approx(expected, abs=1e-6)

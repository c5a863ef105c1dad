"""Refits: models that did not see an example judge its label, and trusted examples say how to read the verdict."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from rfho2.keras_bridge.training.keras_training import make_training
from rfho2.keras_bridge.training.losses import losses
from rfho2.keras_bridge.tuners import refits
from rfho2.keras_bridge.tuners.refits import Refits, threshold
from tests.support.keras_models import SPARSE, blobs, network


def f1(suspected, wrong):
    return 2 * np.sum(suspected & wrong) / (np.sum(suspected) + np.sum(wrong))


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6])
def test_the_threshold_is_about_the_best_one(share):
    rng = np.random.default_rng(0)
    right, wrong = rng.exponential(0.5, 2000), rng.normal(3.0, 1.0, 2000)
    is_wrong = rng.random(4000) < share
    losses = np.where(is_wrong, rng.normal(3.0, 1.0, 4000), rng.exponential(0.5, 4000))
    achieved = f1(losses > threshold(losses, right, wrong), is_wrong)
    best = max(f1(losses > candidate, is_wrong) for candidate in np.linspace(0, 6, 200))
    assert achieved > best - 0.01


def test_without_wrong_labels_hardly_any_is_suspected():
    rng = np.random.default_rng(0)
    right, losses, wrong = rng.exponential(0.5, 500), rng.exponential(0.5, 2000), rng.normal(5.0, 0.5, 500)
    assert np.mean(losses > threshold(losses, right, wrong)) < 0.02


@pytest.fixture(scope="module")
def noisy():
    rng = np.random.default_rng(0)
    x, y = blobs(noise=0.4)
    wrong = rng.random(len(y)) < 0.3
    return (x, np.where(wrong, (y + 1) % 3, y)), blobs(seed=1, noise=0.4), wrong


def refitted(noisy, **settings):
    training = make_training(network(), SPARSE, (), keras.optimizers.SGD(0.2), False, None, "batch")
    return Refits(
        training, noisy[0], noisy[1], **{"steps": 40, "batch_size": 40, "seed": 0, "jit_compile": False} | settings
    )


def test_wrong_labels_are_found_from_the_trusted_examples_alone(noisy):
    nothing = np.zeros(len(noisy[2]), bool)
    assert f1(refitted(noisy).suspects([nothing], rounds=2)[0], noisy[2]) > 0.9


def test_of_several_starts_the_one_counts_that_predicts_trusted_examples_best(noisy, monkeypatch):
    judge = refitted(noisy)
    losses = {True: 0.3, False: 0.7}  # of trusted examples, after starts that believe the first example, and that do not

    def judged(believed):
        right = np.full(50, losses[bool(believed[0])])
        return np.where(np.arange(240) < 40 if believed[0] else np.arange(240) < 9, 5.0, 0.1), right, np.full(50, 5.0)

    monkeypatch.setattr(judge, "_held_out_losses", judged)
    trusting, doubting = np.ones(240, bool), np.zeros(240, bool)
    assert np.sum(judge.suspects([trusting, doubting], rounds=1)[0]) == 40
    losses[True] = 0.9
    assert np.sum(judge.suspects([trusting, doubting], rounds=1)[0]) == 9


def test_nobody_judges_an_example_that_it_has_seen(noisy, monkeypatch):
    judge = refitted(noisy)
    seen, judged = [], []
    train = judge._train
    monkeypatch.setattr(judge, "_train", lambda params, hypers: seen.append(hypers["weights"]) or train(params, hypers))
    losses = judge._losses
    monkeypatch.setattr(judge, "_losses", lambda params, x, labels: judged.append(x) or losses(params, x, labels))
    believed = ~noisy[2]
    losses, right, _ = judge._held_out_losses(believed)
    number = len(believed)
    assert len(seen) == len(judged) == refits.FOLDS
    assert len(losses) == number
    assert len(right) == len(noisy[1][1])
    every = np.concatenate([noisy[0][0], noisy[1][0]])
    for weights, x in zip(seen, judged, strict=True):
        assert np.mean(weights) == pytest.approx(1.0)
        assert not any(np.any(np.all(every[weights > 0] == one, axis=1)) for one in x), "nobody has seen what it judges"
        assert not np.any(weights[:number][~believed]), "nor do those that are not believed"
    counts = np.sum([weights > 0 for weights in seen], axis=0)
    assert set(counts[:number][believed]) | set(counts[number:]) == {refits.FOLDS - 1}


def test_losses_of_single_examples_average_to_the_loss():
    rng = np.random.default_rng(0)
    y, outputs = tf.constant(rng.integers(3, size=8)), tf.constant(rng.normal(size=(8, 3)), tf.float32)
    loss = losses(SPARSE)
    assert loss.per_example(y, outputs).shape == [8]
    assert float(tf.reduce_mean(loss.per_example(y, outputs))) == pytest.approx(float(loss(y, outputs)))
    many = losses("mse")
    y, outputs = (tf.constant(rng.normal(size=(8, 5, 2)), tf.float32) for _ in range(2))
    assert float(tf.reduce_mean(many.per_example(y, outputs))) == pytest.approx(float(many(y, outputs)))


def test_what_refits_cannot_judge_by_is_refused(noisy):
    x, y = noisy[1]
    with pytest.raises(ValueError, match="validation has 4 examples; refits need at least 5"):
        refitted((noisy[0], (x[:4], y[:4]), None))
    with pytest.raises(ValueError, match="two different labels"):
        refitted((noisy[0], (x[y == 1], y[y == 1]), None))
    with pytest.raises(ValueError, match=r"train has arrays of shape \[None\], but validation has \[None, 1\]"):
        refitted((noisy[0], (x, y[:, None]), None))


def test_a_refit_that_diverges_is_reported(noisy):
    training = make_training(network(), SPARSE, (), keras.optimizers.SGD(3e38), False, None, "batch")
    judge = Refits(training, noisy[0], noisy[1], steps=5, batch_size=40, seed=0, jit_compile=False)
    with pytest.raises(ValueError, match="a refit diverged"):
        judge.suspects([~noisy[2]], rounds=1)

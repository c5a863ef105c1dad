"""What protects real-time tuning: the start, the losses that are undone, and the word about a rate that sank."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from rfho2.keras_bridge.training.tunables import select_tunables
from rfho2.keras_bridge.tuners.safeguards import loss_limit, safe_start, warn_at_the_floor

TUNABLES = select_tunables({"learning_rate": 0.1}, None, "sgd")


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lambda rate: abs(np.log(rate / 0.1)), 0.1),  # every other rate is worse
        (lambda rate: 1.0 + 0.1 * rate, 0.1),  # a smaller one is better by noise only, a larger one is worse
        (lambda rate: 1.0 - rate if rate < 1 else 9.0, 0.8 / 4),  # a quarter of the largest that works
        (lambda rate: 1.0 if rate < 1 else 1.2, 0.8 / 4),  # a plateau: nothing is learned at any rate
        (lambda rate: 1.0 if rate < 6 else 0.5, 10.0 / 4),  # learning begins beyond a plateau; the range ends at 10
        (lambda rate: np.nan if rate > 0.5 else 1.0, 0.1),
        (lambda rate: np.nan, 0.1),
        (lambda rate: 5.0 if rate > 0.01 else 0.5, 0.1 / 4**3),  # a quarter of the largest that works
        (lambda rate: np.nan if rate > 0.05 else 0.5, 0.1 / 4**2),
    ],
)
def test_a_smaller_rate_has_to_be_clearly_better_and_a_larger_one_no_worse(loss, expected):
    hypers = {"learning_rate": tf.math.log(tf.constant(0.1))}
    start = safe_start(lambda h: loss(float(tf.exp(h["learning_rate"]))), hypers, TUNABLES, first=1.0)
    assert float(tf.exp(start["learning_rate"])) == pytest.approx(expected, rel=1e-5)


def test_on_a_plateau_there_is_little_to_lose_and_afterwards_progress_is_kept():
    limit = loss_limit(1.0, examples=10_000)
    assert limit([]) == pytest.approx(1.25)
    assert limit([{"value": 0.95}] * 9) == pytest.approx(1.2)
    assert limit([{"value": 0.95}, {"value": 0.5}, {"value": 0.6}]) == pytest.approx(0.55)  # a tenth of the progress
    few = loss_limit(1.0, examples=40)
    assert few([{"value": 0.5}]) == pytest.approx(0.5 + 3 * np.sqrt(0.4 * 0.5 / 40))  # three standard errors


def test_a_loss_that_begins_at_0_and_falls_below_may_vary():
    limit = loss_limit(0.01, examples=400)
    assert limit([{"value": -0.5}]) > -0.45
    assert limit([{"value": -0.5}]) < -0.3


def test_a_learning_rate_that_sank_to_its_floor_is_reported():
    with pytest.warns(UserWarning, match="lower end of its range, 1e-06"):
        warn_at_the_floor({"learning_rate": np.array([0.1, 1e-6])}, TUNABLES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_at_the_floor({"learning_rate": np.array(1e-5)}, TUNABLES)
        warn_at_the_floor({"weight_decay": np.array(1e-8)}, select_tunables(["weight_decay"], None, "sgd"))

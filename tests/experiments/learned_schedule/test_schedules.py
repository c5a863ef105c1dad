"""Schedules: their shapes, the CNN that is made of products, and the unit that tunes and judges one."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from experiments.averaged_seeds.problem import Seeds
from experiments.learned_schedule import experiment, problems, report, schedules
from experiments.learned_schedule.experiment import LEARNED, PRESETS, SMOOTHED, Unit


def rng():
    return np.random.default_rng(0)


def test_shapes_of_schedules():
    constant, cosine, cycle = (kind(1000, rng()) for kind in schedules.KINDS.values())
    assert np.all(constant == constant[0])
    assert np.all(np.diff(cosine) < 0)
    assert cosine[0] == constant[0]  # the same peak, from the same generator
    peak = int(np.argmax(cycle))
    assert 50 <= peak <= 500
    assert cycle[peak] == pytest.approx(constant[0])
    assert cycle[0] == pytest.approx(constant[0] / 25)
    assert cycle[-1] < 1e-3 * cycle[peak]
    assert np.all(np.diff(cycle[: peak + 1]) > 0)
    assert np.all(np.diff(cycle[peak:]) < 0)


def test_smoothing_is_a_geometric_mean_with_shorter_ends():
    np.testing.assert_allclose(
        schedules.smoothed(np.array([1.0, 100.0, 1.0, 1.0]), 3), [10, 100 ** (1 / 3), 100 ** (1 / 3), 1]
    )
    np.testing.assert_allclose(schedules.smoothed(np.full(7, 0.3), 5), 0.3, rtol=1e-6)


def test_products_of_patches_are_convolutions():
    images = tf.constant(rng().normal(size=(2, 12, 12, 3)))
    filters = tf.constant(rng().normal(size=(3, 3, 3, 4)))
    expected = tf.nn.conv2d(images, filters, 2, "VALID")
    products = problems.patches(images, 3) @ tf.reshape(filters, (27, 4))
    np.testing.assert_allclose(products, tf.reshape(expected, (2, 25, 4)), atol=1e-12)


@pytest.mark.slow
def test_the_cnn_has_as_many_weights_as_it_says():
    case = problems.case(problems.DIGITS, 0, 100, 100)
    p = case.initial(Seeds(0))(tf.constant(0))
    assert sum(w.shape.num_elements() for w in p.values()) == 5386
    assert case.logits(p, case.train[0]).shape == (100, 10)
    assert len(case.test[1]) == 19_800


def test_the_best_trial_is_the_one_with_the_least_loss_and_divergence_never_wins():
    losses = iter([np.nan, 0.5, 0.3, 0.4])
    errors = lambda schedule: {"validation": [next(losses)]}  # noqa: E731
    best, history = experiment.best_of(4, schedules.constant, 5, errors, rng())
    drawn = rng()
    assert best[0] == [schedules.constant(5, drawn)[0] for _ in range(4)][2]
    assert history[1:] == [0.5, 0.3, 0.4]


@pytest.mark.slow
def test_tuning_and_judging_use_different_seeds():
    case = problems.case(problems.CIFAR, 0, 200, 100)
    config = dataclasses.replace(PRESETS["quick"], steps=5)
    schedule = np.full(5, 0.01, np.float32)
    tuning, fresh = (experiment.judge(config, case, stream, 2)(schedule) for stream in (problems.TUNING, problems.FRESH))
    assert set(tuning["validation"]).isdisjoint(fresh["validation"])
    assert all(0 <= share <= 1 for share in fresh["test"])


@pytest.mark.slow
def test_a_unit_is_a_row_and_the_table_compares_with_the_smoothed_schedule(tmp_path):
    config = dataclasses.replace(PRESETS["quick"], steps=10, trials=2, hyper_iterations=2, checkpoints=3, train=200)
    units = [Unit(config, problems.CIFAR, 0, method) for method in (LEARNED, "cosine")]
    rows = experiment.results(config, [json.loads(json.dumps(experiment.compute(unit, tmp_path))) for unit in units])
    assert [row["method"] for row in rows] == ["cosine", LEARNED, SMOOTHED]
    assert len(rows[1]["schedule"]) == 10
    assert len(rows[1]["history"]) == 2
    assert list(tmp_path.glob("checkpoints/*/ckpt-*"))  # so that a long one can be stopped and go on
    assert "| CIFAR features, MLP | cosine |" in report.tables(config, rows, tmp_path)["table.md"]
    assert len(report.figures(config, rows)["schedules"].axes) == 2


def test_a_training_that_failed_counts_as_guessing():
    row = {"problem": "digits", "method": "constant", "split": 0, "validation": [0.5, np.inf], "test": [0.9, np.nan]}
    means = report.by_split([row | {"test_loss": [np.nan]}], "digits", "constant")
    assert means["validation"] == pytest.approx((0.5 + np.log(10)) / 2)
    assert means["test"] == pytest.approx(0.5)
    assert means["test_loss"] == pytest.approx(np.log(10))

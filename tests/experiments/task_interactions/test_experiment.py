"""The task-interaction experiment on a few examples."""

import dataclasses
import functools
import json
import os

import numpy as np
import pytest

import rfho2 as rf
from data import cifar_features
from experiments.task_interactions import models
from experiments.task_interactions.experiment import PRESETS, Config, choose_configs, run, tune
from tests.support.features import few_features

SMALL = Config(methods=("STL", "HMTL", "HMTL-S"), seeds=(0,), steps=30, hyper_iterations=8, totals=(1e-4, 1e-2))
LABELS = ["STL", "HMTL", "HMTL-S R=0.0001", "HMTL-S R=0.01"]


@pytest.fixture(scope="module", autouse=True)
def without_xla():
    """Engines that take a moment to build; the binary is tested with XLA."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rf, "reverse", functools.partial(rf.reverse, jit_compile=False))
        yield


@pytest.fixture(scope="module")
def outcome():
    return run(SMALL, few_features)


@pytest.mark.slow
def test_there_is_one_row_per_method_total_and_split(outcome):
    assert [row["method"] for row in outcome.results] == LABELS
    for row in outcome.results:
        assert all(0 <= row[key] <= 1 for key in ("validation_accuracy", "accuracy", "accuracy_refit"))
        assert 0 <= row["kept"] < SMALL.hyper_iterations
    assert json.loads(json.dumps(outcome.results)) == outcome.results
    assert set(outcome.interactions) == {(label, 0) for label in LABELS[1:]}


@pytest.mark.slow
def test_the_pace_is_the_median_of_the_seconds_of_a_hyper_iteration(outcome):
    assert set(outcome.pace) == {f"{label} seed 0" for label in LABELS}
    assert all(outcome.pace[name] < outcome.timing[name] / 2 for name in outcome.pace), "compiling does not count"


@pytest.mark.parametrize("total", [1e-3, *(pytest.param(total, marks=pytest.mark.slow) for total in (None, 1e-5))])
def test_c_stays_symmetric_non_negative_and_bounded_at_every_hyper_iteration(total):
    method = models.method("HMTL" if total is None else "HMTL-S", 10, 1e-3, total or 1.0)
    seen = []

    class Watch(rf.Callback):
        def on_hyper_iteration(self, k, hypers, hypergradient, extra):
            seen.append(hypers["C"].numpy())

    result = tune(dataclasses.replace(SMALL, hyper_iterations=15), method, few_features(1), [Watch()])
    assert len(seen) == 15
    assert np.any(seen[-1] > 0)
    for c in [*seen, result.hypers["C"].numpy()]:
        np.testing.assert_array_equal(c, c.T)
        assert np.all(c >= 0)
        assert total is None or c.sum(dtype=np.float64) <= total * (1 + 4 * np.finfo(np.float32).eps)


def test_the_validation_error_falls_and_the_first_of_the_best_is_kept():
    config = dataclasses.replace(SMALL, hyper_iterations=20)
    result = tune(config, models.method("STL", 10, 1e-3, 1.0), few_features(2))
    assert result.history[-1]["value"] < result.history[0]["value"]
    errors = [row["validation errors"] for row in result.history]
    assert result.best.iteration == int(np.argmin(errors))


@pytest.mark.slow
def test_learning_rate_and_momentum_can_be_tuned_on_the_training_error():
    config = dataclasses.replace(SMALL, tune_optimizer=True, hyper_iterations=5)
    split = few_features(0)
    result = tune(config, models.method("HMTL-S", 10, 1e-3, 1e-3), split)
    assert {"value/validation", "value/training"} <= set(result.history[0])
    assert result.hypers["eta"] != config.learning_rate
    assert result.hypers["mu"] != np.float32(config.momentum)
    assert np.isfinite(models.accuracy(models.refit(config.training, split, result.hypers), split.test))


def test_a_preset_is_narrowed_to_the_data_set_that_is_asked_for():
    paper = PRESETS["paper"]
    assert choose_configs(paper, {}) == paper
    assert choose_configs(paper, {"dataset": "cifar100"}) == paper[1:]
    assert choose_configs(paper, {"dataset": "cifar10", "steps": 7}) == (dataclasses.replace(paper[0], steps=7),)
    (other,) = choose_configs(PRESETS["quick"], {"dataset": "cifar100"})
    assert (other.dataset, other.per_class) == ("cifar100", 3)


def test_a_features_file_is_that_of_one_data_set():
    (config,) = choose_configs(PRESETS["paper"], {"features_file": "x.npz"})
    assert (config.dataset, config.source, config.features_file) == ("cifar100", "file", "x.npz")
    (config,) = choose_configs(PRESETS["quick"], {"features_file": "x.npz"})
    assert (config.dataset, config.source) == ("cifar10", "file")


@pytest.mark.slow
def test_cifar_100_if_its_features_are_there():
    if not os.environ.get("RFHO2_CIFAR100_FEATURES"):
        pytest.skip("RFHO2_CIFAR100_FEATURES is not set")
    config = Config("cifar100", ("HMTL-S",), (0,), 3, steps=3, hyper_iterations=2, source="file")
    features = cifar_features.find("cifar100", "file")
    outcome = run(config, lambda seed: cifar_features.split(features, seed, 3))
    assert outcome.interactions["HMTL-S", 0].shape == (100, 100)
    assert outcome.results[0]["accuracy"] > 0.1

"""The comparison of discounts: what is trained, and with which engine."""

import dataclasses
import types

import numpy as np
import pytest

import rfho2 as rf
from experiments.discounts import experiment
from experiments.discounts.experiment import DEFAULT, DIGITS, PHONES, Config, Setting, Unit, compute, settings, units
from experiments.keras_real_time import experiment as keras_real_time
from tests.support.phones import TINY, tiny_speech, tiny_trainer

FEW = Config(train=100, validation=60, epochs=2, batch_size=10, hyper_batch=5, last=2, seeds=(0,), phone_seeds=(0,))


def test_carry_means_nothing_for_discount_0():
    assert settings(Config(discounts=(0.0, 0.9, 1.0))) == [(0.0, False), (0.9, False), (0.9, True), (1.0, False), DEFAULT]
    assert [str(s) for s in settings(Config(discounts=(0.0, 0.9)))] == [
        "discount 0", "discount 0.9, no carry", "discount 0.9, carry",
    ]  # fmt: skip


def test_every_problem_meets_every_setting_with_its_seeds():
    config = dataclasses.replace(Config(), seeds=(3, 4), phone_seeds=(5,))
    planned = units(config, ())
    assert len({unit.name for unit in planned}) == len(planned) == 9 * 5
    assert {(unit.problem, unit.seed, unit.choice) for unit in planned} == {
        (problem, seed, choice)
        for problem, seed in [(p, s) for p in DIGITS for s in (3, 4)] + [(PHONES, 5)]
        for choice in settings(config)
    }


@pytest.mark.parametrize(("problem", "rate"), zip(DIGITS, (0.005, 5.0), strict=True))
def test_the_tuner_gets_the_setting_and_its_trajectory_is_summarised(problem, rate, tmp_path, monkeypatch):
    given = {}
    trajectories = {"value": np.array([3.0, 2.0, 1.0]), "learning_rate": np.array([0.1, 0.2, 0.3])}

    class Fake:
        def __init__(self, model, loss, hypers, **settings):
            given.update(hypers, **settings)

        def fit(self, *train, **settings):
            assert settings["validation_data"] is digits.validation
            return types.SimpleNamespace(trajectories=trajectories)

    digits = keras_real_time.Digits(*(("images", "labels of " + part) for part in ("train", "validation", "test")))
    model = types.SimpleNamespace(evaluate=lambda images, labels, **_: {"labels of validation": 0.7}[labels])
    monkeypatch.setattr(rf, "RealTimeTuner", Fake)
    monkeypatch.setattr(keras_real_time, "cnn", lambda seed: model)
    monkeypatch.setattr(keras_real_time, "accuracy", lambda model, part: {digits.test: 0.9}[part])
    monkeypatch.setattr(keras_real_time, "load_digits", lambda config, seed: digits)
    unit = Unit(dataclasses.replace(FEW, reference_rate=0.5), problem, 3, Setting(0.9, True))
    row = compute(unit, tmp_path)
    assert given == {
        "learning_rate": rate, "discount": 0.9, "carry": True, "hyper_batch": 5, "seed": 3, "jit_compile": False,
        "robust": False,
    }  # fmt: skip
    outcome = {"final": 1.5, "best": 0.7, "test": 0.9, "values": [3.0, 2.0, 1.0], "rates": [0.1, 0.2, 0.3]}
    assert row == {"unit": unit.name, "problem": problem, "seed": 3, "discount": 0.9, "carry": True, **outcome}


@pytest.mark.slow
def test_the_tuner_on_few_digits(tmp_path):
    row = compute(Unit(dataclasses.replace(FEW, reference_rate=1.0), next(iter(DIGITS)), 0, Setting(0.0, False)), tmp_path)
    assert len(row["values"]) == len(row["rates"]) == 4
    assert row["rates"][0] >= 0.0099  # trials before the fit may raise it
    assert 0 <= row["test"] <= 1


@pytest.mark.slow
def test_phones_are_trained_with_the_setting(tmp_path, monkeypatch):
    config, trainer = dataclasses.replace(FEW, hyper_batch=TINY.hyper_batch), tiny_trainer()
    monkeypatch.setattr(trainer, "tuned", trainer.tuned)  # what on_phones replaces comes back
    monkeypatch.setattr(experiment, "load_speech", lambda config: tiny_speech())
    monkeypatch.setattr(experiment, "phone_trainer", lambda config, seed: trainer)
    row = compute(Unit(config, PHONES, 0, Setting(0.0, False)), tmp_path)
    assert (trainer.tuned.settings["discount"], trainer.tuned.settings["carry"]) == (0.0, False)
    assert len(row["values"]) == TINY.steps // TINY.hyper_batch
    assert row["rates"][0] == pytest.approx(0.075)
    assert row["best"] < row["values"][0]

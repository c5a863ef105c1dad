"""The comparison of discounts: what is trained, with which engine, and that a stopped run resumes."""

import dataclasses
import types

import numpy as np
import pytest

import rfho2 as rf
from experiments.discounts import experiment
from experiments.discounts.experiment import DEFAULT, DIGITS, PHONES, Config, Setting, run, settings
from experiments.keras_real_time import experiment as keras_real_time
from tests.support.phones import TINY, tiny_speech, tiny_trainer

FEW = Config(train=100, validation=60, epochs=2, batch_size=10, hyper_batch=5, last=2, seeds=(0,), phone_seeds=(0,))


def test_carry_means_nothing_for_discount_0():
    assert settings(Config(discounts=(0.0, 0.9, 1.0))) == [(0.0, False), (0.9, False), (0.9, True), (1.0, False), DEFAULT]
    assert [str(s) for s in settings(Config(discounts=(0.0, 0.9)))] == [
        "discount 0", "discount 0.9, no carry", "discount 0.9, carry",
    ]  # fmt: skip


def test_every_problem_meets_every_setting_and_a_stopped_run_resumes(tmp_path, monkeypatch):
    trained = []

    def fake(config, *args):
        if len(trained) == 9:
            trained.append(None)
            raise KeyboardInterrupt
        trained.append(args)
        return {"final": 1.0}

    monkeypatch.setattr(experiment, "on_digits", fake)
    monkeypatch.setattr(experiment, "on_phones", fake)
    config = dataclasses.replace(Config(), seeds=(3, 4), phone_seeds=(5,))
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "trainings.json", tmp_path)
    records = run(config, tmp_path / "trainings.json", tmp_path)
    assert len(trained) - 1 == len(records) == 7 * 5, "no training ran twice"
    met = {(r["problem"], r["seed"], r["discount"], r["carry"]) for r in records}
    assert met == {
        (problem, seed, *choice)
        for problem, seed in [(p, s) for p in DIGITS for s in (3, 4)] + [(PHONES, 5)]
        for choice in settings(config)
    }
    _, seed, rate, choice = trained[8]
    assert (seed, rate, choice) == (3, 10 * config.reference_rate, Setting(0.9, False))


def test_the_tuner_gets_the_setting_and_its_trajectory_is_summarised(monkeypatch):
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
    record = experiment.on_digits(FEW, lambda: digits, 3, 0.01, Setting(0.9, True))
    assert given == {
        "learning_rate": 0.01, "discount": 0.9, "carry": True, "hyper_batch": 5, "seed": 3, "jit_compile": False,
        "robust": False,
    }  # fmt: skip
    assert record == {"final": 1.5, "best": 0.7, "test": 0.9, "values": [3.0, 2.0, 1.0], "rates": [0.1, 0.2, 0.3]}


@pytest.mark.slow
def test_the_tuner_on_few_digits():
    record = experiment.on_digits(FEW, lambda: experiment.load_digits(FEW, 0), 0, 0.01, Setting(0.0, False))
    assert len(record["values"]) == len(record["rates"]) == 4
    assert record["rates"][0] >= 0.0099  # trials before the fit may raise it
    assert 0 <= record["test"] <= 1


@pytest.mark.slow
def test_phones_are_trained_with_the_setting(monkeypatch):
    config, trainer = dataclasses.replace(FEW, hyper_batch=TINY.hyper_batch), tiny_trainer()
    monkeypatch.setattr(trainer, "tuned", trainer.tuned)  # what on_phones replaces comes back
    record = experiment.on_phones(config, tiny_speech, lambda: trainer, Setting(0.0, False))
    assert (trainer.tuned.settings["discount"], trainer.tuned.settings["carry"]) == (0.0, False)
    assert len(record["values"]) == TINY.steps // TINY.hyper_batch
    assert record["rates"][0] == pytest.approx(0.075)
    assert record["best"] < record["values"][0]

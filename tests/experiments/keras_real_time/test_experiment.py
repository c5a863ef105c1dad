"""The comparison of the Keras tuner with random search."""

import dataclasses

import numpy as np
import pytest

from data.errors import DataError
from experiments.keras_real_time import experiment as comparison
from experiments.keras_real_time import report

QUICK = comparison.PRESETS["quick"]


def test_draws_are_within_their_ranges_and_spread_over_them():
    rng = np.random.default_rng(0)
    draws = [comparison.draw_hypers(comparison.HYPERS, rng) for _ in range(300)]
    for name, (low, high) in comparison.SEARCHED.items():
        values = np.array([draw[name] for draw in draws])
        assert np.all((low <= values) & (values <= high))
        logs = np.log(1 - values if name == "momentum" else values)
        width = abs(np.log((1 - low) / (1 - high) if name == "momentum" else high / low))
        assert np.std(logs) == pytest.approx(width / 12**0.5, rel=0.1)


def test_a_stopped_run_resumes_after_the_last_finished_training(tmp_path, monkeypatch):
    config = dataclasses.replace(QUICK, train=100, validation=50, trials=2)
    trained, interrupted = [], False

    def fake(config, seed, digits, hypers):
        nonlocal interrupted
        if len(trained) == 4 and not interrupted:
            interrupted = True
            raise KeyboardInterrupt
        trained.append(hypers)
        return {**hypers, "validation": 0.9, "test": 0.8, "seconds": 10.0}

    monkeypatch.setattr(comparison, "train_with_keras", fake)
    monkeypatch.setattr(comparison, "train_in_real_time", fake)
    with pytest.raises(KeyboardInterrupt):
        comparison.run(config, tmp_path / "trainings.json")
    records = comparison.run(config, tmp_path / "trainings.json")
    assert len(trained) == 8, "no training ran twice"
    assert [r["ratio"] for r in records] == [1.0, 0.5, 0.5] * 2
    assert records[1]["learning_rate"] == pytest.approx(0.01 * records[0]["learning_rate"])


def test_settings_that_leave_no_test_digits_are_refused():
    comparison.check(QUICK)
    with pytest.raises(DataError, match="--train=10000 and --validation=60000 leave no digits to test on"):
        comparison.check(dataclasses.replace(QUICK, train=10_000, validation=60_000))


@pytest.mark.slow
def test_everything_on_few_digits(tmp_path):
    config = dataclasses.replace(QUICK, train=300, validation=100, epochs=1, batch_size=20, trials=2, hyper_batch=5)
    records = comparison.run(config, tmp_path / "trainings.json")
    assert [r["number_of_hypers"] for r in records] == [1, 1, 1, 3, 3, 3]
    for record in records:
        assert 0 <= record["test"] <= 1
        assert record["seconds"] > 0
    assert report.write(tmp_path, records, config) == (tmp_path / "table.md").read_text()
    assert (tmp_path / "learning_rates.png").stat().st_size > 10_000

"""The comparison of the Keras tuner with random search."""

import dataclasses

import numpy as np
import pytest

from data.errors import DataError
from experiments.common.study import rows_of
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


def test_the_tuner_starts_from_rates_that_are_wrong_relative_to_the_best_trial(tmp_path, monkeypatch):
    config = dataclasses.replace(QUICK, train=100, validation=50, trials=2)
    monkeypatch.setattr(comparison, "train", lambda unit: {"validation": 0.9, "test": 0.8, "seconds": 10.0})
    rows = rows_of(report.STUDY, config, tmp_path)
    assert len(rows) == 8
    rows = comparison.results(config, rows)
    assert [row["ratio"] for row in rows] == [1.0, 0.5, 0.5] * 2
    assert rows[1]["learning_rate"] == pytest.approx(0.01 * rows[0]["learning_rate"])


def test_settings_that_leave_no_test_digits_are_refused():
    comparison.check(QUICK)
    with pytest.raises(DataError, match="--train=10000 and --validation=60000 leave no digits to test on"):
        comparison.check(dataclasses.replace(QUICK, train=10_000, validation=60_000))


def test_the_table_has_means_over_the_seeds_compared_with_the_search():
    rows = [
        {
            "seed": seed,
            "number_of_hypers": 1,
            "method": method,
            "test": test + (1 + method.startswith("random")) * seed / 100,
            "seconds": seconds,
            "ratio": seconds / 100,
        }
        for seed in (0, 1)
        for method, test, seconds in (("random search, 20 trials", 0.95, 100.0), ("real time, a start", 0.94, 20.0))
    ]
    lines = report.table(rows).splitlines()
    assert lines[2] == "| 1 | random search, 20 trials | 96.00 | +0.00 | +0.00 | 100.0 | 1.00 |"
    assert lines[3] == "| 1 | real time, a start | 94.50 | -1.50 | -2.00 | 20.0 | 0.20 |"

"""The comparison of the Keras tuner with random search."""

import dataclasses

import numpy as np
import pytest

from experiments.keras_real_time import experiment as comparison


def test_draws_are_within_their_ranges_and_spread_over_them():
    rng = np.random.default_rng(0)
    draws = [comparison.drawn(comparison.THREE, rng) for _ in range(300)]
    for name, (low, high) in comparison.RANGES.items():
        values = np.array([draw[name] for draw in draws])
        assert np.all((low <= values) & (values <= high))
        logs = np.log(1 - values if name == "momentum" else values)
        assert np.std(logs) == pytest.approx(
            abs(np.log((1 - low) / (1 - high) if name == "momentum" else high / low)) / 12**0.5, rel=0.1
        )


def test_the_table_has_means_over_seeds_beside_the_search():
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
    lines = comparison.table(rows).splitlines()
    assert lines[2] == "| 1 | random search, 20 trials | 96.00 | +0.00 | +0.00 | 100.0 | 1.00 |"
    assert lines[3] == "| 1 | real time, a start | 94.50 | -1.50 | -2.00 | 20.0 | 0.20 |"


def test_a_run_that_was_stopped_goes_on_after_the_last_training(tmp_path, monkeypatch):
    config = dataclasses.replace(comparison.PRESETS["quick"], train=100, validation=50, trials=2)
    done = []

    def fake(config, seed, data, hypers):
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(hypers)
        return {**hypers, "validation": 0.9, "test": 0.8, "seconds": 10.0}

    monkeypatch.setattr(comparison, "trial", fake)
    monkeypatch.setattr(comparison, "tuned", fake)
    with pytest.raises(KeyboardInterrupt):
        comparison.run(config, tmp_path / "trainings.json")
    done.append(None)  # past the stop
    records = comparison.run(config, tmp_path / "trainings.json")
    assert len([hypers for hypers in done if hypers]) == 8, "none was made twice"
    assert [r["ratio"] for r in records] == [1.0, 0.5, 0.5] * 2
    assert records[1]["learning_rate"] == pytest.approx(0.01 * records[0]["learning_rate"])


@pytest.mark.slow
def test_all_of_it_on_few_digits(tmp_path):
    config = dataclasses.replace(
        comparison.PRESETS["quick"], train=300, validation=100, epochs=1, batch_size=20, trials=2, hyper_batch=5
    )
    records = comparison.run(config, tmp_path / "trainings.json")
    assert [r["number_of_hypers"] for r in records] == [1, 1, 1, 3, 3, 3]
    for record in records:
        assert 0 <= record["test"] <= 1
        assert record["seconds"] > 0
    comparison.draw(records, config, tmp_path / "figure")
    assert (tmp_path / "figure.png").stat().st_size > 10_000

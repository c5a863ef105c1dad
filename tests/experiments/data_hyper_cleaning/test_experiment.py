"""The hyper-cleaning experiment on few digits."""

import functools
import json

import numpy as np
import pytest

import rfho2 as rf
from experiments.data_hyper_cleaning.experiment import Config, detection, run
from tests.support.digits import few_digits

small = functools.partial(Config, steps=20, hyper_iterations=25, hyper_rate=0.05, fit_steps=50)


@pytest.fixture(scope="module", autouse=True)
def without_xla():
    """Engines that take a moment to build; the binary is tested with XLA."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rf, "reverse", functools.partial(rf.reverse, jit_compile=False))
        yield


@pytest.fixture(scope="module")
def outcome():
    return run(small(radius=(60.0,), seeds=(0, 1)), few_digits)


@pytest.fixture(scope="module")
def second_outcome():
    return run(small(radius=(30.0, 60.0), seeds=(1,)), few_digits)


@pytest.mark.slow
def test_the_results_have_one_row_per_method_and_seed(outcome, second_outcome):
    rows = {(row["method"], row["seed"]): row for row in outcome.results}
    assert set(rows) == {(m, s) for m in ("oracle", "baseline", "DH-60") for s in (0, 1)}
    assert [row["method"] for row in second_outcome.results] == ["oracle", "baseline", "DH-30", "DH-60"]
    assert all(0 <= row["accuracy"] <= 1 for row in outcome.results)
    assert rows["baseline", 0]["f1"] is None
    assert rows["oracle", 0]["f1"] == 1.0
    assert rows["DH-60", 0]["accuracy_weighted"] is not None
    assert not any("seconds" in row for row in outcome.results)
    assert json.loads(json.dumps(outcome.results)) == outcome.results


@pytest.mark.slow
def test_it_finds_corrupted_labels(outcome):
    """Half of them are wrong: guessing would have F1 = 0.5."""
    scores = [row["f1"] for row in outcome.results if row["method"] == "DH-60"]
    assert min(scores) > 0.7


@pytest.mark.slow
def test_the_sum_of_the_weights_stays_within_the_radius(outcome, second_outcome):
    for (radius, _), history in [*outcome.histories.items(), *second_outcome.histories.items()]:
        assert len(history) == small().hyper_iterations
        assert all(row["sum of weights"] <= radius * (1 + 1e-5) for row in history)


@pytest.mark.slow
def test_the_validation_error_falls(outcome, second_outcome):
    for history in [*outcome.histories.values(), *second_outcome.histories.values()]:
        assert history[-1]["value"] < history[0]["value"]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_results(outcome, second_outcome):
    first = [row for row in outcome.results if row["seed"] == 1]
    assert [row for row in second_outcome.results if row["method"] != "DH-30"] == first
    assert second_outcome.histories[60.0, 1] == outcome.histories[60.0, 1]


def test_detection_counts_exact_zeros_only():
    noisy = np.array([True, True, True, False, False])
    counts = detection(np.array([0.0, 0.0, 1e-9, 0.0, 1.0]), noisy)
    assert (counts["TP"], counts["FP"], counts["discarded"]) == (2, 1, 3)
    assert counts["F1"] == pytest.approx(2 * 2 / (3 + 3))

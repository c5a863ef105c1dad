"""Searches: which trials they run, keep and read back, and what they propose."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from experiments.phone_classification import search
from tests.support.devices import same_bits
from tests.support.phones import TINY, tiny_trainer, validation_accuracy

BUDGET = TINY.steps * TINY.plain_factor


@pytest.mark.slow
def test_a_search_keeps_its_best_trial_within_the_budget():
    points = [{"rho": 0.0, "eta": 0.0, "mu": 0.0}, {"rho": 0.0, "eta": 0.1, "mu": 0.5}, {"rho": 0.0, "eta": 1e3, "mu": 0.9}]
    scores = []

    def proposals():
        for point in itertools.cycle(points):
            scores.append((yield point))

    outcome = search.search(tiny_trainer(), proposals(), "test")
    assert outcome.hypers == points[1]
    assert scores[1] > scores[0]
    assert BUDGET <= outcome.curve[-1]["steps"] < BUDGET + TINY.hyper_batch
    so_far = [row["validation accuracy"] for row in outcome.curve]
    assert so_far == sorted(so_far)
    assert so_far[-1] == max(scores)
    assert validation_accuracy(tiny_trainer(), outcome.kept) == pytest.approx(max(scores))


@same_bits
def test_finished_trials_are_not_run_again_and_those_of_another_search_are_refused(tmp_path, monkeypatch):
    whole = search.search(tiny_trainer(), search.random_search(0), "test", tmp_path)
    (last := sorted(tmp_path.glob("trial_*/trial.json"))[-1]).unlink()
    run, made = search._run, []
    monkeypatch.setattr(search, "_run", lambda *args: made.append(args) or run(*args))
    resumed = search.search(tiny_trainer(), search.random_search(0), "test", tmp_path)
    assert len(made) == 1
    assert last.exists()
    assert resumed.hypers == whole.hypers
    tf.nest.map_structure(np.testing.assert_array_equal, resumed.kept, whole.kept)
    with pytest.raises(DataError, match=r"trial_000 has a trial of .* comes next; start afresh"):
        search.search(tiny_trainer(), search.random_search(1), "test", tmp_path)


def test_random_search_draws_from_the_papers_distributions():
    drawn = list(itertools.islice(search.random_search(0), 2000))
    assert np.mean([d["rho"] for d in drawn]) == pytest.approx(2.0, abs=0.1)
    assert np.mean([d["eta"] for d in drawn]) == pytest.approx(0.1, abs=0.01)
    assert np.std([d["eta"] for d in drawn]) == pytest.approx(0.1, abs=0.01)
    assert np.mean([d["mu"] for d in drawn]) == pytest.approx(0.5, abs=0.03)
    assert max(d["mu"] for d in drawn) < 1


def test_the_model_improves_on_random_points_and_repeats_itself():
    def sequence(seed):
        proposals, score, scored = search.model_based(seed), None, []
        for _ in range(search.RANDOM_POINTS + 2):
            point = proposals.send(score)
            score = 1 - (point["eta"] - 0.3) ** 2 - 0.05 * (point["rho"] - 2) ** 2 - (point["mu"] - 0.5) ** 2
            scored.append((score, point))
        return scored

    scored = sequence(0)
    assert scored == sequence(0)
    assert max(score for score, _ in scored) > max(score for score, _ in scored[: search.RANDOM_POINTS])
    assert all(low <= point[name] <= high for _, point in scored for name, (low, high) in search.INTERVALS.items())

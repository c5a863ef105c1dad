"""When the methods stop, what they keep, how they go on."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from data.speech import timit
from experiments.phone_classification import methods as phone_methods
from experiments.phone_classification import network as phone_network
from experiments.phone_classification import search as phone_search
from experiments.phone_classification.methods import Bench, Training, learning_rate_gone, out_of_time, stalled
from tests.support.corpora import tiny_corpus

TINY = Training(
    width=8, layers=1, batch_size=50, hyper_batch=5, hyper_rate=0.02, validation_size=60, steps=60, plain_factor=3
)


@pytest.fixture(scope="module")
def data():
    corpus = tiny_corpus()
    return phone_network.speech(corpus, timit.split(corpus.utterances), dimension=5)


@pytest.fixture(scope="module")
def bench(data):
    return Bench(TINY, data, seed=0, jit_compile=False)


def at(bench, params):
    """What the bench measures for these params."""
    return bench.metrics(bench.problem.dynamics.init(params, {}), {}, 0)


def accuracies(*values):
    return [{"validation accuracy": v} for v in values]


def test_early_stopping_waits_for_an_improvement_of_one_percent():
    stop = stalled(Training(patience=3, improvement=0.01))
    assert not stop([])
    assert not stop(accuracies(0.5, 0.4, 0.5))
    assert stop(accuracies(0.5, 0.4, 0.5, 0.504)), "less than one percent is none"
    assert not stop(accuracies(0.5, 0.4, 0.5, 0.51))
    assert stop(accuracies(0.5, 0.51, 0.4, 0.4, 0.4))


def test_the_learning_rate_is_gone_after_five_zeros_that_follow_something():
    rates = lambda *values: [{"eta": v} for v in values]  # noqa: E731
    assert not learning_rate_gone(rates(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)), "the null teacher starts there"
    assert not learning_rate_gone(rates(0.1, 0.0, 0.0, 0.0, 0.0))
    assert learning_rate_gone(rates(0.1, 0.0, 0.0, 0.0, 0.0, 0.0))
    assert not learning_rate_gone(rates(0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.1))


def test_minutes_count_only_if_given():
    late = [{"seconds": 61.0}]
    assert out_of_time(Training(minutes=1.0))(late)
    assert not out_of_time(Training(minutes=1.1))(late)
    assert not out_of_time(Training())(late)
    assert not out_of_time(Training(minutes=1.0))([])


def test_fixed_hypers_learn_and_stop_early(bench, data):
    whole = phone_methods.fixed_hypers(bench, phone_methods.ALONE, early=False)
    assert whole.curve[-1]["steps"] == TINY.steps * TINY.plain_factor
    assert whole.curve[-1]["value"] < whole.curve[0]["value"]
    assert {name: pytest.approx(value) for name, value in phone_methods.ALONE.items()} == whole.hypers
    best = max(row["validation accuracy"] for row in whole.curve)
    assert at(bench, whole.kept)["validation accuracy"] == pytest.approx(best)
    last = whole.curve[-1]["validation accuracy"]
    assert at(bench, whole.last)["validation accuracy"] == pytest.approx(last)

    impatient = Bench(dataclasses.replace(TINY, patience=1, improvement=1e3), data, 0, jit_compile=False)
    assert len(phone_methods.fixed_hypers(impatient, phone_methods.ALONE).curve) == 2


def test_real_time_moves_the_hypers_inside_their_sets(bench):
    found = phone_methods.real_time(bench, phone_methods.NULL_TEACHER)
    etas = [row["eta"] for row in found.curve]
    assert etas[0] == 0.0 < etas[-1]
    assert all(row["rho"] >= 0 and row["eta"] >= 0 and 0 <= row["mu"] <= 1 for row in found.curve)
    assert found.curve[-1]["value"] < found.curve[0]["value"]


def test_real_time_that_was_killed_goes_on_to_the_same_end(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "training", dataclasses.replace(TINY, checkpoint_every=2))
    whole = phone_methods.real_time(bench, phone_methods.TAUGHT)
    calls = itertools.count()
    metrics = bench.metrics

    def killed(*args):
        if next(calls) == 5:
            raise KeyboardInterrupt
        return metrics(*args)

    monkeypatch.setattr(bench, "metrics", killed)
    with pytest.raises(KeyboardInterrupt):
        phone_methods.real_time(bench, phone_methods.TAUGHT, directory=tmp_path)
    monkeypatch.setattr(bench, "metrics", metrics)
    again = phone_methods.real_time(bench, phone_methods.TAUGHT, directory=tmp_path)
    strip = lambda curve: [{k: v for k, v in row.items() if k != "seconds"} for row in curve]  # noqa: E731
    assert strip(again.curve) == strip(whole.curve)
    tf.nest.map_structure(np.testing.assert_array_equal, again.last, whole.last)


def test_a_training_that_diverges_keeps_what_it_had(bench):
    found = phone_methods.fixed_hypers(bench, {"rho": 4.0, "eta": 1e3, "mu": 0.999}, early=False)
    assert len(found.curve) < TINY.plain_factor * TINY.steps // TINY.hyper_batch
    assert all(np.isfinite(w).all() for w in found.kept.values())


def test_a_search_keeps_its_best_trial_within_the_budget(bench):
    points = [{"rho": 0.0, "eta": 0.0, "mu": 0.0}, {"rho": 0.0, "eta": 0.1, "mu": 0.5}, {"rho": 0.0, "eta": 1e3, "mu": 0.9}]
    sent = []

    def proposals():
        for point in itertools.cycle(points):
            sent.append((yield point))

    found = phone_search.search(bench, proposals(), "test")
    assert found.hypers == points[1]
    assert sent[1] > sent[0]
    assert TINY.steps * TINY.plain_factor <= found.curve[-1]["steps"] < TINY.steps * TINY.plain_factor + TINY.hyper_batch
    so_far = [row["validation accuracy"] for row in found.curve]
    assert so_far == sorted(so_far)
    assert so_far[-1] == max(sent)
    assert at(bench, found.kept)["validation accuracy"] == pytest.approx(max(sent))


def test_finished_trials_are_not_run_again(bench, tmp_path, monkeypatch):
    whole = phone_search.search(bench, phone_search.random_search(0), "test", tmp_path)
    (last := sorted(tmp_path.glob("trial_*/trial.json"))[-1]).unlink()
    run, ran = phone_search._run, []
    monkeypatch.setattr(phone_search, "_run", lambda *args: ran.append(args) or run(*args))
    again = phone_search.search(bench, phone_search.random_search(0), "test", tmp_path)
    assert len(ran) == 1
    assert last.exists()
    assert again.hypers == whole.hypers
    tf.nest.map_structure(np.testing.assert_array_equal, again.kept, whole.kept)


def test_trials_of_another_search_are_refused(bench, tmp_path):
    phone_search.search(bench, phone_search.random_search(0), "test", tmp_path)
    with pytest.raises(DataError, match=r"trial_000 has a trial of .* comes next; start afresh"):
        phone_search.search(bench, phone_search.random_search(1), "test", tmp_path)


def test_random_search_draws_from_the_papers_distributions():
    drawn = list(itertools.islice(phone_search.random_search(0), 2000))
    assert np.mean([d["rho"] for d in drawn]) == pytest.approx(2.0, abs=0.1)
    assert np.mean([d["eta"] for d in drawn]) == pytest.approx(0.1, abs=0.01)
    assert np.std([d["eta"] for d in drawn]) == pytest.approx(0.1, abs=0.01)
    assert np.mean([d["mu"] for d in drawn]) == pytest.approx(0.5, abs=0.03)
    assert max(d["mu"] for d in drawn) < 1


def test_the_model_finds_a_maximum_and_repeats_itself():
    def sequence(seed):
        proposals, score, found = phone_search.model_based(seed), None, []
        for _ in range(10):
            point = proposals.send(score)
            score = 1 - (point["eta"] - 0.3) ** 2 - 0.05 * (point["rho"] - 2) ** 2 - (point["mu"] - 0.5) ** 2
            found.append((score, point))
        return found

    found = sequence(1)
    assert found == sequence(1)
    assert max(found, key=lambda f: f[0])[0] > max(found[: phone_search.STARTS], key=lambda f: f[0])[0]
    assert all(low <= point[name] <= high for _, point in found for name, (low, high) in phone_search.INTERVALS.items())

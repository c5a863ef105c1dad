"""Tuning on one seed and on several, with a tiny network."""

import dataclasses

import numpy as np
import pytest

import rfho2 as rf
from experiments.averaged_seeds import experiment, problem, report
from experiments.averaged_seeds.experiment import GUESSING, KINDS, RATE, SCHEDULE, Config, Tuning, Unit
from experiments.common import study

TINY = Config(
    train=256, validation=10, test=10, hidden=3, batch_size=128, steps=3, hyper_iterations=2, seeds=2, fresh_seeds=3,
    repetitions=1,
)  # fmt: skip


def test_the_longer_tunings_take_as_many_trainings_as_the_average():
    _, one, *longer = experiment.tunings(Config())
    assert [tuning.fresh for tuning in (one, *longer)] == [False, False, False, True]
    assert (one.iterations, longer[1].iterations, longer[1].name) == (40, 40, experiment.average_name(Config()))
    assert [tuning.seeds * tuning.iterations for tuning in longer] == [8 * 40] * 3


def test_trainings_that_fail_count_as_guessing():
    measured = np.array([[0.5, 0.6, 0.9], [np.nan, np.nan, 0.1], [50.0, 60.0, 0.2], [np.inf, 1.0, 0.4]], np.float32)
    row = experiment.judged(measured)
    assert row["validation"] == pytest.approx((0.5 + 3 * GUESSING) / 4)
    assert row["test"] == pytest.approx((1.6 + 2 * GUESSING) / 4)
    assert row["worst"] == pytest.approx(GUESSING)
    assert row["failed"] == 3


@pytest.fixture(scope="module")
def data():
    return problem.halved(problem.digits(256, 10, 10, seed=0))


@pytest.fixture(scope="module")
def each(data):
    """Validation errors of the first two seeds, by plain training."""
    errors = problem.errors(data, problem.Seeds(0), 128, 3, TINY.sizes, count=2)
    measured = errors(experiment.initial_hypers(TINY, RATE))[:, 0]
    assert measured[0] != measured[1]
    return measured


@pytest.mark.parametrize(
    ("tuning", "expected"),
    [
        (Tuning("", 1, 2, fresh=True), lambda each: each),
        (Tuning("", 2, 2), lambda each: [each.mean(), each.mean()]),
    ],
    ids=["a fresh seed each time", "a fixed average"],
)
@pytest.mark.slow
def test_the_seeds_of_each_hyper_iteration(tuning, expected, data, each, monkeypatch):
    average = rf.average
    monkeypatch.setattr(rf, "average", lambda engine, n, together: average(engine, n))  # quicker to trace
    unmoved = dataclasses.replace(TINY, relative_rate=0.0, momentum_rate=0.0)
    history = experiment.tune(Unit(unmoved, 0, SCHEDULE, tuning), data).history
    assert [row["value"] for row in history] == pytest.approx(expected(each), rel=1e-5)


def rows():
    """Of three repetitions."""
    errors = {"nothing": (0.9, 0.9, 0.9), "one seed": (0.53, 0.62, 0.71), "8 seeds": (0.5, 0.6, 0.7)}
    errors |= {"one seed, 8 times as long": (0.6, 0.7, 0.8)}
    return [
        {
            "repetition": i, "hypers": kind, "tuned_on": name, "trainings": 40, "own_seeds": 0.4, "validation": error,
            "worst": 1.0, "failed": 1, "test": 0.55, "test_accuracy": 0.8,
        }
        for kind in KINDS
        for name, values in errors.items()
        for i, error in enumerate(values)
    ]  # fmt: skip


def test_the_table_compares_with_the_average_pair_by_pair(tmp_path):
    lines = report.tables(Config(), rows(), tmp_path)["table.md"].splitlines()
    half = 4.302653 * np.std([0.03, 0.02, 0.01], ddof=1) / np.sqrt(3)
    expected = (
        f"| one learning rate | one seed | 40 | 0.4000 | 0.6200 | +0.0200 ± {half:.4f} | 1.0000 | 3 | 0.5500 | 80.00 |"
    )
    assert lines[3] == expected
    assert lines[2].startswith("| one learning rate | nothing | - | - | 0.9000 |")
    assert "| 8 seeds | 40 | 0.4000 | 0.6000 | - |" in lines[4]
    (figure,) = report.figures(Config(), rows()).values()
    for axis, kind in zip(figure.axes, KINDS, strict=True):
        assert axis.get_title() == kind
        np.testing.assert_allclose(axis.lines[0].get_xdata(), [0.03, 0.02, 0.01])


@pytest.mark.slow
def test_every_tuning_of_both_kinds_has_a_row(tmp_path):
    first = study.rows_of(report.STUDY, TINY, tmp_path)
    assert [row["tuned_on"] for row in first[:5]] == [
        "nothing", "one seed", "one seed, 2 times as long", "2 seeds", "a fresh seed each time, 2 times as long",
    ]  # fmt: skip
    assert [row["trainings"] for row in first[1:5]] == [2, 4, 4, 4]
    assert len(first) == len(KINDS) * 5

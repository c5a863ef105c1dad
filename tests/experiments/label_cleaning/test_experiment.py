"""The comparison of ways to find wrong labels: the noise, the problems, the score and the table."""

import numpy as np
import pytest

from experiments.label_cleaning import experiment, methods, report
from experiments.label_cleaning.experiment import PRESETS, Config, Unit, compute, results, units
from experiments.label_cleaning.problems import build, load


def test_labels_are_wrong_where_it_says_so_and_trusted_examples_are_others():
    clean = load("CIFAR features", 300, 50, "uniform", 0.0, seed=1)
    assert not np.any(clean.wrong)
    for noise in ("uniform", "class-dependent"):
        labels = load("CIFAR features", 300, 50, noise, 0.4, seed=1)
        shift = (labels.train[1] - clean.train[1]) % 10
        np.testing.assert_array_equal(shift != 0, labels.wrong)
        assert 0.3 < np.mean(labels.wrong) < 0.5
        assert (len(set(shift[labels.wrong])) == 1) is (noise == "class-dependent")
        assert len(labels.trusted[0]) == 50
        assert not any(np.array_equal(x, y) for x in labels.trusted[0][:5] for y in labels.train[0])


@pytest.mark.parametrize("data", ["digits", "CIFAR features"])
def test_the_models_take_the_examples(data):
    labels = load(data, 20, 5, "uniform", 0.2, seed=0)
    for model in experiment.MODELS[data]:
        assert build(data, model, 0)(labels.train[0]).shape == [20, 10]
    assert labels.train[0].dtype == np.float32
    assert labels.train[0].max() == pytest.approx(1, rel=1e-5) or data != "digits"


def test_problems_for_which_there_are_too_few_examples_are_left_out():
    sizes = {(unit.data, unit.trusted) for unit in units(Config(), ())}
    assert ("digits", 5_000) in sizes
    assert ("CIFAR features", 1_000) in sizes
    assert ("CIFAR features", 5_000) not in sizes


def test_f1_counts_both_kinds_of_mistakes():
    wrong = np.array([True, True, False, False])
    assert methods.f1(wrong, wrong) == 1
    assert methods.f1(np.array([True, False, True, False]), wrong) == 0.5
    assert methods.f1(~wrong, wrong) == 0


def test_every_problem_meets_every_method_and_the_best_of_a_row_is_bold(tmp_path, monkeypatch):
    ways = {
        "one": lambda build, labels, *_: {"a": labels.wrong, "b": np.ones(len(labels.wrong), bool)},
        "other": lambda build, labels, *_: {"c": np.zeros(len(labels.wrong), bool)},
    }
    monkeypatch.setattr(experiment, "WAYS", ways)
    config = PRESETS["quick"]
    rows = results(config, [compute(unit, tmp_path) for unit in units(config, ())])
    assert len(rows) == 2 * 2 * 2 * 3, "models, kinds of noise, numbers of trusted examples, variants"
    assert {row["f1"] for row in rows if row["method"] == "a"} == {1.0}
    assert {row["f1"] for row in rows if row["method"] == "c"} == {0.0}
    text = report.tables(config, rows, tmp_path)["table.md"]
    assert "| CIFAR features | linear | 20% uniform | 50 | **1.000** | 0." in text
    assert "| 200 | 1.000 | 0." in text


@pytest.mark.slow
@pytest.mark.parametrize("way", [way for way in experiment.WAYS if way != "cleanlab"])
def test_every_way_finds_wrong_labels(way, tmp_path):
    row = compute(Unit("CIFAR features", "linear", "uniform", 0.3, 200, 0, way, train=500, iterations=10), tmp_path)
    assert min(row["scores"].values()) > 0.6

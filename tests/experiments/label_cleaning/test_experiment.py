"""The comparison of ways to find wrong labels: the noise, the problems, the score and the table."""

import numpy as np
import pytest

from experiments.label_cleaning import experiment, methods, report
from experiments.label_cleaning.experiment import PRESETS, Cell, Config, cells, run
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
    sizes = {(cell.data, cell.trusted) for cell in cells(Config())}
    assert ("digits", 5_000) in sizes
    assert ("CIFAR features", 1_000) in sizes
    assert ("CIFAR features", 5_000) not in sizes


def test_f1_counts_both_kinds_of_mistakes():
    wrong = np.array([True, True, False, False])
    assert methods.f1(wrong, wrong) == 1
    assert methods.f1(np.array([True, False, True, False]), wrong) == 0.5
    assert methods.f1(~wrong, wrong) == 0


def test_every_problem_meets_every_method_and_the_best_of_a_row_is_bold(tmp_path, monkeypatch):
    def one(build, labels, *_):
        return {"a": labels.wrong, "b": np.ones(len(labels.wrong), bool)}

    def other(build, labels, *_):
        return {"c": np.zeros(len(labels.wrong), bool)}

    monkeypatch.setattr(experiment, "METHODS", (one, other))
    records = run(PRESETS["quick"], tmp_path / "trainings.json")
    assert len(records) == len(list(cells(PRESETS["quick"]))) * 3
    assert {r["f1"] for r in records if r["method"] == "a"} == {1.0}
    assert {r["f1"] for r in records if r["method"] == "c"} == {0.0}
    text = report.write(tmp_path, records)
    assert "| CIFAR features | linear | 20% uniform | 50 | **1.000** | 0." in text
    assert "| 200 | 1.000 | 0." in text


@pytest.mark.slow
@pytest.mark.parametrize("method", [method for method in experiment.METHODS if method is not methods.cleanlab])
def test_every_method_finds_wrong_labels(method):
    cell = Cell("CIFAR features", "linear", "uniform", 0.3, 200, 0)
    assert min(experiment.judge(Config(train=500, iterations=10), cell, method)["f1"].values()) > 0.6

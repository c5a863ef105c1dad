"""Warm implicit hypergradients on few digits: the rows, what they are judged by, and the control."""

import functools
import warnings

import numpy as np
import pytest

import rfho2 as rf
from experiments.common import study
from experiments.data_hyper_cleaning import experiment as cleaning
from experiments.warm_cleaning.experiment import METHODS, Config, Unit, error, solution, tune, units
from experiments.warm_cleaning.report import STUDY
from tests.support.digits import few_digits

TINY = Config(l2=(1e-2,), seeds=(0,), radius=20.0, steps=6, warm_steps=3, hyper_iterations=3)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so short a training is not at a solution
        patch.setattr(rf, "implicit", functools.partial(rf.implicit, jit_compile=False))
        patch.setattr(rf, "reverse", functools.partial(rf.reverse, jit_compile=False))
        patch.setattr(cleaning, "load", lambda source, seed: few_digits())
        return study.rows_of(STUDY, TINY, tmp_path_factory.mktemp("runs"))


@pytest.mark.slow
def test_each_method_has_a_row_and_the_control_does_not_move(rows, tmp_path):
    assert [row["method"] for row in rows] == list(METHODS)
    assert [len(row["history"]) for row in rows] == [3, 3, 3, 3, 6, 3]
    assert rows[-1]["F1"] == 0.0
    assert rows[-1]["unsettled"] < rows[1]["unsettled"], "it has trained longer"
    table = STUDY.tables(TINY, rows, tmp_path)["table.md"]
    assert table.count("\n") == 8
    assert "| 1.00 |" in table
    (figure,) = STUDY.figures(TINY, rows).values()
    assert [len(line.get_ydata()) for line in figure.axes[0].lines] == [3, 3, 3, 6, 3]


def test_the_run_that_ends_early_waits_for_reverse_mode_and_needs_a_solution():
    config = Config(l2=(0.0, 1e-3), seeds=(4,))
    first = units(config, [])
    assert [unit.method for unit in first if unit.l2] == [name for name in METHODS if "until" not in name]
    rows = [{"method": unit.method, "l2": unit.l2, "seed": unit.seed, "E trained again": 0.4} for unit in first]
    (added,) = {*units(config, rows)} - {*first}
    assert added == Unit(config, 1e-3, 4, "implicit, warm, until as good", 0.4)
    assert [unit.method for unit in units(config, rows) if unit.l2] == list(METHODS)


@pytest.mark.parametrize(("name", "ends"), [("implicit, warm", [30]), ("implicit, warm, until as good", [10, 20, 30])])
def test_a_run_that_may_end_early_has_parts(name, ends, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(rf.HyperOptimizer, "run", lambda *args, **kwargs: calls.append(args[3:]))
    list(tune(Unit(Config(hyper_iterations=30, radius=20.0), 1e-2, 0, name), few_digits(), tmp_path))
    assert calls == [(end, tmp_path) for end in ends]


def test_the_model_is_judged_at_the_solution():
    data = few_digits()
    weights = np.linspace(0, 1, len(data.noisy))
    w = solution(data, weights, 1e-2)
    x = np.concatenate([data.train.images, np.ones((len(weights), 1))], 1)
    logits = x @ w
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    gradient = x.T @ (weights[:, None] * (p - np.eye(10)[data.train.labels])) / len(weights) + 0.02 * w
    assert np.max(np.abs(gradient)) < 1e-5
    assert error(w, data.validation) < np.log(10)

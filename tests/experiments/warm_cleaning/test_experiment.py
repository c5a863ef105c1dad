"""Warm implicit hypergradients on few digits: the rows, what they are judged by, and the control."""

import dataclasses
import functools
import warnings

import numpy as np
import pytest

import rfho2 as rf
from experiments.warm_cleaning import report
from experiments.warm_cleaning.experiment import METHODS, Config, error, run, solution, tune
from tests.support.digits import few_digits

TINY = Config(l2=(1e-2,), seeds=(0,), radius=20.0, steps=6, warm_steps=3, hyper_iterations=3)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so short a training is not at a solution
        patch.setattr(rf, "implicit", functools.partial(rf.implicit, jit_compile=False))
        patch.setattr(rf, "reverse", functools.partial(rf.reverse, jit_compile=False))
        return run(TINY, lambda seed: few_digits(), tmp_path_factory.mktemp("runs"))


@pytest.mark.slow
def test_each_method_has_a_row_and_the_control_does_not_move(outcome, tmp_path):
    rows, histories = outcome
    assert [row["method"] for row in rows] == list(METHODS)
    assert [len(history) for history in histories.values()] == [3, 3, 3, 6, 3]
    assert rows[-1]["F1"] == 0.0
    assert rows[-1]["unsettled"] < rows[1]["unsettled"], "it has trained longer"
    table = report.write(tmp_path, rows, histories)
    assert table.count("\n") == 8
    assert "| 1.00 |" in table
    assert (tmp_path / "objective.png").stat().st_size > 1000


@pytest.mark.parametrize(("name", "ends"), [("implicit, warm", [30]), ("implicit, warm, until as good", [10, 20, 30])])
@pytest.mark.parametrize("resume", [False, True])
def test_a_run_is_resumed_only_if_asked_but_its_parts_continue_each_other(name, ends, resume, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(rf.HyperOptimizer, "run", lambda *args, **kwargs: calls.append((args[3], args[5])))
    list(tune(dataclasses.replace(TINY, hyper_iterations=30), few_digits(), 1e-2, METHODS[name], tmp_path, resume))
    assert calls == [(end, resume if end == ends[0] else True) for end in ends]


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

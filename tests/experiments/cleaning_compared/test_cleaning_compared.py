"""Scenarios are what they say, each way is judged, and the binary runs."""

import json

import numpy as np
import pytest

from data.errors import DataError
from data.mnist import Digits
from experiments.cleaning_compared import experiment, report
from experiments.cleaning_compared.experiment import BUDGET, DH, Config, Unit
from experiments.cleaning_compared.scenarios import EQUAL, SCENARIOS, UNBALANCED, counts, shifted, split

UNIT = Unit("half wrong", 200, 50, 0, DH, 3)


def test_counts_add_up_and_none_is_zero():
    assert counts(EQUAL, 50) == [5] * 10
    unbalanced = counts(UNBALANCED, 50)
    assert sum(unbalanced) == 50
    assert min(unbalanced) >= 1
    assert unbalanced == sorted(unbalanced, reverse=True)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_are_what_they_say(name):
    scenario = SCENARIOS[name]
    data = split(scenario, 1000, 200, 0)
    assert data.noisy.sum() == round(1000 * scenario.share)
    np.testing.assert_array_equal(data.train.labels != data.true_labels, data.noisy)
    assert np.bincount(data.validation.labels).tolist() == counts(scenario.trusted, 200)
    assert np.bincount(data.true_labels).tolist() == counts(scenario.train, 1000)
    assert len(set(np.bincount(data.test.labels))) == 1
    if not scenario.shift:
        images = {image.tobytes() for part in (data.train, data.validation, data.test) for image in part.images}
        assert len(images) == 1200 + len(data.test.labels), "no digit is used twice"


def test_too_few_digits_are_no_scenario():
    with pytest.raises(DataError, match="not enough digits"):
        split(SCENARIOS["classes unbalanced"], 5000, 5000, 0)


def test_a_shift_moves_right_and_down():
    image = np.zeros((1, 28, 28), np.float32)
    image[0, 4, 7] = 1
    moved = shifted(Digits(image.reshape(1, 784), np.zeros(1)), 2).images.reshape(28, 28)
    assert moved[6, 9] == 1
    assert moved.sum() == 1


def test_bounds_keep_what_they_say():
    data = split(SCENARIOS["half wrong"], 200, 50, 0)
    kept = {way: experiment.suspected(UNIT._replace(way=way), data)[way] for way in experiment.BOUNDS}
    np.testing.assert_array_equal(kept["oracle"], data.noisy)
    assert not kept["everything"].any()
    assert kept["trusted alone"].all()


@pytest.mark.slow
def test_a_unit_is_a_row(tmp_path):
    row = json.loads(json.dumps(experiment.compute(UNIT, tmp_path)))
    (found,) = row["found"]
    assert found["method"] == DH
    assert 0 <= found["f1"] <= 1
    assert 0.1 < found["accuracy"] < 1


@pytest.mark.parametrize("way", ["random", "most probable"])
def test_a_budget_is_kept(way):
    data = split(SCENARIOS["half wrong"], 200, 50, 0)
    (chosen,) = experiment.keep(UNIT._replace(scenario=BUDGET, way=way, budget=30), data).values()
    assert chosen.sum() == 30


def test_tables_have_all_scenarios_and_bounds_never_win(tmp_path):
    rows = [
        {"scenario": "half wrong", "trusted": n, "budget": 0, "seed": seed, "seconds": 1.0, "method": method} | scores
        for n in (50, 200)
        for seed in (0, 1)
        for method, scores in {
            "oracle": {"f1": None, "accuracy": 0.9, "correct": 1.0},
            DH: {"f1": 0.8 + 0.01 * seed, "accuracy": 0.8, "correct": 0.9},
            "cleanlab": {"f1": 0.7, "accuracy": 0.7, "correct": 0.9},
        }.items()
    ]
    limited = {"scenario": BUDGET, "trusted": 200, "budget": 100, "seed": 0, "seconds": 1.0, "method": "random"}
    results = [*rows, limited | {"f1": None, "accuracy": 0.6, "correct": 0.5}]
    text = report.tables(Config(), results, tmp_path)["table.md"]
    assert "| half wrong | 50 | 90.00 | **80.00** | 70.00 |" in text
    assert "| half wrong | +0.105 ± 0.064 |" in text
    assert "| 100 | 60.00 (50%) |" in text
    (figure,) = report.figures(Config(), results).values()
    assert [axis.get_title() for axis in figure.axes] == ["half wrong"]


def test_all_ways_are_planned_and_cleanlab_only_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(experiment.importlib.util, "find_spec", lambda name: None)
    planned = experiment.units(Config(seeds=(0,)), ())
    assert "cleanlab" not in {unit.way for unit in planned}
    assert {unit.scenario for unit in planned} == {*SCENARIOS, BUDGET}
    assert {unit.trusted for unit in planned if unit.scenario == "classes unbalanced"} == {50, 200, 1000}
    assert len({unit.name for unit in planned}) == len(planned)

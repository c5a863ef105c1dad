"""Units of work: halves are halves, and the calibration decides what runs."""

import json

import numpy as np
import pytest

from data.cifar_features import Part, Split, load, split
from data.errors import DataError
from experiments.common import study
from experiments.common.tables import distinct
from experiments.task_difficulty import experiment, report, units
from experiments.task_difficulty.experiment import Config, Level
from experiments.task_difficulty.units import CHOSEN, TOTALS, Unit

UNIT = Unit("cifar10", "components", 4.0, 2, 0, "HMTL-S", iterations=2)


def test_halves_are_disjoint_and_have_as_many_of_each_class():
    whole = split(load(), 0, 4)
    (one, two), (other, first) = units.halves(whole)
    assert np.bincount(two.labels).tolist() == [2] * 10
    assert np.bincount(one.validation.labels).tolist() == [2] * 10
    np.testing.assert_array_equal(one.validation.features, first.features)
    np.testing.assert_array_equal(other.validation.features, two.features)
    rows = np.sort(np.concatenate([two.features, first.features]), axis=0)
    np.testing.assert_array_equal(rows, np.sort(whole.validation.features, axis=0))


def test_r_is_the_one_whose_models_do_best_on_the_half_that_did_not_tune_them(monkeypatch):
    parts = [Part(np.zeros((4, 1), np.float32), np.arange(4, dtype=np.int32) % 2)] * 3
    losses = dict(zip(TOTALS, (0.5, 0.4, 0.2, 0.3, 0.6), strict=True))
    monkeypatch.setattr(units, "_held_out", lambda config, fold, total: losses[total])
    total, kept = units.choose_total(UNIT.config, Split(*parts))
    assert total == kept["R"] == 0.01
    assert kept["scores"] == pytest.approx([2 * loss for loss in losses.values()])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["HMTL-S", CHOSEN, "Dinuzzo"])
def test_a_unit_is_a_row_and_its_interactions(method, tmp_path):
    unit = UNIT._replace(method=method)
    row = units.compute(unit, tmp_path)
    assert json.loads(json.dumps(row))["unit"] == unit.name
    assert 0.1 < row["accuracy"] <= 1.0
    assert units.interactions(tmp_path, unit).exists() == (method != "Dinuzzo")
    assert ("R" in row) == (method == CHOSEN)


def test_calibration_uses_splits_that_no_table_uses_and_chooses_the_closest_level():
    config = Config()
    units_of_tables = experiment.matched(config, "cifar10", Level("noise", 1.0, 0.6)) + experiment.gains(config, [])
    assert {unit.seed for unit in experiment.calibration(config, "cifar10")} == set(range(1000, 1020))
    assert {unit.method for unit in experiment.calibration(config, "cifar10")} == {"STL"}
    assert {unit.seed for unit in units_of_tables} == set(range(20))
    rows = [{"kind": "noise", "strength": s, "accuracy": a} for s, a in [(1.0, 0.60), (1.0, 0.64), (0.5, 0.70), (0.5, 0.66)]]
    found = experiment.calibrated(rows)
    assert [level.accuracy for level in found] == pytest.approx([0.62, 0.68])
    assert experiment.closest(found, "noise", "cifar10").strength == 0.5


def test_every_part_runs_and_is_reported(tmp_path):
    def fake(unit, output):
        return {
            "unit": unit.name,
            **unit._asdict(),
            "accuracy": 0.5 + 0.01 * (unit.seed % 7),
            "accuracy_refit": 0.5,
            "R": 0.1,
        }

    config = Config(seeds=2, calibration_seeds=1)
    results = experiment.results(config, study.rows_of(report.STUDY._replace(compute=fake), config, tmp_path))
    assert set(distinct(results, "part")) == {"calibration cifar10", "calibration cifar100", *experiment.PARTS[1:]}
    (text,) = report.tables(config, results, tmp_path).values()
    assert ", 5 per class (2 splits) |" in text
    assert "Chosen R: 0.1 in 2." in text
    assert list(report.figures(config, results)) == ["gains"]


def test_only_what_is_needed_is_calibrated():
    assert experiment.needed(Config()) == ["cifar10", "cifar100"]
    assert experiment.needed(Config(("cifar100",))) == ["cifar100"]
    assert experiment.needed(Config(("calibration",))) == ["cifar10"]


def test_a_missing_file_is_noticed_before_anything_runs(monkeypatch):
    monkeypatch.delenv("RFHO2_CIFAR100_FEATURES", raising=False)
    with pytest.raises(DataError, match="--parts"):
        experiment.check(Config())

"""The comparison of Keras tasks: what is trained, and what the tables say."""

import dataclasses

import numpy as np
import pytest

from experiments.common.study import rows_of
from experiments.keras_tasks import experiment, report, trainings
from experiments.keras_tasks.experiment import PRESETS, STARTS, Config
from experiments.keras_tasks.report import STUDY
from experiments.keras_tasks.tasks import DEVELOPMENT

FEW = dataclasses.replace(PRESETS["quick"], tasks=("breast cancer",), trials=3)
WITH_REGRESSION = dataclasses.replace(FEW, tasks=("breast cancer", "series"))


def test_every_method_trains_once_by_the_same_protocol(tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(experiment, "fits", lambda *case: lambda rate, plan: trained.append((plan, rate)) or {})
    monkeypatch.setattr(experiment, "tuned", lambda *args: trained.append((", ".join(args[5]) or "tuner", args[4])) or {})
    monkeypatch.setattr(experiment, "with_knots", lambda *args: trained.append(("knots", args[4])) or {})
    without_tuner = dataclasses.replace(FEW, tuner=False)
    baselines = rows_of(STUDY, without_tuner, tmp_path)
    assert len(baselines) == 5 + 2 + 3
    assert STUDY.results(without_tuner, baselines) == []
    rows = rows_of(STUDY, FEW, tmp_path)
    assert len(trained) == len(rows) == 5 + 2 + 3 + 3 + 1 + 1 + 1, "no training ran twice"
    rates = {plan: sorted(rate for p, rate in trained if p == plan) for plan in ("cosine", "plateau", "tuner", "knots")}
    assert rates["cosine"] == rates["plateau"] == rates["knots"] == [0.001]
    assert rates["tuner"] == pytest.approx(sorted(0.001 * start for start in STARTS))
    assert [rate for p, rate in trained if p == "objective"] == [rate for p, rate in trained if p == "discount"] == [0.001]
    assert {unit.task for unit in experiment.units(WITH_REGRESSION, []) if "calibrated" in unit.method} == {"breast cancer"}
    drawn = [rate for plan, rate in trained if plan == "constant"][-3:]
    assert all(1e-5 <= rate <= 0.1 for rate in drawn)
    assert len(set(drawn)) == 3


def test_every_fit_by_keras_starts_from_the_same_weights():
    task = DEVELOPMENT["breast cancer"]._replace(epochs=1)
    fits = trainings.KerasFits(task, task.load(0), "Adam", seed=0)
    first, other, again = fits(0.01), fits(0.1, "cosine"), fits(0.01)
    assert (first["validation"], first["test"]) == (again["validation"], again["test"])
    assert other["validation"] != first["validation"]


def record(method, test, validation=1.0, optimizer="SGD", seed=0, seconds=1.0):
    case = {"task": "digits", "optimizer": optimizer, "seed": seed, "method": method}
    return {**case, "test": test, "validation": validation, "seconds": seconds, "rate": 0.1}


def test_the_best_of_several_is_chosen_by_validation_and_errors_are_over_seeds_within_optimizers():
    records = []
    for optimizer, gain in (("SGD", 10.0), ("Adam", 0.0)):
        for seed, noise in enumerate((-1.0, 0.0, 1.0)):
            case = {"optimizer": optimizer, "seed": seed}
            records += [record("rate x 1", 80.0, 2.0, **case), record("rate x 10", 85.0, 1.0, **case)]
            records += [record("tuner x 1", 80.0 + gain + noise, seconds=3.0, **case)]
            records += [record("knots", 86.0 + noise, seconds=7.0, **case)]
    assert all(r["test"] == 85.0 for r in report.chosen(records, "digits", report.FIVE).values())
    difference = report.compare(records, "digits", report.USUAL_START, report.DEFAULT)
    assert difference.mean == pytest.approx(5.0)
    assert difference.error == pytest.approx(np.sqrt(2 * 1 / 3) / 2)  # the gain of one optimizer is not an error
    assert report.time_ratio(records, "digits") == pytest.approx(3.0)
    assert report.time_ratio(records, "digits", report.FIVE) == pytest.approx(2.0), "the seconds of all its trainings"
    assert report.knots(records).splitlines()[-1] == "| digits | +6.00 ± 0.41 | +1.00 ± 0.41 | 7.00 |"
    assert "Six knots, as good as best of five rates: 1 of 1" in report.conclusion(records)


@pytest.mark.parametrize(("mean", "error", "as_good"), [(0.0, 0.0, True), (-1.0, 1.1, True), (-1.0, 0.9, False)])
def test_as_good_as_means_within_a_standard_error(mean, error, as_good):
    assert report.Mean(mean, error).as_good() is as_good


def test_the_table_of_objectives_compares_accuracies_with_those_of_the_loss():
    rows = [
        record(method, 80.0 + gain, optimizer=optimizer, seed=seed)
        | {"task": task, "validation score": 90.0 + 2 * gain * seed}
        for method, gain in (("tuner x 1", 0.0), ("tuner, margin", 1.0))
        for task in ("digits", "shapes")
        for optimizer in ("SGD", "Adam")
        for seed in (0, 1)
    ]
    *_, digits, shapes, mean = report.objectives(rows).splitlines()
    assert digits == "| digits | +1.00 ± 0.71 | +1.00 ± 0.00 |"
    assert shapes == digits.replace("digits", "shapes")
    assert mean == "| mean | +1.00 ± 0.50 | +1.00 ± 0.00 |"
    shapes = [row for row in rows if row["task"] == "shapes" and row["method"] != "tuner x 1"]
    alone = [row | {"method": report.method_of("error")} if row in shapes else row for row in rows]
    assert "| digits | - | - | +1.00 ± 0.71 |" in report.objectives(alone), "a stand-in that was not run on all tasks"


def test_the_presets_cover_the_three_groups():
    assert PRESETS["development"] == Config()
    assert not set(PRESETS["frozen"].tasks) & set(DEVELOPMENT)
    assert set(PRESETS["ten"].tasks) == {*PRESETS["frozen"].tasks, *DEVELOPMENT}
    assert not set(PRESETS["later"].tasks) & set(PRESETS["ten"].tasks)
    assert len(PRESETS["later"].stand_ins) <= 1, "only the one that was chosen on the ten tasks"

"""Long training runs: what a method can do in its time, the plateau, and the best baseline."""

import pytest

from experiments.long_training import experiment, methods, problems, report
from experiments.long_training.methods import FIT, LOOP, METHODS, RATE_FREE, Costs

COSTS = Costs({FIT: 0.5, LOOP: 0.25}, 2.0, 1.5, dict.fromkeys(RATE_FREE, 2.0))


def test_steps_within_a_time():
    steps = {method: methods.steps_within(method, 4_000.0, COSTS, 2_000, FIT) for method in METHODS}
    assert steps[methods.PLATEAU] == 8_000
    assert steps[methods.CONSTANT] == steps[methods.COSINE] == 1_600
    assert {steps[name] for name in RATE_FREE} == {4_000}
    assert {steps[name] for name in methods.REAL_TIME} == {2_000}
    assert steps[methods.SHORT_KNOTS] == 2_000  # 10 hypergradients of 200 steps and a run of 2,000
    assert methods.steps_within(methods.PLATEAU, 4_000.0, COSTS, 2_000, LOOP) == 16_000
    assert methods.steps_within("DoG", 4_000.0, COSTS, 2_000, LOOP) == 8_000
    assert steps[methods.LONG_KNOTS] == pytest.approx(4_000 / 15, abs=methods.EVALUATIONS)


def test_units_wait_for_the_costs():
    config = experiment.Config(("teacher", "characters"), ("DoG",), (0,), (1, 5))
    first = experiment.units(config, [])
    assert [(unit.problem, unit.method) for unit in first] == [(name, experiment.COSTS) for name in config.problems]
    rows = [{"problem": "teacher", "method": experiment.COSTS, "costs": COSTS._asdict()}]
    assert [unit.budget for unit in experiment.units(config, rows)] == [0, 0, 1, 1, 5, 5]  # two ways to count


def test_what_takes_no_plain_steps_is_run_once_and_counted_twice():
    rows = [{"method": "real time", "counted": FIT}, {"method": "DoG", "counted": FIT}, {"method": experiment.COSTS}]
    counted = [(row["method"], row["counted"]) for row in experiment.results(experiment.Config(), rows)]
    assert counted == [("real time", FIT), ("DoG", FIT), ("real time", LOOP)]


def test_the_best_baseline_is_chosen_by_validation():
    rows = [
        {"problem": "teacher", "budget": 1, "seed": seed, "method": method, "validation": loss, "test": test, "steps": 40}
        for seed in range(2)
        for method, loss, test in (("DoG", 0.5, 90.0), ("Prodigy", 0.4, 80.0), ("real time", 0.1, 85.0 + seed))
    ]
    assert report.best_baseline(rows) == "Prodigy"
    assert "+5.50" in report.differences(rows)
    assert "(Prodigy)" in report.differences(rows)
    also = [row | {"problem": "characters", "test": row["test"] - 2 * (row["method"] == "DoG")} for row in rows]
    more = [row | {"problem": "noise removal", "test": row["test"] - 10 * (row["method"] == "DoG")} for row in rows]
    lines = report.overview([row | {"counted": FIT} for row in (*rows, *also, *more)]).splitlines()
    assert lines[2:] == [
        "| 1 | DoG | +4.00 | +0.00 | - | - |",
        "| 1 | Prodigy | +0.00 | +0.00 | - | - |",
        "| 1 | real time | +5.50 | +5.50 | - | - |",
    ]


@pytest.mark.slow
def test_every_method_trains():
    problem = problems.PROBLEMS["digits, wrong labels"]
    trainer = methods.Trainer(problem, problem.load(0, None), 0)
    scores = {method: trainer.score(trainer(method, 40 * methods.SHORTER).params) for method in METHODS}
    assert min(scores.values()) > 30, scores  # of ten classes; those without a rate begin slowly

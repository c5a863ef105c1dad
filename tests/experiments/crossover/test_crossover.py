"""Methods to choose hypers in the same time: what is read off, what is the same for any number of hypers, the families."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from data.errors import DataError
from experiments import crossover_costs
from experiments.crossover import experiment, families, methods, report
from experiments.crossover.experiment import READINGS, UNTUNED, Config
from experiments.crossover.methods import CMA, LONGER, METHODS, OURS, SHARED, STEPPING_BACK, TPE, Settings, Trained


def trained(*ends_and_losses):
    return [Trained(end, loss, 2 * loss, 1 - loss) for end, loss in ends_and_losses]


def test_what_is_found_is_the_best_validation_loss_in_time():
    untuned, *runs = trained((1.0, 0.45), (5.0, 0.5), (6.0, 0.3), (7.0, np.nan), (8.0, 0.4), (9.0, 0.1))
    assert methods.compiling(runs) == 4.0
    best = experiment.found(untuned, runs, 8.5)
    assert (best["validation"], best["test_loss"], best["trainings"]) == (0.3, 0.6, 4)
    assert experiment.found(untuned, runs, 5.5)["validation"] == 0.45, "the untuned training is always there"


def test_units_that_would_be_the_same_are_computed_once_and_shown_everywhere():
    config = Config(("schedule", "source weights"), (1, 10), seeds=(0,), budgets=(10,))
    units = experiment.units(config, [])
    names = {(unit.family, unit.n, unit.method) for unit in units}
    assert len(names) == len(units)
    assert ("schedule", 10, LONGER) not in names
    assert ("source weights", 10, LONGER) in names
    assert not any(method == CMA for _, n, method in names if n == 1)
    score = trained((1.0, 0.5))[0]._asdict() | {"trainings": 1}
    readings = {reading: {"10": score} for reading in READINGS}
    rows = [
        {"family": u.family, "n": u.n, "seed": 0, "method": u.method, "plain": 1.0, "compiling": 0.0, "untuned": score}
        | readings
        for u in units
    ]
    results = experiment.results(config, rows)
    shown = [(r["family"], r["n"], r["method"]) for r in results if r["reading"] == "with compiling"]
    everything = {(f, n, method) for f in config.families for n in (1, 10) for method in (*METHODS, UNTUNED)}
    missing = {(f, 1, CMA) for f in config.families} | {("source weights", n, STEPPING_BACK) for n in (1, 10)}
    assert set(shown) == everything - missing
    assert len(shown) == len(set(shown))
    assert f"| schedule | 10 | 10 |{' 50.0 |' * 8} +0.00 ({SHARED}) |" in report.tables(config, results, None)["table.md"]
    for row in (f"source weights | {OURS} | 10", f"schedule | {STEPPING_BACK} | 10"):
        for table in ("ahead.md", "ahead_in_loss.md", "ahead_with_compiling.md"):
            assert f"| {row} | +0.00 ({SHARED}) |" in report.tables(config, results, None)[table]
    lower = [row | {"test_loss": 0.4} if row["method"] == OURS else row for row in results]
    assert f"{OURS} | 10 | +60.00 ({SHARED}) |" in report.tables(config, lower, None)["ahead_in_loss.md"]
    assert len(report.figures(config, results)["crossover"].axes) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", families.FAMILIES)
def test_the_hypers_of_a_family_act_and_have_the_right_derivatives(name):
    task = families.FAMILIES[name](families.CIFAR, 3, 100)
    problem = rf.Problem(task.problem.dynamics, task.problem.objective, 3, task.problem.batches, task.problem.validation)
    hypers = {families.HYPER: tf.constant([0.2, 0.1, 0.3])}
    reverse, forward = (engine(problem, jit_compile=False)(task.params, hypers) for engine in (rf.reverse, rf.forward))
    got, other = (np.array(one.grads[families.HYPER]) for one in (reverse, forward))
    assert np.all(got[: 1 if name == "schedule" else 2] != 0)  # of the schedule, three steps have the first rate
    np.testing.assert_allclose(got, other, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_methods_begin_untuned_keep_to_their_time_and_hypergradients_get_somewhere():
    task = families.group_penalties(families.CIFAR, 30, 100)
    judge = methods.Judge(task, 30)
    done = {
        method: methods.run(method, task, 30, 0, 12, Settings(1.0, 5, 0.3), judge) for method in (OURS, TPE, SHARED, LONGER)
    }
    for method in (TPE, SHARED, LONGER):
        assert done[method][0].validation == pytest.approx(judge.untuned.validation, rel=1e-4), method
    for runs in done.values():
        assert runs[-2].time - methods.compiling(runs) < 12
    assert min(one.validation for one in done[OURS]) < min(one.validation for one in done[LONGER])


@pytest.mark.slow
def test_stepping_back_keeps_to_its_time_and_moves_on_after_an_exploding_hypergradient():
    task = families.fine_tuning_rates(families.DIGITS, 3, 5)
    judge = methods.Judge(task, 3)
    done = methods.run(STEPPING_BACK, task, 3, 5, 40, Settings(1.0, 5, 0.3), judge)
    stuck = methods.run(OURS, task, 3, 5, 40, Settings(1.0, 5, 0.3), judge)
    assert done[0].validation == pytest.approx(judge.untuned.validation, rel=1e-4)
    assert done[-2].time - methods.compiling(done) < 40
    assert min(one.validation for one in done) < 0.8 * min(one.validation for one in stuck)


def test_without_optuna_the_searches_are_refused(monkeypatch):
    monkeypatch.setattr(experiment, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pip install 'rfho2\[search\]'"):
        experiment.check(Config())
    experiment.check(Config(methods=(OURS, LONGER)))


@pytest.mark.slow
def test_costs_are_planned():
    rows = str(crossover_costs.table(crossover_costs.Config(("group penalties",), (1, 50)))).splitlines()[2:]
    one, many = ([float(cell) for cell in row.strip("| ").split("|")[1:]] for row in rows)
    assert (one[0], many[0]) == (1, 50)
    assert many[2] < 2 * one[2], "reverse mode takes as long for any number of hypers"
    assert many[4] > 2 * one[4]

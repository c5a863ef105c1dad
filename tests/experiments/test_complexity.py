"""The cost of hypergradients: what is measured, what is extrapolated, what is kept, and one measurement."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from data.errors import DataError
from experiments.common import binary as common
from experiments.complexity import experiment as complexity
from experiments.complexity import measure as complexity_measure
from experiments.complexity import report
from experiments.complexity.experiment import Config
from experiments.complexity.measure import Task

SMALL = Config(steps=5, hypers=(2, 10), hidden=3, widths=(2, 4), truncate=2, rounds=1)


def forward(hypers, steps=1000, **kwargs):
    return Task("seconds", "forward", hypers, 200, steps, 100, 2, **kwargs)


def row(task, seconds=1.0, peak=None, **kwargs):
    usual = {"weights": report.weights_of(task.hidden), "seconds": seconds, "peak_bytes": peak}
    return {**task._asdict(), **usual, "extrapolated": bool(task.timed), "missing": None, **kwargs}


def test_each_method_is_measured_for_each_number_of_hypers_and_each_width():
    tasks = complexity.plan(Config())
    seconds = [(t.hypers, t.method) for t in tasks if t.panel == "seconds" and t.method != "plain"]
    assert seconds == [(m, method) for m in Config().hypers for method in report.METHODS]
    assert [t.hypers for t in tasks if t.method == "plain"] == [2]
    memory = [t for t in tasks if t.panel == "memory"]
    assert len(memory) == len(set(memory)) == 16
    assert {t.hypers for t in memory} == {2}
    assert {t.steps for t in tasks} == {1000}


def test_the_networks_have_the_papers_numbers_of_weights():
    assert report.weights_of(200) == 199_210
    for width, wanted in zip(Config().widths, (165e3, 335e3, 640e3, 1.3e6), strict=True):
        assert report.weights_of(width) == pytest.approx(wanted, rel=0.003)
    params = complexity_measure.network((7, 7))
    assert sum(int(tf.size(w)) for w in params.values()) == report.weights_of(7)


def test_checkpoints_are_fewer_than_steps():
    assert [report.checkpoints(steps) for steps in (1, 3, 5, 9, 1000)] == [1, 2, 4, 6, 64]


def test_numbers_of_hypers_that_cannot_be():
    for wrong in (1, 5003):
        with pytest.raises(DataError, match=rf"hypers is \[2, {wrong}\]"):
            Config(hypers=(2, wrong))


def test_forward_mode_with_many_hypers_is_extrapolated():
    assert complexity.shortened(forward(100), 40.0, []).timed is None
    assert complexity.shortened(forward(200), 40.0, []).timed == (2, 12)
    assert complexity.shortened(forward(200, steps=12), 40.0, []).timed is None, "12 steps need no extrapolation from 12"


def test_the_time_before_predicts_the_next():
    before = [row(forward(10), 15.0), row(Task("memory", "forward", 2, 200, 1000, 100, 1), 999.0)]
    assert complexity.shortened(forward(25), 40.0, before).timed is None
    assert complexity.shortened(forward(50), 40.0, before).timed == (2, 12)
    assert complexity.shortened(forward(5000), 40.0, before).timed == (2, 7), "7.5 s a step: no more fit the budget"
    reverse = forward(5000)._replace(method="reverse")
    slow = [row(reverse._replace(hypers=2), 41.0)]
    assert complexity.shortened(reverse, 42.0, slow).timed is None
    assert complexity.shortened(reverse, 40.0, slow).timed == (100, 200)
    truncated = reverse._replace(method="truncated", truncate=150)
    assert complexity.shortened(truncated, 40.0, [row(truncated, 41.0)]).timed == (150, 300)


def test_what_failed_before_predicts_nothing():
    assert complexity.shortened(forward(50), 40.0, [row(forward(22), None)]).timed is None


def test_memory_is_never_extrapolated_from_fewer_steps():
    task = forward(2)._replace(panel="memory", method="reverse")
    assert complexity.shortened(task, 1.0, [row(task, 99.0)]) == task


def test_extrapolation_is_exact_for_a_line():
    seconds = [0.3 + 0.02 * steps for steps in (2, 12)]
    assert complexity_measure.extrapolate((2, 12), seconds, 1000) == pytest.approx(0.3 + 0.02 * 1000)
    with pytest.raises(ValueError, match="too much noise"):
        complexity_measure.extrapolate((2, 12), [0.5, 0.5], 1000)


def test_an_extrapolated_measurement_times_both_lengths(monkeypatch):
    monkeypatch.setattr(complexity_measure, "problem", lambda steps, hypers: steps)
    monkeypatch.setattr(complexity_measure, "caller", lambda method, steps, *rest: lambda: 0.5 + 0.1 * steps)
    monkeypatch.setattr(complexity_measure, "seconds_of", lambda call: call())
    found = complexity_measure.measure(forward(200, timed=(2, 12)))
    assert found == {"seconds": pytest.approx(0.5 + 0.1 * 1000), "peak_bytes": None}
    assert complexity_measure.measure(forward(2, steps=7))["seconds"] == pytest.approx(0.5 + 0.1 * 7)


def test_what_needs_too_much_memory_is_predicted():
    states = 2 * 4 * report.weights_of(810)
    task = Task("memory", "reverse", 2, 810, 1000, 100, 1)
    refused = complexity.refused(task, 8.0)
    assert refused["peak_bytes"] == 1000 * states
    assert refused["extrapolated"]
    assert "10.4 GB, more than --memory_limit=8" in refused["missing"]
    assert complexity.refused(task, 10.5) is None
    kept = {method: complexity.predicted_bytes(task._replace(method=method)) // states for method in report.METHODS}
    assert kept == {"reverse": 1000, "checkpointed": 64, "truncated": 100, "forward": 2}


class Measure:
    """Stands in for a process: counts, and fails where told to."""

    def __init__(self, fails=lambda task: None):
        self.tasks, self.fails = [], fails

    def __call__(self, task):
        self.tasks.append(task)
        failure = self.fails(task)
        if isinstance(failure, BaseException):
            raise failure
        return {"seconds": None, "peak_bytes": None, "missing": failure} if failure else {"seconds": 0.1, "peak_bytes": 9}


def test_only_what_is_missing_is_measured(tmp_path):
    path, first, again, other = tmp_path / "measurements.json", Measure(), Measure(), Measure()
    rows = complexity.run(SMALL, path, measure=first)
    assert first.tasks == complexity.plan(SMALL)
    assert complexity.run(SMALL, path, measure=again) == rows
    assert again.tasks == []
    complexity.run(dataclasses.replace(SMALL, hypers=(2, 10, 22)), path, measure=other)
    assert [task.hypers for task in other.tasks] == [22] * 4
    assert complexity.run(SMALL, path, measure=again) == rows
    assert again.tasks == [], "a run with other settings loses nothing"
    complexity.run(SMALL, path, resume=False, measure=again)
    assert again.tasks == first.tasks


def test_extrapolated_measurements_are_kept_too(tmp_path):
    config = dataclasses.replace(SMALL, steps=1000, hypers=(2, 200))
    first, again = Measure(), Measure()
    rows = complexity.run(config, tmp_path / "m.json", measure=first)
    assert [(r["method"], r["hypers"], r["timed"]) for r in rows if r["extrapolated"]] == [("forward", 200, (2, 12))]
    complexity.run(config, tmp_path / "m.json", measure=again)
    assert again.tasks == []


def test_a_stopped_run_keeps_what_is_finished(tmp_path):
    plan = complexity.plan(SMALL)
    stopped, again = Measure(lambda task: KeyboardInterrupt() if task == plan[3] else None), Measure()
    with pytest.raises(KeyboardInterrupt):
        complexity.run(SMALL, tmp_path / "m.json", measure=stopped)
    complexity.run(SMALL, tmp_path / "m.json", measure=again)
    assert again.tasks == plan[3:]


def test_a_failure_is_told_and_tried_again(tmp_path):
    again = Measure()
    fails = Measure(lambda task: "killed by SIGKILL" if task.method == "reverse" and task.hidden == 4 else None)
    rows = complexity.run(SMALL, tmp_path / "m.json", measure=fails)
    assert fails.tasks == complexity.plan(SMALL), "the rest goes on"
    assert [r["missing"] for r in rows if r["missing"]] == ["killed by SIGKILL"]
    assert "- memory, reverse, m = 2, h = 4: killed by SIGKILL" in report.table(rows)
    complexity.run(SMALL, tmp_path / "m.json", measure=again)
    assert [(task.method, task.hidden) for task in again.tasks] == [("reverse", 4)]


def test_why_a_process_failed():
    assert complexity_measure.reason(-9, "") == "killed by SIGKILL, out of memory?"
    assert (
        complexity_measure.reason(1, "Traceback\nResourceExhaustedError: no more\n\n") == "ResourceExhaustedError: no more"
    )
    assert complexity_measure.reason(3, "") == "exit code 3"


def test_a_broken_file_of_measurements(tmp_path):
    (tmp_path / "m.json").write_text("[{")
    with pytest.raises(DataError, match=r"m\.json cannot be read .* --noresume"):
        complexity.run(SMALL, tmp_path / "m.json", measure=Measure())


@pytest.fixture
def rows():
    """As a run of the paper preset might give."""
    found = []
    for task in complexity.plan(Config()):
        task = complexity.shortened(task, 40.0, found)
        seconds = 0.0015 * 1000 * task.hypers if task.method == "forward" else 8.0
        peak = complexity.predicted_bytes(task) if task.panel == "memory" else None
        found.append(row(task, seconds, peak) | (complexity.refused(task, 8.0) or {}))
    return found


def test_the_table_marks_what_is_extrapolated_and_has_the_papers_columns(rows):
    lines = report.table(rows).splitlines()
    assert lines[0] == "Seconds per hypergradient, T = 1000, 199,210 weights"
    assert lines[2].startswith("| hypers m | reverse | reverse, 64 checkpoints | reverse, last 100 steps | forward |")
    assert "| 22 | 8 | 8 | 8 | 33 | 27 | 133 |" in lines
    assert "| 200 | 8 | 8 | 8 | ≈ 300 | - | - |" in lines
    assert "Plain training: 8 s." in lines
    assert "| 165,367 | 1.32 | 0.0847 | 0.132 | 0.00265 | 1.2 |" in lines
    assert "| 1,300,870 | ≈ 10.4 | 0.666 | 1.04 | 0.0208 | - |" in lines
    assert "- memory, reverse, m = 2, h = 810: not run: needs about 10.4 GB, more than --memory_limit=8" in lines


def test_the_figure_is_written_and_hollow_where_extrapolated(rows, tmp_path, monkeypatch):
    drawn = []
    save = common.save_figure
    monkeypatch.setattr(common, "save_figure", lambda figure, path: (drawn.append(figure), save(figure, path)))
    report.write(tmp_path, rows)
    for name in ("table.md", "figure_a.png", "figure_a.pdf"):
        assert (tmp_path / name).stat().st_size > 500, name
    left, right = drawn[0].axes
    hollow = [
        sum(len(line.get_xdata()) for line in axis.lines if line.get_markerfacecolor() == "white") for axis in (left, right)
    ]
    assert hollow == [7, 1]  # forward from m = 50 on, which is predicted to exceed the budget, and reverse of 1.3 M weights


@pytest.mark.parametrize("power", [0.0, 1.0, 1.7])
def test_the_slope_of_a_power_law_is_its_power(power):
    x = np.array([10, 20, 50, 1000])
    assert report.slope(x, 0.3 * x**power) == pytest.approx(power, abs=1e-12)
    assert math.isnan(report.slope(x, [1.0, 1.0, 0.0, 2.0]))


def test_slopes_leave_out_the_call(monkeypatch):
    def seconds(method, steps, m):
        return 7.0 + (steps - 1) * (m if method == "forward" else 3.0)

    monkeypatch.setattr(complexity, "problem", lambda steps, hypers, batch, validation: steps)
    monkeypatch.setattr(complexity, "caller", lambda method, steps, hidden, m: lambda: seconds(method, steps, m))
    monkeypatch.setattr(complexity, "seconds_of", lambda call: call())
    rows = complexity.slopes(report.SlopeConfig())
    found = {(r["method"], r["against"]): r["slope"] for r in rows}
    assert found.pop(("forward", "m")) == pytest.approx(1.0)
    assert found.pop(("reverse", "m")) == pytest.approx(0.0, abs=1e-9)
    assert set(found) == {(m, "T") for m in ("plain", "reverse", "checkpointed", "forward", "real time")}
    assert all(slope == pytest.approx(1.0, abs=0.005) for slope in found.values())
    table = report.slope_table(rows)
    assert "| reverse, m from 10 to 5,000 | 0.000 | < 0.1 | yes |" in table
    assert "| no |" not in table
    assert "| 1.061 | 0.95 .. 1.05 | no |" in report.slope_table([{**rows[0], "slope": 1.061}])


def test_weights_multiply_the_losses_of_the_first_digits_only():
    p = complexity_measure.problem(steps=1, hypers=4)
    images, labels, _ = complexity_measure.digits()[0]
    params = complexity_measure.network((2,))
    hypers = complexity_measure.start(4) | {"weights": tf.constant([0.0, 3.0])}

    def velocity(i, hypers):
        batch = (tf.gather(images, i), tf.gather(labels, i), tf.constant(i))
        return p.dynamics.step(p.dynamics.init(params, hypers), hypers, batch, tf.constant(0)).velocity["b1"].numpy()

    np.testing.assert_allclose(velocity([0], hypers), 0.0)
    np.testing.assert_allclose(velocity([1], hypers), 3 * velocity([1], complexity_measure.start(4)), rtol=1e-5)
    np.testing.assert_allclose(velocity([2, 4999], hypers), velocity([2, 4999], complexity_measure.start(4)), rtol=1e-5)


def test_each_method_is_the_engine_with_its_setting():
    def settings(method):
        call = complexity_measure.caller(method, complexity_measure.problem(1000, 2), (2,), 2, truncate=100)
        return {name: call.func.settings.get(name) for name in ("method", "checkpoints", "truncate", "hyper_batch")}

    nothing = {"checkpoints": None, "truncate": None, "hyper_batch": None}
    assert settings("reverse") == {**nothing, "method": "reverse"}
    assert settings("checkpointed") == {**nothing, "method": "reverse", "checkpoints": 64}
    assert settings("truncated") == {**nothing, "method": "reverse", "truncate": 100}
    assert settings("forward") == {**nothing, "method": "forward"}
    assert settings("real time") == {**nothing, "method": "real_time", "hyper_batch": 1000}


def test_a_process_measures_seconds_and_memory():
    found = complexity_measure.measure_elsewhere(Task("memory", "reverse", 4, 2, 3, 2, 1))
    assert found.get("missing") is None
    assert 0 < found["seconds"] < 60
    assert 0 < found["peak_bytes"] < 1e9

"""What is measured, extrapolated or predicted, and which measurements are kept."""

import dataclasses

import pytest

from data.errors import DataError
from experiments.complexity import report
from experiments.complexity.experiment import Config, plan, refused, run, shortened
from experiments.complexity.tasks import METHODS, Task
from tests.support.complexity_rows import forward_task, measured

SMALL = Config(steps=5, hypers=(2, 10), hidden=3, widths=(2, 4), truncate=2, rounds=1)


def test_each_method_is_measured_for_each_number_of_hypers_and_each_width():
    tasks = plan(Config())
    seconds = [(t.hypers, t.method) for t in tasks if t.panel == "seconds" and t.method != "plain"]
    assert seconds == [(m, method) for m in Config().hypers for method in METHODS]
    assert [t.hypers for t in tasks if t.method == "plain"] == [2]
    memory = [t for t in tasks if t.panel == "memory"]
    assert len(memory) == len(set(memory)) == 16
    assert {t.hypers for t in memory} == {2}
    assert {t.steps for t in tasks} == {1000}


def test_impossible_numbers_of_hypers_are_refused():
    for wrong in (1, 5003):
        with pytest.raises(DataError, match=rf"hypers is \[2, {wrong}\]"):
            Config(hypers=(2, wrong))


def test_forward_mode_with_many_hypers_is_extrapolated():
    assert shortened(forward_task(100), 40.0, []).timed is None
    assert shortened(forward_task(200), 40.0, []).timed == (2, 12)
    assert shortened(forward_task(200, steps=12), 40.0, []).timed is None, "12 steps need no extrapolation from 12"


def test_earlier_times_predict_later_ones():
    earlier = [measured(forward_task(10), 15.0), measured(Task("memory", "forward", 2, 200, 1000, 100, 1), 999.0)]
    assert shortened(forward_task(25), 40.0, earlier).timed is None
    assert shortened(forward_task(50), 40.0, earlier).timed == (2, 12)
    assert shortened(forward_task(5000), 40.0, earlier).timed == (2, 7), "7.5 s a step: no more fit the budget"
    reverse = forward_task(5000)._replace(method="reverse")
    slow = [measured(reverse._replace(hypers=2), 41.0)]
    assert shortened(reverse, 42.0, slow).timed is None
    assert shortened(reverse, 40.0, slow).timed == (100, 200)
    truncated = reverse._replace(method="truncated", truncate=150)
    assert shortened(truncated, 40.0, [measured(truncated, 41.0)]).timed == (150, 300)


def test_a_failed_measurement_predicts_nothing():
    assert shortened(forward_task(50), 40.0, [measured(forward_task(22), None)]).timed is None


def test_memory_is_never_extrapolated_from_fewer_steps():
    task = forward_task(2)._replace(panel="memory", method="reverse")
    assert shortened(task, 1.0, [measured(task, 99.0)]) == task


def test_what_needs_too_much_memory_is_predicted():
    task = Task("memory", "reverse", 2, 810, 1000, 100, 1)
    row = refused(task, 8.0)
    assert row["peak_bytes"] == 1000 * 2 * 4 * 1_300_870
    assert row["extrapolated"]
    assert "10.4 GB, more than --memory_limit=8" in row["missing"]
    assert refused(task, 10.5) is None


class FakeMeasure:
    """Stands in for the fresh processes: counts, and fails where told to."""

    def __init__(self, fails=lambda task: None):
        self.tasks, self.fails = [], fails

    def __call__(self, task):
        self.tasks.append(task)
        failure = self.fails(task)
        if isinstance(failure, BaseException):
            raise failure
        return {"seconds": None, "peak_bytes": None, "missing": failure} if failure else {"seconds": 0.1, "peak_bytes": 9}


def test_only_what_is_missing_is_measured(tmp_path):
    path, first, resumed, more = tmp_path / "measurements.json", FakeMeasure(), FakeMeasure(), FakeMeasure()
    rows = run(SMALL, path, measure=first)
    assert first.tasks == plan(SMALL)
    assert run(SMALL, path, measure=resumed) == rows
    assert resumed.tasks == []
    run(dataclasses.replace(SMALL, hypers=(2, 10, 22)), path, measure=more)
    assert [task.hypers for task in more.tasks] == [22] * 4
    assert run(SMALL, path, measure=resumed) == rows
    assert resumed.tasks == [], "a run with other settings loses nothing"
    run(SMALL, path, resume=False, measure=resumed)
    assert resumed.tasks == first.tasks


def test_extrapolated_measurements_are_kept_too(tmp_path):
    config = dataclasses.replace(SMALL, steps=1000, hypers=(2, 200))
    first, resumed = FakeMeasure(), FakeMeasure()
    rows = run(config, tmp_path / "m.json", measure=first)
    assert [(r["method"], r["hypers"], r["timed"]) for r in rows if r["extrapolated"]] == [("forward", 200, (2, 12))]
    run(config, tmp_path / "m.json", measure=resumed)
    assert resumed.tasks == []


def test_a_stopped_run_keeps_finished_measurements(tmp_path):
    tasks = plan(SMALL)
    stopped, resumed = FakeMeasure(lambda task: KeyboardInterrupt() if task == tasks[3] else None), FakeMeasure()
    with pytest.raises(KeyboardInterrupt):
        run(SMALL, tmp_path / "m.json", measure=stopped)
    run(SMALL, tmp_path / "m.json", measure=resumed)
    assert resumed.tasks == tasks[3:]


def test_a_failure_is_reported_and_tried_again(tmp_path):
    resumed = FakeMeasure()
    failing = FakeMeasure(lambda task: "killed by SIGKILL" if task.method == "reverse" and task.hidden == 4 else None)
    rows = run(SMALL, tmp_path / "m.json", measure=failing)
    assert failing.tasks == plan(SMALL), "the other measurements are made"
    assert [r["missing"] for r in rows if r["missing"]] == ["killed by SIGKILL"]
    assert "- memory, reverse, m = 2, h = 4: killed by SIGKILL" in report.table(rows)
    run(SMALL, tmp_path / "m.json", measure=resumed)
    assert [(task.method, task.hidden) for task in resumed.tasks] == [("reverse", 4)]


def test_a_broken_file_of_measurements_is_one_sentence(tmp_path):
    (tmp_path / "m.json").write_text("[{")
    with pytest.raises(DataError, match=r"m\.json cannot be read .* --noresume"):
        run(SMALL, tmp_path / "m.json", measure=FakeMeasure())

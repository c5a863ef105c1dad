"""Which rows there are, and which are measured again."""

import dataclasses
import json
from pathlib import Path

import pytest

from data.errors import DataError
from experiments.error_against_cost import experiment, measure, part
from experiments.error_against_cost.tasks import METHODS, Config, omitted, rows_of, tasks

SMALL = Config(digits=10, features=(3,), steps=(2, 4), solved_steps=4, iterations=(1, 8), memory_steps=(5,), hidden=2)


class FakeRunner:
    """Stands in for the child processes: writes what they would, and fails where told to."""

    def __init__(self, fails=()):
        self.parts, self.fails, self.measured = [], fails, []

    def __call__(self, kind, config, say, **arguments):
        self.parts.append(kind)
        if kind in self.fails:
            return [{"missing": "killed by SIGKILL"}]
        if kind == "reference":
            path = Path(arguments["solved"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
        elif kind == "rows":
            path = Path(arguments["kept"])
            for task in tasks(config, arguments["problem"], arguments["framework"]):
                if not rows_of(measure.read_rows(path), **task.key) and not omitted(task, 10):
                    self.measured.append(task.key)
                    measure.append_row(path, {**task.key, "error": 0.1, "seconds": 1.0, "peak_bytes": 5, "missing": None})
        else:
            return [{kind: 1}]
        return []


@pytest.fixture
def peers(monkeypatch):
    """All frameworks are there."""
    monkeypatch.setattr(experiment, "unavailable", lambda framework, hypertorch: "")


def test_every_method_is_measured_along_its_setting(peers, tmp_path):
    rows = experiment.run(SMALL, tmp_path, runner=FakeRunner())
    assert {row["method"] for row in rows_of(rows, problem="cleaning")} == {m.name for m in METHODS}
    assert [row["steps"] for row in rows_of(rows, problem="logistic 3", method="reverse")] == [2, 4]
    along = [(row["steps"], row["iterations"]) for row in rows_of(rows, problem="logistic 3", method="implicit: CG")]
    assert along == [(4, 1), (4, 8)]
    assert [row["iterations"] for row in rows_of(rows, problem="cleaning", method="truncated")] == [1], "k < T"
    assert not any(row.get("missing") for row in rows)
    assert "along" in rows[0], "by which the page of results recognises the experiment"


def test_what_is_finished_is_not_run_again(peers, tmp_path):
    first, again, afresh = FakeRunner(), FakeRunner(), FakeRunner()
    rows = experiment.run(SMALL, tmp_path, runner=first)
    assert experiment.run(SMALL, tmp_path, runner=again) == rows
    assert again.parts == []
    assert experiment.run(SMALL, tmp_path, resume=False, runner=afresh) == rows
    assert afresh.parts == first.parts


def test_a_killed_part_continues_where_it_was(peers, tmp_path):
    experiment.run(SMALL, tmp_path, runner=FakeRunner())
    kept = tmp_path / "runs" / "rows_cleaning_rfho2.jsonl"
    lines = kept.read_text().splitlines()
    kept.write_text("\n".join(lines[:-2]) + "\n" + lines[-2][:20])  # the last row cut off, the one before cut short
    resumed = FakeRunner()
    rows = experiment.run(SMALL, tmp_path, runner=resumed)
    assert resumed.measured == [task.key for task in tasks(SMALL, "cleaning", "rfho2") if not omitted(task, 10)][-2:]
    assert not any(row.get("missing") for row in rows)


def test_a_failure_is_reported_and_tried_again(peers, tmp_path):
    rows = experiment.run(SMALL, tmp_path, runner=FakeRunner(fails=("rows", "times")))
    failed = [row for row in rows if row.get("missing")]
    assert {row["missing"] for row in failed} == {"killed by SIGKILL"}
    assert [row["failed"][:5] for row in failed if "failed" in row] == ["times"]
    assert rows_of(rows, honesty=1), "the other parts are run"
    resumed = FakeRunner()
    assert not any(row.get("missing") for row in experiment.run(SMALL, tmp_path, runner=resumed))
    assert set(resumed.parts) == {"rows", "times"}


def test_without_a_peer_its_rows_say_so(monkeypatch, tmp_path):
    monkeypatch.setattr(experiment.importlib.util, "find_spec", lambda name: None if name == "jaxopt" else name)
    runner = FakeRunner()
    rows = experiment.run(SMALL, tmp_path, runner=runner)
    reasons = {row["framework"]: row["missing"] for row in rows if row.get("missing")}
    assert set(reasons) == {"hypertorch", "jaxopt"}
    assert "pip install" in reasons["jaxopt"]
    assert "git clone" in reasons["hypertorch"]
    assert runner.parts.count("rows") == 2, "no process is started for them"
    later = FakeRunner()
    (tmp_path / "hypergrad").mkdir()
    rows = experiment.run(SMALL, tmp_path, hypertorch=str(tmp_path), runner=later)
    assert {row["framework"] for row in rows if row.get("missing")} == {"jaxopt"}
    assert sorted(later.parts) == ["alone", "honesty", "rows", "rows"], "only what hypertorch takes part in"


def test_forward_mode_is_left_out_where_the_hypers_are_many():
    (task,) = [t for t in tasks(SMALL, "cleaning", "rfho2") if t.method.name == "forward" and t.steps == 2]
    assert omitted(task, 64) is None
    assert omitted(task, 65)
    assert omitted(task, 5000) == "forward mode with 5,000 hypers: 79 trainings with 64 columns of Z each"


@pytest.mark.parametrize("wrong", [{"steps": ()}, {"iterations": (0,)}, {"features": (0,)}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(DataError, match=f"{next(iter(wrong))} is"):
        dataclasses.replace(SMALL, **wrong)


def test_a_child_process_is_told_everything(monkeypatch, tmp_path):
    """Its flag has all that `do` needs, and its rows come back."""
    told = {}
    monkeypatch.setattr(part, "do", lambda **given: told.update(given) or [{"honesty": 1}])
    monkeypatch.setattr(part, "from_flags", lambda kind: part.Invocation(spec))
    spec = json.dumps({"kind": "memory", "config": dataclasses.asdict(SMALL), "steps": 5})
    part.main()
    assert told == {"kind": "memory", "config": SMALL, "steps": 5}


def test_a_child_that_fails_says_why(monkeypatch):
    monkeypatch.setattr(part.processes, "command", lambda *_: ["sh", "-c", "echo begun; echo no memory >&2; exit 3"])
    said = []
    assert part.in_fresh_process("memory", SMALL, said.append) == [{"missing": "no memory"}]
    assert said == ["begun"]
    monkeypatch.setattr(part.processes, "command", lambda *_: ["sh", "-c", """echo begun; echo '[{"a": 1}]'"""])
    assert part.in_fresh_process("memory", SMALL, said.append) == [{"a": 1}]

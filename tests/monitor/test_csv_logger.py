"""The CSV logger: columns, resumed runs, and half-written files."""

import csv
import errno
import os

import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.core import files
from tests.support.monitored import START, Interrupt, hypergradient, metrics, play, run, two_objectives


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def iterations(path):
    return [int(row["iteration"]) for row in rows(path)]


def test_there_is_one_row_per_hyper_iteration_with_norms_of_arrays(tmp_path):
    path = tmp_path / "new" / "log.csv"
    result = run([rf.CSVLogger(path)], metrics=metrics)
    read = rows(path)
    arrays = ["weights", "mixing"]
    assert list(read[0]) == [
        "iteration", "value", "lr", *(f"norm of {name}" for name in arrays), *(f"weights/{i}" for i in range(3)),
        "hypergradient/lr", *(f"norm of hypergradient/{name}" for name in arrays), "norm of adjoint", "accuracy", "phase",
    ]  # fmt: skip
    assert iterations(path) == [0, 1, 2]
    for row, expected in zip(read, result.history, strict=True):
        assert row.pop("phase") == "training"
        assert {key: float(number) for key, number in row.items()} == {k: v for k, v in expected.items() if k != "seconds"}
    assert any(row["hypergradient/lr"] < 0 for row in result.history), "signs are kept"
    assert float(read[0]["norm of weights"]) == pytest.approx(3**0.5, rel=1e-6)


def test_a_metric_does_not_hide_the_value_or_the_iteration(tmp_path):
    run([rf.CSVLogger(tmp_path / "log.csv")], 1, metrics=lambda state, hypers, k: {"iteration": 7, "value": -1.0})
    (row,) = rows(tmp_path / "log.csv")
    assert row["iteration"] == "0"
    assert float(row["value"]) > 0


def test_each_of_several_objectives_has_a_column(tmp_path):
    play(rf.CSVLogger(tmp_path / "log.csv"), reported=two_objectives(1.0, 2.0))
    (row,) = rows(tmp_path / "log.csv")
    assert (row["value/train"], row["value/test"]) == ("1.0", "2.0")


@pytest.mark.parametrize("interrupted", [False, True], ids=["ended", "interrupted"])
@pytest.mark.parametrize("every", [1, 2])
def test_a_resumed_run_has_every_hyper_iteration_once(every, interrupted, tmp_path):
    path, settings = tmp_path / "log.csv", {"directory": tmp_path / "run", "checkpoint_every": every}
    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            run([rf.CSVLogger(path), Interrupt(3)], 5, **settings)
        assert iterations(path) == [0, 1, 2, 3]
    else:
        run([rf.CSVLogger(path)], 3, **settings)
    result = run([rf.CSVLogger(path)], 5, **settings)
    assert iterations(path) == [0, 1, 2, 3, 4]
    assert [float(row["value"]) for row in rows(path)] == [row["value"] for row in result.history]


def test_repeating_a_finished_run_leaves_the_file_as_it_is(tmp_path):
    path = tmp_path / "log.csv"
    for _ in range(2):
        run([rf.CSVLogger(path)], 2, tmp_path / "run")
        assert iterations(path) == [0, 1]


def test_a_new_run_replaces_the_old_file(tmp_path):
    path = tmp_path / "log.csv"
    run([rf.CSVLogger(path)], 3)
    run([rf.CSVLogger(str(path))], 2)
    assert iterations(path) == [0, 1]


def test_a_half_written_last_line_is_dropped_wherever_it_ends(tmp_path):
    hypers, path = {"lr": tf.constant(0.125)}, tmp_path / "log.csv"

    def log(logger, k):
        logger.on_hyper_iteration(k, hypers, hypergradient(k + 0.5, lr=0.25), {})

    last_line = "12,12.5,0.125,0.25\r\n"
    for end in range(len(last_line) + 1):
        before = rf.CSVLogger(path)
        before.on_start(START)
        for k in range(12):
            log(before, k)
        with path.open("a", newline="") as file:
            file.write(last_line[:end])
        after = rf.CSVLogger(path)
        after.on_start(START._replace(first=12))
        for k in (12, 13):
            log(after, k)
        assert iterations(path) == list(range(14)), last_line[:end]
        assert [row["value"] for row in rows(path)] == [str(k + 0.5) for k in range(14)]
        assert {tuple(row) for row in rows(path)} == {("iteration", "value", "lr", "hypergradient/lr")}


@pytest.mark.parametrize("present", [[0, 2], [1, 3], [3]], ids=["first", "later", "last"])
def test_a_metric_that_is_present_only_at_times_keeps_its_column(present, tmp_path):
    def occasional(state, hypers, k):
        return {"test": 0.5 + k} if k in present else {}

    path = tmp_path / "log.csv"
    run([rf.CSVLogger(path)], 4, tmp_path / "run", occasional)
    result = run([rf.CSVLogger(path)], 5, tmp_path / "run", occasional)
    assert iterations(path) == [0, 1, 2, 3, 4]
    assert [float(row["value"]) for row in rows(path)] == [row["value"] for row in result.history]
    assert [row["test"] for row in rows(path)] == [str(0.5 + k) if k in present else "" for k in range(5)]


def test_a_full_disk_does_not_end_the_run_and_loses_no_row(tmp_path, monkeypatch):
    class Full:
        """Every write fails, half done, during the second hyper-iteration."""

        full = False

        def __getattr__(self, name):
            return getattr(os, name)

        def write(self, descriptor, data):
            if self.full:
                os.write(descriptor, data[:5])
                raise OSError(errno.ENOSPC, "No space left on device")
            return os.write(descriptor, data)

        def on_hyper_iteration(self, k, *_):
            self.full = k == 0  # from the end of the first to the end of the second

    disk = Full()
    monkeypatch.setattr(files, "system", disk)
    with pytest.warns(UserWarning, match=r"log\.csv cannot be written \(.*No space left.*\); the run continues"):
        run([rf.CSVLogger(tmp_path / "log.csv"), disk], 4)
    assert iterations(tmp_path / "log.csv") == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["=cmd()", "+1", "-1", "@x"])
def test_a_name_or_text_is_no_formula(name, tmp_path):
    run([rf.CSVLogger(tmp_path / "log.csv")], 1, metrics=lambda state, hypers, k: {name: 1.5, "text": name})
    (row,) = rows(tmp_path / "log.csv")
    assert row[f"'{name}"] == "1.5"
    assert row["text"] == f"'{name}"

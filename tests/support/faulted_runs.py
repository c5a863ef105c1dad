"""Runs with one fault at one file operation, for tests in several files."""

import warnings

import rfho2 as rf
from rfho2.core import files
from tests.support.checkpoints import TOTAL, Start, assert_identical, numbers, run, straight
from tests.support.faulty_files import Crash, FaultySystem

FAULTS = ["ENOSPC", "EIO", "EROFS", "EINTR", "short", "crash before", "crash after"]


def attempt(monkeypatch, place, number, fault):
    """A run with a fault, as (its result or the error that ended it, the system it ran on)."""
    system = FaultySystem(number, fault)
    with monkeypatch.context() as patch, warnings.catch_warnings():
        patch.setattr(files, "system", system)
        warnings.simplefilter("ignore")
        try:
            return run(place / "run", callbacks=[rf.CSVLogger(place / "log.csv")]), system
        except (rf.CheckpointError, Crash) as error:
            return error, system


def survived(monkeypatch, place, number, fault):
    """One fault; then a run without faults, which ends as if there had been none."""
    outcome, system = attempt(monkeypatch, place, number, fault)
    fault_description = f"operation {number} ({system.hit}) with {fault}"
    if isinstance(outcome, rf.CheckpointError | Crash):
        assert fault != "short", fault_description
    else:
        assert_identical(outcome, straight())
    newest = max(numbers(place / "run"), default=0) if (place / "run").exists() else 0
    start = Start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no checkpoint is damaged
        assert_identical(run(place / "run", callbacks=[start, rf.CSVLogger(place / "log.csv")]), straight())
    assert start.first == newest, fault_description
    lines = (place / "log.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["iteration", *map(str, range(TOTAL))], fault_description
    return system


def operations(monkeypatch, place, fault):
    """The numbers of the operations of a run that can fail in this way."""
    log = attempt(monkeypatch, place, None, fault)[1].log
    return [number for number, name in enumerate(log) if fault != "short" or name == "write"]

"""Every single file operation of a run fails once: the result is the same, or a named error with all checkpoints intact."""

import os
import random
import shutil
import warnings

import pytest

import rfho2 as rf
from rfho2.core import files
from rfho2.driver import history
from tests.support.checkpoints import TOTAL, Start, assert_identical, checkpoint, contents, numbers, run, straight
from tests.support.faulty_files import Crash, FaultySystem

FAULTS = ["ENOSPC", "EIO", "EROFS", "EINTR", "short", "crash before", "crash after"]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """So that a run of six hyper-iterations writes, links and reads pieces of its history."""
    monkeypatch.setattr(history, "ROWS", 2)


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
    told = f"operation {number} ({system.hit}) with {fault}"
    if isinstance(outcome, rf.CheckpointError | Crash):
        assert fault != "short", told
    else:
        assert_identical(outcome, straight())
    newest = max(numbers(place / "run"), default=0) if (place / "run").exists() else 0
    start = Start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no checkpoint is damaged
        assert_identical(run(place / "run", callbacks=[start, rf.CSVLogger(place / "log.csv")]), straight())
    assert start.first == newest, told
    lines = (place / "log.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == [str(k) for k in range(TOTAL) if len(lines) > 1], told
    return system


def operations(monkeypatch, place):
    """How many operations a run without faults needs."""
    return attempt(monkeypatch, place, None, "EIO")[1].count


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_random_operations_of_a_run(fault, tmp_path, monkeypatch):
    total = operations(monkeypatch, tmp_path / "counted")
    for number in random.Random(fault).sample(range(total), 12):
        assert survived(monkeypatch, tmp_path / str(number), number, fault).hit


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_every_operation_of_a_run(fault, tmp_path, monkeypatch):
    total = operations(monkeypatch, tmp_path / "counted")
    for number in range(total):
        assert survived(monkeypatch, tmp_path / str(number), number, fault).hit
        shutil.rmtree(tmp_path / str(number))
    print(f"{fault}: {total} faults injected")


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO"])
def test_a_fault_while_a_run_is_resumed(fault, tmp_path, monkeypatch):
    run(tmp_path / "three", 3)
    total = operations(monkeypatch, shutil.copytree(tmp_path / "three", tmp_path / "counted" / "run").parent)
    for number in random.Random(fault).sample(range(total), 12):
        place = tmp_path / str(number)
        shutil.copytree(tmp_path / "three", place / "run")
        outcome, system = attempt(monkeypatch, place, number, fault)
        if isinstance(outcome, Exception):
            assert "checkpoint_dir" in str(outcome), (number, system.hit)
        assert_identical(run(place / "run"), straight())


def test_a_directory_that_cannot_be_written_to_is_named_with_what_is_in_it(tmp_path, monkeypatch):
    run(tmp_path / "run", 2)
    before = contents(tmp_path / "run")
    outcome, _ = attempt(monkeypatch, tmp_path, 0, "EROFS")
    assert isinstance(outcome, rf.CheckpointError)
    assert "cannot be used ([Errno 30]" in str(outcome)
    assert "ckpt-00000002 is there: copy the directory to another place" in str(outcome)
    assert contents(tmp_path / "run") == before


# Damage of the files themselves


def damaged(rng, place):
    """Flips a bit, truncates, or takes a file from the checkpoint before; returns what it did."""
    file = rng.choice(sorted(place.iterdir()))
    data = bytearray(file.read_bytes())
    kind = rng.choice(["flip", "flip", "flip", "truncate", "mix"])
    if kind == "flip":
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "truncate":
        data = data[: rng.randrange(len(data))]
    else:
        other = checkpoint(place.parent, 3) / file.name
        data = other.read_bytes() if other.exists() else b""
    if bytes(data) == file.read_bytes():
        return None
    shared = file.stat().st_nlink > 1
    assert not shared
    file.write_bytes(data)
    return kind, file.name


def check_damage(count, seed, tmp_path):
    run(tmp_path / "four", 4)
    rng, noticed = random.Random(seed), 0
    while noticed < count:
        place = shutil.copytree(tmp_path / "four", tmp_path / "copy")
        what = damaged(rng, checkpoint(place, 4))
        if what is not None:
            start = Start()
            with pytest.warns(UserWarning, match="ckpt-00000004 is damaged"):
                run(place, 4, callbacks=[start])
            assert start.first == 3, what
            noticed += 1
        shutil.rmtree(place)


def test_random_damage_is_always_noticed(tmp_path):
    check_damage(40, int(os.environ.get("RFHO2_SEED", "0")), tmp_path)


@pytest.mark.slow
def test_two_thousand_random_damages_are_all_noticed(tmp_path):
    check_damage(2000, 1, tmp_path)

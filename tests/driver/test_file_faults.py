"""Files of a run fail or are damaged: the result is the same, or a named error with all checkpoints intact."""

import contextlib
import json
import random
import shutil

import numpy as np
import pytest

import rfho2 as rf
from rfho2.core import files
from rfho2.driver.checkpoint_store import Store
from tests.support.checkpoints import Start, assert_identical, checkpoint, contents, numbers, run, straight
from tests.support.faulted_runs import FAULTS, attempt, operations, survived
from tests.support.faulty_files import Crash, FaultySystem
from tests.support.seeds import seed

pytestmark = pytest.mark.usefixtures("small_pieces")


@pytest.mark.parametrize(
    "fault", [pytest.param(f, marks=() if f in ("ENOSPC", "short", "crash before") else pytest.mark.slow) for f in FAULTS]
)
def test_a_fault_at_random_operations_of_a_run(fault, tmp_path, monkeypatch):
    numbers = operations(monkeypatch, tmp_path / "counted", fault)
    for number in np.random.default_rng(seed(0)).choice(numbers, 4, replace=False).tolist():
        assert survived(monkeypatch, tmp_path / str(number), number, fault).hit


def store_of(place):
    """The checkpoints of the run that wrote them."""
    return Store(place, json.loads((checkpoint(place, 4) / "record.json").read_text())["fingerprint"])


def test_a_process_that_is_killed_while_it_clears_leaves_the_newest_checkpoint_or_none(tmp_path, monkeypatch):
    four, system = tmp_path / "four", FaultySystem(None, "crash after")
    run(four, 4)
    with monkeypatch.context() as patch:
        patch.setattr(files, "system", system)
        store_of(shutil.copytree(four, tmp_path / "counted")).clear()
    left = set()
    for number in range(len(system.log)):
        store = store_of(place := shutil.copytree(four, tmp_path / str(number)))
        with monkeypatch.context() as patch, contextlib.suppress(Crash):  # the end of a close says nothing
            patch.setattr(files, "system", FaultySystem(number, "crash after"))
            store.clear()
        left.add(max(numbers(place), default=0))
    assert left == {0, 4}


@pytest.mark.parametrize(
    ("fault", "number"), [("ENOSPC", 4), *(pytest.param(fault, 12, marks=pytest.mark.slow) for fault in ("ENOSPC", "EIO"))]
)
def test_a_fault_while_a_run_is_resumed(fault, number, tmp_path, monkeypatch):
    run(tmp_path / "three", 3)
    numbers = operations(monkeypatch, shutil.copytree(tmp_path / "three", tmp_path / "counted" / "run").parent, fault)
    for at in np.random.default_rng(seed(0)).choice(numbers, number, replace=False).tolist():
        place = tmp_path / str(at)
        shutil.copytree(tmp_path / "three", place / "run")
        outcome, system = attempt(monkeypatch, place, at, fault)
        if isinstance(outcome, Exception):
            assert "checkpoint_dir" in str(outcome), (at, system.hit)
        assert_identical(run(place / "run"), straight())


def test_a_directory_that_cannot_be_written_to_is_named_with_what_is_in_it(tmp_path, monkeypatch):
    run(tmp_path / "run", 2)
    before = contents(tmp_path / "run")
    outcome, _ = attempt(monkeypatch, tmp_path, 0, "EROFS")
    assert isinstance(outcome, rf.CheckpointError)
    assert "cannot be used ([Errno 30]" in str(outcome)
    assert "ckpt-00000002 exists: copy the directory elsewhere" in str(outcome)
    assert contents(tmp_path / "run") == before


# Damage of the files themselves


def test_a_piece_of_the_history_that_is_damaged_before_it_is_shared_is_noticed(tmp_path):
    """The next checkpoint links it, and must not take the damage for what was written."""

    class Damage:
        def on_hyper_iteration(self, k, *_):
            piece = checkpoint(tmp_path, 3) / "history-00000000.json"
            if k == 4:  # checkpoints 3 and 4 are there; 5 is about to link the piece of 3, and 3 is then removed
                piece.write_bytes(piece.read_bytes().replace(b"0", b"1"))

    run(tmp_path, 5, callbacks=[Damage()])
    start = Start()
    with pytest.warns(UserWarning, match=r"ckpt-00000005 is damaged \(history-00000000\.json has changed"):
        result = run(tmp_path, callbacks=[start])
    assert start.first == 4
    assert_identical(result, straight())


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
    check_damage(40, seed(0), tmp_path)


@pytest.mark.slow
def test_two_thousand_random_damages_are_all_noticed(tmp_path):
    check_damage(2000, 1, tmp_path)

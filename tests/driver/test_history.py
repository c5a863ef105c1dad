"""Histories in pieces: what a checkpoint writes does not grow with the run, and each has all that it needs."""

import os
import shutil

import pytest

from rfho2.driver import history as histories
from tests.driver.test_checkpoint_store import Start, assert_identical, broken, checkpoint, halve, run, straight

ROWS = [{"iteration": k, "value": 0.1 * k} for k in range(10)]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(histories, "ROWS", 2)


def inodes(place):
    return {path.name: path.stat().st_ino for path in place.glob("history-*.json")}


@pytest.mark.parametrize("length", range(8))
@pytest.mark.parametrize("before", [None, 0, 1, 4, 5])
def test_what_is_written_is_read(length, before, tmp_path):
    known, place = tmp_path / "known", tmp_path / "place"
    known.mkdir()
    place.mkdir()
    if before is not None:
        histories.write(known, ROWS[: min(before, length)], None)
    rest = histories.write(place, ROWS[:length], None if before is None else known)
    assert len(rest) < 2
    shutil.rmtree(known)  # it is dropped
    assert histories.read(place, rest, length) == ROWS[:length]


def test_pieces_are_linked_and_not_written_again(tmp_path):
    seen = {}

    class Look:
        def on_hyper_iteration(self, k, *_):
            seen[k] = inodes(checkpoint(tmp_path, k))

    run(tmp_path, callbacks=[Look()])
    assert seen[2].keys() == {"history-00000000.json"}
    assert seen[2]["history-00000000.json"] == seen[4]["history-00000000.json"]  # of the one that is dropped
    assert not set(seen[4].values()) & set(seen[5].values())  # those that stay share nothing


@pytest.mark.parametrize("at", [2, 3, 5])
def test_runs_go_on_to_the_same_bits(at, tmp_path):
    broken(at, tmp_path)
    assert_identical(run(tmp_path), straight())
    assert_identical(run(tmp_path), straight())  # from the last checkpoint alone


def test_where_there_are_no_links_pieces_are_written(tmp_path, monkeypatch):
    def none(*_):
        raise PermissionError("this file system has no hard links")

    monkeypatch.setattr(os, "link", none)
    broken(5, tmp_path)
    assert_identical(run(tmp_path), straight())


@pytest.mark.parametrize(
    "damage",
    [halve, lambda path: path.unlink(), lambda path: path.write_text("null"), lambda path: path.write_text("[]")],
    ids=["truncated", "missing", "null", "too few"],
)
def test_a_damaged_piece_costs_one_checkpoint(damage, tmp_path):
    run(tmp_path, 5)
    damage(checkpoint(tmp_path, 5) / "history-00000000.json")
    began = Start()
    with pytest.warns(UserWarning, match="ckpt-00000005 is damaged"):
        result = run(tmp_path, callbacks=[began])
    assert began.first == 4
    assert_identical(result, straight())

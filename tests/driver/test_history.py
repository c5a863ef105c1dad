"""The history on disk, in pieces: checkpoints do not grow with the length of a run, and each of them is complete."""

import os
import shutil
import warnings

import pytest

from rfho2.driver import history
from tests.support.checkpoints import Start, assert_identical, broken, checkpoint, halve, run, straight

ROWS = [{"iteration": k, "value": 0.1 * k} for k in range(10)]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(history, "ROWS", 2)


def inodes(place):
    return {path.name: path.stat().st_ino for path in place.glob("history-*.json")}


def test_what_is_written_can_be_read_whatever_an_earlier_checkpoint_shares(tmp_path):
    for length in range(8):
        for shared in (None, 0, 1, 4, 5):
            earlier, place = (tmp_path / f"{name}-{length}-{shared}" for name in ("earlier", "place"))
            earlier.mkdir()
            place.mkdir()
            _, known = history.write(earlier, ROWS[: min(shared or 0, length)], None, {})
            rest, hashes = history.write(place, ROWS[:length], None if shared is None else earlier, known)
            assert len(rest) < 2, (length, shared)
            shutil.rmtree(earlier)  # as happens to old checkpoints
            contents = {path.name: path.read_bytes() for path in place.iterdir()}
            assert hashes.keys() == contents.keys()
            assert history.read(contents, rest, length) == ROWS[:length], (length, shared)


def test_pieces_are_linked_and_not_written_again(tmp_path):
    seen = {}

    class Look:
        def on_hyper_iteration(self, k, *_):
            seen[k] = inodes(checkpoint(tmp_path, k))

    run(tmp_path, callbacks=[Look()])
    assert seen[2].keys() == {"history-00000000.json"}
    assert seen[2]["history-00000000.json"] == seen[4]["history-00000000.json"]  # from the checkpoint that is removed
    assert not set(seen[4].values()) & set(seen[5].values())  # those that stay share nothing


def test_pieces_of_a_checkpoint_that_was_not_read_are_not_linked(tmp_path):
    """They might be damaged."""
    run(tmp_path, 5)
    (checkpoint(tmp_path, 4) / "history-00000000.json").write_text("[]")
    run(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_identical(run(tmp_path), straight())


@pytest.mark.parametrize("at", [2, 3, 5])
def test_runs_resume_bit_identically(at, tmp_path):
    broken(at, tmp_path)
    assert_identical(run(tmp_path), straight())
    assert_identical(run(tmp_path), straight())  # from the last checkpoint alone


def test_without_hard_links_pieces_are_written(tmp_path, monkeypatch):
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
    start = Start()
    with pytest.warns(UserWarning, match="ckpt-00000005 is damaged"):
        result = run(tmp_path, callbacks=[start])
    assert start.first == 4
    assert_identical(result, straight())

"""Checkpoints on disk: which are kept, what happens to damaged ones, and what else may lie in their directory."""

import os
import shutil
import warnings

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.driver import checkpoint_store, manifest
from rfho2.driver.checkpoint_store import Store
from tests.support.checkpoints import (
    TOTAL,
    Start,
    assert_identical,
    broken,
    checkpoint,
    contents,
    halve,
    numbers,
    run,
    straight,
)

# Damage


def flip(file):
    """Changes the first number of the first array."""
    data = bytearray(file.read_bytes())
    data[data.index(b"\x93NUMPY") + 128] ^= 0xFF
    file.write_bytes(data)


def replace(file, old, new):
    data = file.read_bytes()
    assert old in data
    file.write_bytes(data.replace(old, new, 1))


DAMAGE = {
    "arrays truncated": lambda place: halve(place / "arrays.npz"),
    "arrays empty": lambda place: (place / "arrays.npz").write_bytes(b""),
    "arrays changed": lambda place: flip(place / "arrays.npz"),
    "arrays missing": lambda place: (place / "arrays.npz").unlink(),
    "record truncated": lambda place: halve(place / "record.json"),
    "record empty": lambda place: (place / "record.json").write_bytes(b""),
    "record not text": lambda place: (place / "record.json").write_bytes(b"\xff\xfe\x00garbage"),
    "record not json": lambda place: (place / "record.json").write_text("garbage"),
    "record of zeros": lambda place: (place / "record.json").write_bytes(bytes(100)),
    "record not a dict": lambda place: (place / "record.json").write_text("null"),
    "record missing": lambda place: (place / "record.json").unlink(),
    "record of the checkpoint before": lambda place: shutil.copy(checkpoint(place.parent, 3) / "record.json", place),
    "arrays of the checkpoint before": lambda place: shutil.copy(checkpoint(place.parent, 3) / "arrays.npz", place),
    "record nested deeply": lambda place: (place / "record.json").write_bytes(b"[" * 100_000),
    "record with another k": lambda place: replace(place / "record.json", b'"k": 4', b'"k": 1000000000'),
    "arrays encrypted": lambda place: replace(
        place / "arrays.npz", b"PK\x01\x02-\x03-\x00\x08", b"PK\x01\x02-\x03-\x00\x09"
    ),
    "manifest truncated": lambda place: halve(place / "manifest.sha256"),
    "manifest empty": lambda place: (place / "manifest.sha256").write_bytes(b""),
    "manifest not text": lambda place: (place / "manifest.sha256").write_bytes(b"\xff\xfe\x00garbage\n"),
    "manifest of the checkpoint before": lambda place: shutil.copy(checkpoint(place.parent, 3) / "manifest.sha256", place),
}


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """The directory of a run with four hyper-iterations, to be copied."""
    place = tmp_path_factory.mktemp("four")
    run(place, 4)
    return place


QUICK = {
    "arrays truncated", "arrays changed", "arrays missing", "record truncated", "record nested deeply",
    "record with another k", "manifest not text", "manifest of the checkpoint before",
}  # fmt: skip


@pytest.mark.parametrize(
    "damage", [pytest.param(damage, marks=() if damage in QUICK else pytest.mark.slow) for damage in DAMAGE]
)
def test_if_the_newest_checkpoint_is_damaged_the_one_before_it_is_used(damage, four, tmp_path):
    resumed = shutil.copytree(four, tmp_path / "resumed")
    DAMAGE[damage](checkpoint(resumed, 4))
    start = Start()
    with pytest.warns(UserWarning, match="ckpt-00000004 is damaged"):
        result = run(resumed, callbacks=[start])
    assert start.first == 3
    assert_identical(result, straight())


@pytest.mark.parametrize(
    "damage", [pytest.param(damage, marks=() if "missing" in damage else pytest.mark.slow) for damage in DAMAGE]
)
def test_damage_is_reported_once_and_does_not_hinder_a_new_run(damage, four, tmp_path):
    resumed, afresh = (shutil.copytree(four, tmp_path / name) for name in ("resumed", "afresh"))
    for place in (resumed, afresh):
        DAMAGE[damage](checkpoint(place, 4))
    with pytest.warns(UserWarning, match="ckpt-00000004 is damaged"):
        run(resumed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_identical(run(resumed), straight())
        assert_identical(run(afresh, 2, resume=False), straight(iterations=2))
    assert numbers(afresh) == [1, 2]


def test_if_all_checkpoints_are_damaged_the_run_starts_again(tmp_path):
    run(tmp_path, 3)
    for k in (2, 3):
        halve(checkpoint(tmp_path, k) / "arrays.npz")
    start = Start()
    with pytest.warns(UserWarning, match="damaged"):
        result = run(tmp_path, callbacks=[start])
    assert start.first == 0
    assert_identical(result, straight())


def test_new_checkpoints_replace_damaged_ones_of_later_hyper_iterations(tmp_path):
    run(tmp_path, 5)
    for k in (4, 5):
        halve(checkpoint(tmp_path, k) / "arrays.npz")
    with pytest.warns(UserWarning, match="damaged"):
        broken(3, tmp_path)
    assert numbers(tmp_path) == [2, 3]
    start = Start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(tmp_path, callbacks=[start])
    assert start.first == 3
    assert_identical(result, straight())


# Which checkpoints there are, and when


class Watch:
    """Records which checkpoints there are when each hyper-iteration ends."""

    def __init__(self, directory):
        self.directory, self.seen = directory, []

    def on_hyper_iteration(self, *_):
        self.seen.append(numbers(self.directory))


def test_a_leaf_that_occurs_twice_is_stored_once_even_as_a_copy(tmp_path):
    saved = {"state": [0.0, 2.0, 3.0], "best": [0.0, 2.0, 3.0], "zero": [-0.0, 2.0, 3.0], "other": [0.0, 1.0, 3.0]}
    saved = {name: np.repeat(np.float32(values), 50) for name, values in saved.items()}
    store = Store(tmp_path, {})
    store.save(1, {name: tf.constant(values) for name, values in saved.items()}, {"history": []})
    with np.load(tmp_path / "ckpt-00000001" / "arrays.npz") as file:
        assert len(file.files) == 3
    arrays, _ = store.load(dict.fromkeys(saved, 0))
    for name, values in saved.items():
        assert np.asarray(arrays[name]).tobytes() == values.tobytes(), name


class Executed:
    """Would be called by whoever unpickles it."""

    def __reduce__(self):
        return pytest.fail, ("a pickle in a checkpoint was read",)


def test_pickles_in_a_checkpoint_are_not_read(tmp_path):
    store = Store(tmp_path, {})
    store.save(1, [tf.ones(2)], {"history": []})
    place = checkpoint(tmp_path, 1)
    np.savez(place / "arrays.npz", **{"0": np.array([Executed()], object)})
    (place / "manifest.sha256").unlink()
    manifest.write(place, {})  # as a sender of wrong checkpoints would
    with pytest.raises(ValueError, match="allow_pickle=False"):
        store.load([0])


@pytest.mark.parametrize("resume", [True, False])
def test_a_checkpoint_without_a_manifest_is_refused(resume, four, tmp_path):
    """Early versions wrote none; to start afresh would remove what nobody has looked at."""
    place = shutil.copytree(four, tmp_path / "copy")
    (checkpoint(place, 4) / "manifest.sha256").unlink()
    before = contents(place)
    with pytest.raises(ValueError, match=r"ckpt-00000004 has no manifest\.sha256: .* Nothing was changed"):
        run(place, resume=resume)
    assert contents(place) == before


def test_a_state_in_real_time_is_stored_once(tmp_path):
    loss = lambda w, hypers, batch: tf.reduce_sum(w**2)  # noqa: E731
    engine = rf.real_time(rf.Problem(rf.gradient_descent(loss, "lr"), loss, None), 1, jit_compile=False)
    rf.HyperOptimizer(engine, rf.projected_adam(0.01)).run(tf.ones(3), {"lr": 0.1}, 1, tmp_path)
    with np.load(tmp_path / "ckpt-00000001" / "arrays.npz") as file:
        assert sum(file[name].shape == (3,) for name in file.files) == 2  # the state, which is the best one too, and Z


def test_at_most_two_checkpoints_are_kept_by_default(tmp_path):
    watch = Watch(tmp_path)
    run(tmp_path, 5, callbacks=[watch])
    assert watch.seen == [[], [1], [1, 2], [2, 3], [3, 4]]
    assert numbers(tmp_path) == [4, 5]


def test_keep_is_the_number_of_checkpoints_that_are_kept(tmp_path):
    run(tmp_path, keep=4)
    assert numbers(tmp_path) == [3, 4, 5, 6]
    run(tmp_path, TOTAL + 1, keep=1)
    assert numbers(tmp_path) == [TOTAL + 1]
    with pytest.raises(ValueError, match="keep is 0"):
        run(tmp_path, keep=0)


def test_checkpoints_are_written_every_few_hyper_iterations_and_at_the_end(tmp_path):
    watch = Watch(tmp_path)
    run(tmp_path, 8, callbacks=[watch], checkpoint_every=3)
    assert watch.seen == [[], [], [], [3], [3], [3], [3, 6], [3, 6]]
    assert numbers(tmp_path) == [6, 8]


def test_a_run_interrupted_between_two_checkpoints_resumes_from_the_first(tmp_path):
    broken(5, tmp_path, checkpoint_every=3)
    start = Start()
    assert_identical(run(tmp_path, callbacks=[start], checkpoint_every=2), straight())
    assert start.first == 3


def test_without_resume_a_run_starts_afresh_and_removes_earlier_checkpoints(tmp_path):
    run(tmp_path, 5)
    start = Start()
    assert_identical(run(tmp_path, 2, callbacks=[start], resume=False), straight(iterations=2))
    assert start.first == 0
    assert numbers(tmp_path) == [1, 2]


def test_the_directory_is_created(tmp_path):
    run(tmp_path / "a" / "b", 1)
    assert numbers(tmp_path / "a" / "b") == [1]


# How they are written


def test_a_checkpoint_is_flushed_before_it_appears_and_its_directory_afterwards(tmp_path, monkeypatch):
    flushed = {"before": set(), "after": set()}

    def fsync(descriptor):
        flushed["after" if numbers(tmp_path) else "before"].add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    run(tmp_path, 1)
    place = checkpoint(tmp_path, 1)
    assert flushed["before"] == {path.stat().st_ino for path in (place, *place.iterdir())}
    assert flushed["after"] == {tmp_path.stat().st_ino}


def test_a_finished_run_leaves_no_drafts(tmp_path):
    run(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "ckpt-00000005", "ckpt-00000006"]


def test_drafts_of_a_killed_run_do_no_harm(tmp_path):
    for name in (".draft-abc", ".draft-00000009"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "arrays.npz").write_bytes(b"PK\x03\x04 half")
    run(tmp_path, 3)
    assert numbers(tmp_path) == [2, 3]
    (tmp_path / ".draft-xyz").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_identical(run(tmp_path), straight())
    assert not list(tmp_path.glob(".draft-*"))


def test_an_old_checkpoint_that_was_not_removed_does_no_harm(tmp_path):
    run(tmp_path / "run", 1)
    shutil.copytree(tmp_path / "run", tmp_path / "old")
    run(tmp_path / "run", 3)
    checkpoint(tmp_path / "old", 1).rename(checkpoint(tmp_path / "run", 1))
    assert_identical(run(tmp_path / "run"), straight())
    assert numbers(tmp_path / "run") == [TOTAL - 1, TOTAL]


def test_an_error_while_writing_leaves_the_last_checkpoint_and_no_draft(tmp_path, monkeypatch):
    run(tmp_path, 3)

    def full(*args, **kwargs):
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(np, "savez", full)
        with pytest.raises(OSError, match="no space left"):
            run(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "ckpt-00000002", "ckpt-00000003"]
    assert_identical(run(tmp_path), straight())


def test_other_files_in_the_directory_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "ckpt-best").mkdir()
    run(tmp_path, 3)
    run(tmp_path, 3, resume=False)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "ckpt-best").is_dir()


# Versions


def test_a_checkpoint_of_another_version_is_used_with_a_warning(tmp_path, monkeypatch):
    assert checkpoint_store.versions()["tensorflow"] == tf.__version__
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_store, "versions", lambda: {"tensorflow": "2.0.0"})
        run(tmp_path, 3)
    with pytest.warns(UserWarning, match=r"written with .*2\.0\.0"):
        result = run(tmp_path)
    assert_identical(result, straight())


def test_a_checkpoint_of_the_same_version_is_used_without_a_warning(tmp_path):
    run(tmp_path, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(tmp_path)

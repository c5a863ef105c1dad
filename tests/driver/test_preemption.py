"""Signals, failing disks and directories in use: a run ends with a clear message, and its checkpoints stay intact."""

import os
import resource
import shutil
import signal
import socket
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

import rfho2 as rf
from rfho2.driver import locks, preemption
from tests.support.checkpoints import TOTAL, At, Start, assert_identical, checkpoint, numbers, run, straight

RAISED = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: preemption.Terminated}
NOBODY = 65534


def send(number, times=1):
    def action():
        for _ in range(times):
            os.kill(os.getpid(), number)

    return action


# Signals


@pytest.mark.parametrize("number", RAISED, ids=lambda n: n.name)
def test_a_signal_ends_a_run_after_the_current_hyper_iteration_with_a_checkpoint(number, tmp_path):
    handlers = [signal.getsignal(n) for n in RAISED]
    with pytest.raises(RAISED[number]) as caught:
        run(tmp_path, callbacks=[At(2, send(number))], checkpoint_every=100)
    if number == signal.SIGINT:
        assert (
            str(caught.value)
            == f"stopped after 3 of {TOTAL} hyper-iterations; run again with checkpoint_dir={str(tmp_path)!r} to resume"
        )
    assert numbers(tmp_path) == [3]
    assert [signal.getsignal(n) for n in RAISED] == handlers
    start = Start()
    assert_identical(run(tmp_path, callbacks=[start]), straight())
    assert start.first == 3


def test_sigterm_exits_with_the_code_that_schedulers_recognise():
    assert isinstance(preemption.Terminated(), SystemExit)
    assert preemption.Terminated().code == 143


def test_ctrl_c_ends_a_run_cleanly_although_nobody_reads_the_notice(tmp_path, capfd):
    reader, writer = os.pipe()
    os.close(reader)  # as `tee` does, which receives the same Ctrl-C
    stderr = os.dup(2)
    os.dup2(writer, 2)
    try:
        with pytest.raises(KeyboardInterrupt, match="stopped after 2"):
            run(tmp_path, callbacks=[At(1, send(signal.SIGINT))], checkpoint_every=100)
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(writer)
    assert numbers(tmp_path) == [2]


def test_on_end_is_called_after_a_signal(tmp_path):
    class End:
        def on_end(self, result):
            self.rows = len(result.history)

    end = End()
    with pytest.raises(preemption.Terminated):
        run(None, callbacks=[At(1, send(signal.SIGTERM)), end])
    assert end.rows == 2


@pytest.mark.parametrize("number", RAISED, ids=lambda n: n.name)
def test_a_second_signal_ends_the_run_at_once(number, tmp_path, capfd):
    with pytest.raises(RAISED[number]):
        run(tmp_path, callbacks=[At(2, send(number, times=2))])
    assert ("Ctrl-C again stops at once" in capfd.readouterr().err) == (number == signal.SIGINT)
    assert numbers(tmp_path) == [1, 2]  # hyper-iteration 2 was not finished
    assert_identical(run(tmp_path), straight())


def test_a_signal_in_the_last_hyper_iteration_is_not_lost(tmp_path):
    with pytest.raises(preemption.Terminated):
        run(tmp_path, callbacks=[At(TOTAL - 1, send(signal.SIGTERM))])
    assert numbers(tmp_path)[-1] == TOTAL


def test_a_signal_while_the_last_checkpoint_is_written_is_not_lost(tmp_path, monkeypatch):
    savez = np.savez
    monkeypatch.setattr(np, "savez", lambda *args, **arrays: (send(signal.SIGTERM)(), savez(*args, **arrays)))
    with pytest.raises(preemption.Terminated):
        run(tmp_path, 1)
    assert numbers(tmp_path) == [1]


def test_runs_outside_the_main_thread_are_unaffected(tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path)))
    thread.start()
    thread.join()
    assert_identical(results[0], straight())


def test_an_ignored_signal_stays_ignored(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as nohup and background jobs do
    try:
        assert_identical(run(tmp_path, callbacks=[At(2, send(signal.SIGINT))]), straight())
    finally:
        signal.signal(signal.SIGINT, before)


# Disks


def small_files_only():
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@pytest.fixture
def limits():
    """Restores the limits and the user that a test changes."""
    before, user = resource.getrlimit(resource.RLIMIT_FSIZE), os.geteuid()
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    os.seteuid(user)


def read_only(directory):
    os.chmod(directory, 0o555)
    if os.geteuid() == 0:  # permissions do not stop root
        os.seteuid(NOBODY)


FAULTS = {"full": lambda place: small_files_only(), "read-only": read_only}


@pytest.fixture
def open_path():
    """A directory that other users may enter, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_full_or_read_only_disk_ends_a_run_and_leaves_the_last_checkpoint_intact(fault, open_path, limits):
    place, before, user = open_path / "run", resource.getrlimit(resource.RLIMIT_FSIZE), os.geteuid()
    with pytest.raises(rf.CheckpointError, match=r"ckpt-00000003 is intact.*Free some space") as caught:
        run(place, callbacks=[At(3, lambda: FAULTS[fault](place))])
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    os.seteuid(user)
    place.chmod(0o755)
    assert "hyper-iteration 4" in str(caught.value)
    assert numbers(place) == [2, 3]
    assert not list(place.glob(".draft-*"))
    assert_identical(run(place), straight())


def test_a_directory_that_vanishes_is_not_created_again(tmp_path):
    place = tmp_path / "disk" / "run"
    with pytest.raises(rf.CheckpointError, match=r"nothing saved earlier was changed.*restore the directory"):
        run(place, callbacks=[At(3, lambda: shutil.rmtree(place.parent))])
    assert not place.exists()


def test_a_directory_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        run(tmp_path / "file" / "run")


def test_a_csv_log_on_a_full_disk_leaves_the_checkpoints_intact(tmp_path, limits):
    log = rf.CSVLogger(tmp_path / "log.csv")
    with pytest.raises(OSError, match="large"):
        run(tmp_path / "run", callbacks=[At(3, small_files_only), log])
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    assert numbers(tmp_path / "run") == [2, 3]
    assert_identical(run(tmp_path / "run", callbacks=[log]), straight())
    lines = (tmp_path / "log.csv").read_text().splitlines()[1:]
    assert [int(line.split(",")[0]) for line in lines] == list(range(TOTAL))


# Two runs at once


def test_a_second_run_in_the_same_directory_is_rejected_and_the_first_continues(tmp_path):
    messages = []

    def second():
        with pytest.raises(locks.InUseError, match="checkpoint_dir") as caught:
            run(tmp_path)
        messages.append(str(caught.value))

    assert_identical(run(tmp_path, callbacks=[At(3, second)]), straight())
    assert f"process {os.getpid()} on" in messages[0]
    assert checkpoint(tmp_path, TOTAL).exists()


def test_the_lock_file_names_only_its_current_owner(tmp_path):
    (tmp_path / locks.NAME).write_text("process 1234567890 on a host with a long name\n")
    with locks.held(tmp_path, "checkpoint_dir"):
        assert (tmp_path / locks.NAME).read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"


def test_a_lock_is_released_after_an_error(tmp_path):
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), locks.held(tmp_path, "checkpoint_dir"):
            1 / 0  # noqa: B018

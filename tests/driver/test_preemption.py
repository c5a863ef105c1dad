"""Signals, disks that fail and directories in use: a run ends with a clear word, and what was kept is whole."""

import os
import resource
import shutil
import signal
import tempfile
import threading
from pathlib import Path

import pytest

import rfho2 as rf
from rfho2.driver import checkpoint_store as checkpoints
from rfho2.driver import locks, preemption
from tests.driver.test_checkpoint_store import TOTAL, Start, assert_identical, checkpoint, numbers, run, straight

RAISED = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: preemption.Terminated}
NOBODY = 65534


class At:
    """Does something at hyper-iteration k."""

    def __init__(self, k, what):
        self.k, self.what = k, what

    def on_hyper_iteration(self, k, *_):
        if k == self.k:
            self.what()


@pytest.fixture(autouse=True)
def listening():
    """Jobs in the background ignore Ctrl-C; here it is heard."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def send(number, times=1):
    def go():
        for _ in range(times):
            os.kill(os.getpid(), number)

    return go


# Signals


@pytest.mark.parametrize("number", RAISED, ids=lambda n: n.name)
def test_a_signal_ends_a_run_after_the_hyper_iteration_under_way_with_a_checkpoint(number, tmp_path):
    handlers = [signal.getsignal(n) for n in RAISED]
    with pytest.raises(RAISED[number]):
        run(tmp_path, callbacks=[At(2, send(number))], checkpoint_every=100)
    assert numbers(tmp_path) == [3]
    assert [signal.getsignal(n) for n in RAISED] == handlers
    began = Start()
    assert_identical(run(tmp_path, callbacks=[began]), straight())
    assert began.first == 3


def test_sigterm_exits_with_the_code_that_schedulers_know():
    assert isinstance(preemption.Terminated(), SystemExit)
    assert preemption.Terminated().code == 143


def test_callbacks_hear_of_the_end(tmp_path):
    class End:
        def on_end(self, result):
            self.rows = len(result.history)

    end = End()
    with pytest.raises(preemption.Terminated):
        run(None, callbacks=[At(1, send(signal.SIGTERM)), end])
    assert end.rows == 2


@pytest.mark.parametrize("number", RAISED, ids=lambda n: n.name)
def test_a_second_signal_ends_at_once(number, tmp_path):
    with pytest.raises(RAISED[number]):
        run(tmp_path, callbacks=[At(2, send(number, times=2))])
    assert numbers(tmp_path) == [1, 2]  # hyper-iteration 2 was not finished
    assert_identical(run(tmp_path), straight())


def test_a_signal_in_the_last_hyper_iteration_is_not_lost(tmp_path):
    with pytest.raises(preemption.Terminated):
        run(tmp_path, callbacks=[At(TOTAL - 1, send(signal.SIGTERM))])
    assert numbers(tmp_path)[-1] == TOTAL


def test_runs_outside_of_the_main_thread_go_as_before(tmp_path):
    found = []
    thread = threading.Thread(target=lambda: found.append(run(tmp_path)))
    thread.start()
    thread.join()
    assert_identical(found[0], straight())


def test_an_ignored_signal_stays_ignored(tmp_path):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as nohup and background jobs do
    assert_identical(run(tmp_path, callbacks=[At(2, send(signal.SIGINT))]), straight())


# How many are kept


def test_as_many_checkpoints_are_kept_as_asked_for(tmp_path):
    run(tmp_path, keep=4)
    assert numbers(tmp_path) == [3, 4, 5, 6]
    run(tmp_path, TOTAL + 1, keep=1)
    assert numbers(tmp_path) == [TOTAL + 1]
    with pytest.raises(ValueError, match="keep is 0"):
        run(tmp_path, keep=0)


# Disks


def small_files_only():
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@pytest.fixture
def limits():
    """Puts back what a test takes away."""
    before, user = resource.getrlimit(resource.RLIMIT_FSIZE), os.geteuid()
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    os.seteuid(user)


def read_only(directory):
    os.chmod(directory, 0o555)
    if os.geteuid() == 0:  # whom no permissions stop
        os.seteuid(NOBODY)


FAULTS = {"full": lambda place: small_files_only(), "read-only": read_only}


@pytest.fixture
def open_path():
    """A directory that others may enter, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_disk_that_takes_no_more_ends_a_run_and_leaves_the_last_checkpoint_whole(fault, open_path, limits):
    place, before, user = open_path / "run", resource.getrlimit(resource.RLIMIT_FSIZE), os.geteuid()
    with pytest.raises(checkpoints.CheckpointError, match=r"ckpt-00000003 is whole.*Make room") as caught:
        run(place, callbacks=[At(3, lambda: FAULTS[fault](place))])
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    os.seteuid(user)
    place.chmod(0o755)
    assert "hyper-iteration 4" in str(caught.value)
    assert numbers(place) == [2, 3]
    assert not list(place.glob(".draft-*"))
    assert_identical(run(place), straight())


def test_a_directory_that_vanishes_is_not_made_anew(tmp_path):
    place = tmp_path / "disk" / "run"
    with pytest.raises(checkpoints.CheckpointError, match="bring the directory back"):
        run(place, callbacks=[At(3, lambda: shutil.rmtree(place.parent))])
    assert not place.exists()


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        run(tmp_path / "file" / "run")


def test_a_csv_on_a_full_disk_leaves_the_checkpoints_whole(tmp_path, limits):
    log = rf.CSVLogger(tmp_path / "log.csv")
    with pytest.raises(OSError, match="large"):
        run(tmp_path / "run", callbacks=[At(3, small_files_only), log])
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    assert numbers(tmp_path / "run") == [2, 3]
    assert_identical(run(tmp_path / "run", callbacks=[log]), straight())
    lines = (tmp_path / "log.csv").read_text().splitlines()[1:]
    assert [int(line.split(",")[0]) for line in lines] == list(range(TOTAL))


# Two at once


def test_a_second_run_in_the_same_directory_is_refused_and_the_first_one_goes_on(tmp_path):
    refused = []

    def second():
        with pytest.raises(locks.InUseError, match="checkpoint_dir") as caught:
            run(tmp_path)
        refused.append(str(caught.value))

    assert_identical(run(tmp_path, callbacks=[At(3, second)]), straight())
    assert f"process {os.getpid()} on" in refused[0]
    assert checkpoint(tmp_path, TOTAL).exists()


def test_a_lock_is_given_back(tmp_path):
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), locks.held(tmp_path, "here"):
            1 / 0  # noqa: B018

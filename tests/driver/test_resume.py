"""Interrupted and killed runs resume bit-identically."""

import csv
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.driver import locks
from tests.support.checkpoints import (
    HYPERS,
    TOTAL,
    Start,
    assert_identical,
    broken,
    numbers,
    problem,
    run,
    straight,
)

ROOT = Path(__file__).parents[2]


# Interrupted inside this process, which is quicker


def test_a_run_may_be_interrupted_at_any_hyper_iteration(tmp_path):
    for at in range(TOTAL):
        broken(at, tmp_path / str(at))
        assert_identical(run(tmp_path / str(at)), straight())


@pytest.mark.slow
def test_a_run_may_be_interrupted_again_and_again(tmp_path):
    for at in range(TOTAL):
        broken(at, tmp_path, case="real_time")
    assert_identical(run(tmp_path, case="real_time"), straight("real_time"))


def test_float64_is_preserved_bit_by_bit(tmp_path):
    in_double = rf.reverse(problem(dtype=tf.float64), jit_compile=False)
    params, hypers = np.zeros(3), {name: np.array(value) for name, value in HYPERS.items()}
    settings = {"case": in_double, "params": params, "hypers": hypers}
    broken(3, tmp_path, **settings)
    assert_identical(run(tmp_path, **settings), run(None, **settings))


def test_the_time_before_an_interruption_counts(tmp_path):
    before = run(tmp_path, 2).history
    after = run(tmp_path).history
    assert [row["seconds"] for row in after[:2]] == [row["seconds"] for row in before]
    assert after[2]["seconds"] > before[1]["seconds"]


def test_a_finished_run_can_be_made_longer(tmp_path):
    run(tmp_path, 2)
    assert_identical(run(tmp_path, 4), straight(iterations=4))


# Killed in other processes


KILLED = {  # name: (case, moment, at, the checkpoints that are left)
    # A checkpoint is flushed four times: its two files, its draft, and the directory when it is in place.
    "real_time_while_it_writes": ("real_time", "at_fsync", 10, [1, 2]),
    "reverse": ("reverse", "at_iteration", 3, [2, 3]),
    "reverse_jit_while_it_writes": ("reverse_jit", "at_fsync", 10, [1, 2]),
}
QUICK = "real_time_while_it_writes"


def start(case, directory, moment, at=0):
    command = [sys.executable, "-m", "tests.driver.killed_child", case, str(directory), moment, str(at)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("name", [n if n == QUICK else pytest.param(n, marks=pytest.mark.slow) for n in KILLED])
def test_a_killed_run_resumes_bit_identically(name, tmp_path):
    case, moment, at, left = KILLED[name]
    directory = tmp_path / name
    with start(case, directory, moment, at) as child:
        _, errors = child.communicate(timeout=300)
    assert child.returncode == -signal.SIGKILL, errors
    assert numbers(directory) == left
    assert ("while_it_writes" in name) == bool(list(directory.glob(".draft-*")))
    began, log = Start(), rf.CSVLogger(directory.with_suffix(".csv"))
    result = run(directory, case=case, callbacks=[began, log])
    assert began.first == left[-1]
    assert_identical(result, straight(case))
    assert numbers(directory) == [TOTAL - 1, TOTAL]
    with directory.with_suffix(".csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["iteration"]) for row in rows] == list(range(TOTAL))
    assert [float(row["value"]) for row in rows] == [row["value"] for row in result.history]


@pytest.mark.slow
def test_a_run_killed_by_another_process_at_any_time_resumes_bit_identically(tmp_path):
    directory = tmp_path / "run"
    child, deadline = start("simple", directory, "by_parent"), time.monotonic() + 300
    try:
        while child.poll() is None and not numbers(directory) and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(locks.InUseError, match=f"process {child.pid}"):
            run(directory)
    finally:
        child.kill()
        _, errors = child.communicate()
    assert child.returncode == -signal.SIGKILL, errors
    began, last = Start(), numbers(directory)[-1]
    result = run(directory, last + 3, callbacks=[began])
    assert began.first == last
    assert_identical(result, run(None, last + 3))

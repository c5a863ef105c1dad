"""Several processes on loopback give the hypergradients of one; one that dies ends the others; one of them writes."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from rfho2.distribute import cluster

ROOT = Path(__file__).parents[2]
METHODS = ("reverse", "checkpointed", "online", "columns")


class Ended(NamedTuple):
    """What a process left, and when it was seen to have ended, the processes before it in the list first."""

    code: int
    out: str
    err: str
    seconds: float


def free_ports(number):
    """Ports that nothing listens at, all held until all are known."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(number)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def launch(processes, *arguments, timeout=120.0, module="tests.distribute.distribute_child", **environment):
    """The module in so many processes; killed if they take too long."""
    jobs = ",".join(f"localhost:{port}" for port in free_ports(processes))
    base = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    if processes > 1:
        base |= {"DTENSOR_JOBS": jobs}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    children = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**base, "DTENSOR_CLIENT_ID": str(i)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(processes)
    ]
    until = time.monotonic() + timeout
    try:
        ended = []
        for child in children:
            texts = child.communicate(timeout=max(until - time.monotonic(), 1.0))
            ended.append(Ended(child.returncode, *texts, timeout + time.monotonic() - until))
        return ended
    finally:
        for child in children:
            child.kill()
            child.wait()


def assert_agree(ended, kinds):
    for process in ended:
        assert process.code == 0, process.err[-3000:]
        assert process.out.splitlines() == [f"{kind} agrees" for kind in kinds]


def test_two_processes_give_the_hypergradients_of_one():
    kinds = ["reverse-float64", "reverse-float32", "online-float64", "columns-float64"]
    assert_agree(launch(2, "agree", *kinds), kinds)


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "methods"), [(2, ("checkpointed", "forward", "real_time", "columns")), (4, METHODS)])
def test_processes_give_the_hypergradients_of_one(processes, methods):
    kinds = [f"{method}-{dtype}" for method in methods for dtype in ("float64", "float32")]
    assert_agree(launch(processes, "agree", *kinds, timeout=400.0), kinds)


@pytest.mark.slow
def test_two_devices_of_one_process_give_the_same():
    kinds = ["reverse-float64", "checkpointed-float64", "forward-float64", "real_time-float64"]
    assert_agree(launch(1, "agree", *kinds, DEVICES="2"), kinds)


def test_a_process_that_dies_ends_the_others(tmp_path):
    began = time.monotonic()
    survivor, killed = launch(2, "die", tmp_path)
    assert killed.code == -9, survivor.err[-3000:]
    assert survivor.code == 75, survivor.err[-3000:]
    assert "process 1 (localhost:" in survivor.err
    assert "is gone, so that process 0" in survivor.err
    assert time.monotonic() - began < 60, "the start of the processes included"


@pytest.mark.slow
def test_a_process_that_is_silent_ends_the_others(tmp_path):
    survivor, silent = launch(2, "freeze", tmp_path)
    assert silent.code == -9
    assert survivor.code == 75, survivor.err[-3000:]
    assert "process 1 (localhost:" in survivor.err
    assert survivor.seconds < silent.seconds - 5, "it did not wait for the other's end"


@pytest.mark.slow
def test_a_restart_goes_on_to_the_same_bits_and_only_the_chief_writes(tmp_path):
    launch(2, "die", tmp_path / "killed")
    left = {path.name for path in (tmp_path / "killed" / "checkpoints").glob("ckpt-*")}
    assert left
    assert left <= {"ckpt-00000001", "ckpt-00000002"}
    resumed = launch(2, "run", tmp_path / "killed")
    straight = launch(2, "run", tmp_path / "straight")
    assert len({process.out for process in [*resumed, *straight]}) == 1, resumed[0].err[-3000:]
    assert [process.code for process in [*resumed, *straight]] == [0] * 4
    rows = [(tmp_path / name / "history.csv").read_text().splitlines() for name in ("killed", "straight")]
    assert [row.split(",")[0] for row in rows[0]] == [row.split(",")[0] for row in rows[1]], "each iteration once"


@pytest.mark.slow
def test_processes_with_columns_of_their_own_go_on_from_a_checkpoint_that_all_have(tmp_path):
    launch(2, "die_columns", tmp_path / "killed")
    assert (tmp_path / "killed" / "1" / "ckpt-00000001").exists()
    ahead = tmp_path / "killed" / "0" / "ckpt-00000002"  # as if killed after one process had written it
    shutil.copytree(tmp_path / "killed" / "0" / "ckpt-00000001", ahead, dirs_exist_ok=True)
    ended = launch(2, "run_columns", tmp_path / "killed")
    ended += launch(2, "run_columns", tmp_path / "straight")
    assert len({process.out for process in ended}) == 1, ended[0].err[-3000:]
    assert ended[0].out


@pytest.mark.slow
def test_ctrl_c_in_one_process_ends_all(tmp_path):
    stopped = launch(2, "stop", tmp_path, SIGNAL="SIGINT")
    assert [process.code for process in stopped] == [-2, -2], stopped[0].err[-3000:]  # 130 to a shell
    assert (tmp_path / "checkpoints" / "ckpt-00000003").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "places"), [("", ["checkpoints"]), ("_columns", ["0", "1"])])
def test_a_signal_to_one_process_ends_all_after_the_same_hyper_iteration(kind, places, tmp_path):
    stopped = launch(2, f"stop{kind}", tmp_path / "stopped")
    assert [process.code for process in stopped] == [143, 143], stopped[0].err[-3000:]
    newest = {max(path.name for path in (tmp_path / "stopped" / place).glob("ckpt-*")) for place in places}
    assert newest == {"ckpt-00000003"}
    ended = launch(2, f"run{kind}", tmp_path / "stopped") + launch(2, f"run{kind}", tmp_path / "straight")
    assert [process.code for process in ended] == [0] * 4
    assert len({process.out for process in ended}) == 1
    assert ended[0].out


@pytest.mark.slow
def test_a_process_that_leaves_early_is_missed():
    left_alone, early = launch(2, "leave")
    assert early.code == 0
    assert left_alone.code != 0
    assert "process 1 (localhost:" in left_alone.err or "UnavailableError" in left_alone.err


@pytest.mark.slow
def test_hypers_that_differ_between_processes_are_refused():
    for process in launch(2, "differ"):
        assert process.code not in (0, -9)
        assert "hypers or k differ between the processes" in process.err or "is gone" in process.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "rate", "times"), [("reverse", "fixed", 2), ("reverse", "tuned", 3), ("forward", "tuned", 3)]
)
@pytest.mark.parametrize("processes", [2, 4])
def test_bytes_on_the_way_are_those_of_the_documentation(processes, method, rate, times):
    """So many times the weights in each step, each all-reduced along a ring: 2 (R - 1) of its sizes in all."""
    ended = launch(processes, "traffic", method, rate, timeout=300.0)
    assert all(process.code == 0 for process in ended), ended[0].err[-3000:]
    measured = min(float(process.out) for process in ended)
    model = times * 2 * (processes - 1) * 8000 * 8
    print(f"{method}, learning rate {rate}, {processes} processes: {measured:.0f} bytes a step, {model} by the model")
    assert 0.95 * model < measured < 1.2 * model, f"{measured} bytes, {model} by the model"


TWO = {"DTENSOR_JOBS": "a:1,b:2", "DTENSOR_CLIENT_ID": "1"}


def test_the_environment_names_the_processes():
    assert cluster.read({}) == cluster.Cluster([], 0, 0)
    assert cluster.read({"DTENSOR_JOBS": "a:1"}).jobs == [], "one process needs no others"
    assert cluster.read(TWO) == cluster.Cluster(["a:1", "b:2"], 1, 0)
    assert cluster.read({**TWO, "DTENSOR_NUM_CLIENTS": "2", "RFHO2_WATCH_PORT": "77"}).watch_port == 77


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"DTENSOR_CLIENT_ID": "2"}, "DTENSOR_CLIENT_ID is 2; with 2 processes in DTENSOR_JOBS it goes from 0 to 1"),
        ({"DTENSOR_CLIENT_ID": "one"}, "DTENSOR_CLIENT_ID is 'one'; set it to a whole number"),
        ({"DTENSOR_NUM_CLIENTS": "3"}, "DTENSOR_NUM_CLIENTS is 3, but DTENSOR_JOBS lists 2"),
        ({"DTENSOR_JOBS": "a:1,b"}, "DTENSOR_JOBS is 'a:1,b': 'b' is not host:port"),
        ({"DTENSOR_JOBS": "a:1,a:1"}, "DTENSOR_JOBS is 'a:1,a:1', where an address stands twice"),
        ({"RFHO2_WATCH_PORT": "-1"}, "RFHO2_WATCH_PORT is '-1'"),
    ],
)
def test_wrong_variables_are_named(wrong, message):
    with pytest.raises(ValueError) as raised:
        cluster.read({**TWO, **wrong})
    assert message in str(raised.value)


def test_a_process_without_a_number_is_told_so():
    with pytest.raises(ValueError, match="DTENSOR_CLIENT_ID is not set"):
        cluster.read({"DTENSOR_JOBS": "a:1,b:2"})

"""Processes on hosts of their own: the hypergradients of one process, whatever happens to the links between them.

`pytest -m slow -s tests/distribute/test_hosts.py` prints the rows of the table in docs/distribute.md. It needs root, to make
network namespaces.
"""

import os
import signal
import threading
import time
from typing import NamedTuple

import pytest

from tests.support import hosts, processes
from tests.support.hosts import NAMES
from tests.support.processes import assert_agree

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hosts.available(), reason="needs root and /dev/net/tun, to make network namespaces"),
]

CHILD = "tests.distribute.distribute_child"
KINDS = ["reverse-float64", "checkpointed-float64", "online-float32", "columns-float64"]
BEFORE = 5  # hyper-iterations before a fault
LONGEST = 60.0  # seconds within which the others have to notice


class Fault(NamedTuple):
    """What happens to the last host during a run: (network, process, its host) -> None, and whether the run survives it."""

    happen: object
    survived: bool


def slow_links(network, process, host):
    network.relay.delay = 0.05


def bad_links(network, process, host):
    network.relay.loss = 0.01


def cut(seconds):
    """Frames to and from the host vanish, as if a cable between two switches were pulled."""

    def happen(network, process, host):
        network.relay.silent = {host}
        if seconds is not None:
            time.sleep(seconds)
            network.relay.silent = set()

    return happen


def link_down(seconds):
    """The host's own network device goes down."""

    def happen(network, process, host):
        network.link(host, "down")
        if seconds is not None:
            time.sleep(seconds)
            network.link(host, "up")

    return happen


def send(number):
    return lambda network, process, host: os.kill(process.pid, number)


def freeze(network, process, host):
    """The process stops and the host answers nothing, not even on behalf of its system."""
    network.relay.silent = {host}
    os.kill(process.pid, signal.SIGSTOP)


FAULTS = {
    "delay of 50 ms": Fault(slow_links, True),
    "1 % of the frames lost": Fault(bad_links, True),
    "cut for 5 s": Fault(cut(5.0), True),
    "device down for 5 s": Fault(link_down(5.0), True),
    "cut for good": Fault(cut(None), False),
    "device down for good": Fault(link_down(None), False),
    "process killed": Fault(send(signal.SIGKILL), False),
    "process stopped": Fault(send(signal.SIGSTOP), False),
    "host frozen": Fault(freeze, False),
}


def rows(directory):
    path = directory / "history.csv"
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def run(network, directory, happen=None, timeout=300.0):
    """The processes of a run when they have ended, and the moment of the fault."""
    directory.mkdir(exist_ok=True)
    children = network.start(CHILD, "linger", directory)
    moment = []

    def strike():
        while rows(directory) < BEFORE and children[0].poll() is None:
            time.sleep(0.02)
        moment.append(time.monotonic())
        if happen is not None:
            happen(network, children[-1], len(children) - 1)

    thread = threading.Thread(target=strike)
    thread.start()
    results = processes.wait(children, timeout)
    thread.join()
    return results, moment[0]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The bits of an undisturbed run on two and on four hosts, and its seconds after the moment of a fault."""
    known = {}

    def bits(number):
        if number not in known:
            with hosts.hosts(number) as network:
                results, moment = run(network, tmp_path_factory.mktemp("straight"))
            assert [process.code for process in results] == [0] * number, results[0].err[-3000:]
            assert len({process.out for process in results}) == 1
            known[number] = results[0].out, results[0].at - moment
        return known[number]

    return bits


@pytest.mark.parametrize("number", [2, 4])
def test_hosts_compute_the_hypergradients_of_one_process(number):
    with hosts.hosts(number) as network:
        results = processes.wait(network.start(CHILD, "agree", *KINDS), 400.0)
    assert [process.code for process in results] == [0] * number, results[0].err[-3000:]
    assert_agree(results, KINDS)


@pytest.mark.parametrize("number", [2, 4])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_survived_or_ends_all_processes_and_the_run_resumes(fault, number, straight, tmp_path):
    happen, survived = FAULTS[fault]
    bits, undisturbed = straight(number)
    with hosts.hosts(number) as network:
        results, moment = run(network, tmp_path, happen, timeout=300.0 if survived else LONGEST + 60.0)
    victim, seconds = results[-1], [process.at - moment for process in results]
    if survived:
        assert [process.code for process in results] == [0] * number, results[0].err[-3000:]
        assert {process.out for process in results} == {bits}
        print(f"\n| {fault} | {number} | goes on: {seconds[0]:.1f} s to the end, undisturbed {undisturbed:.1f} s |")
        return
    rest = results[:-1]
    assert {process.code for process in rest} == {75}, rest[0].err[-3000:]
    assert all(f"process {number - 1} ({NAMES[number - 1]}:10000) was lost" in process.err for process in rest), rest
    assert max(seconds[:-1]) < LONGEST
    assert victim.code in (75, -9), victim.err[-3000:]
    ending = "killed by the test" if victim.code == -9 else f"exits with {victim.code} after {seconds[-1]:.1f} s"
    with hosts.hosts(number) as network:
        resumed, _ = run(network, tmp_path)
    assert {process.out for process in resumed} == {bits}, resumed[0].err[-3000:]
    print(
        f"\n| {fault} | {number} | the others exit with 75 after {min(seconds[:-1]):.1f} to {max(seconds[:-1]):.1f} s; "
        f"the host itself: {ending}; resumed with the same bits |"
    )


@pytest.mark.parametrize(
    ("method", "rate", "times"), [("reverse", "fixed", 2), ("reverse", "tuned", 3), ("forward", "tuned", 3)]
)
@pytest.mark.parametrize("number", [2, 4])
def test_the_traffic_between_hosts_is_that_of_the_model(number, method, rate, times):
    """Each host receives (R - 1) / R of twice the weights for each all-reduce; frames, TCP and gRPC add some per cent."""
    with hosts.hosts(number) as network:
        results = processes.wait(network.start(CHILD, "traffic", method, rate, DEVICE="eth0"), 300.0)
    assert all(process.code == 0 for process in results), results[0].err[-3000:]
    measured = sum(float(process.out) for process in results)
    model = times * 2 * (number - 1) * 8000 * 8
    print(f"\n{method}, learning rate {rate}, {number} hosts: {measured:.0f} bytes per step, {model} in the model")
    assert 0.95 * model < measured < 1.2 * model

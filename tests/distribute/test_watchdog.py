"""The watchdog, with all its connections inside one process: death, silence and departure of a process are told apart."""

import queue
import socket
import struct

import pytest

from rfho2.distribute import watchdog

SECONDS = 20  # more than any event takes


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(watchdog, "BEAT", 0.02)
    monkeypatch.setattr(watchdog, "ANSWER", 0.1)


@pytest.fixture
def losses():
    """(process, the process that it lost), in the order in which they were noticed."""
    return queue.Queue()


@pytest.fixture
def cluster(losses):
    """The chief, and processes 1 and 2."""
    chief = watchdog.Chief(2, lambda lost: losses.put((0, lost)))
    stranger = raw_connection(chief, 7)
    workers = [watchdog.connect("127.0.0.1", chief.port, i, lambda lost, i=i: losses.put((i, lost))) for i in (1, 2)]
    chief.accept()
    assert sorted(peer.number for peer in chief.peers) == [1, 2], "a stranger is not accepted"
    yield chief, workers
    for peer in (*chief.peers, *workers):
        peer.left.set()  # ends its thread
    stranger.close()


def raw_connection(chief, number):
    """A connection that introduces itself and then sends nothing."""
    connection = socket.create_connection(("127.0.0.1", chief.port))
    connection.sendall(struct.pack("!i", number))
    return connection


def test_all_processes_learn_of_a_death(cluster, losses):
    _, workers = cluster
    workers[0]._connection.shutdown(socket.SHUT_RDWR)
    noticed = {losses.get(timeout=SECONDS) for _ in range(3)}
    assert noticed == {(0, 1), (2, 1), (1, 0)}  # process 1, cut off, has lost the chief


def test_silence_means_death(losses, monkeypatch):
    monkeypatch.setattr(watchdog, "PATIENCE", 2.0)
    chief = watchdog.Chief(2, lambda lost: losses.put((0, lost)))
    silent = raw_connection(chief, 1)
    alive = watchdog.connect("127.0.0.1", chief.port, 2, lambda lost: losses.put((2, lost)))
    chief.accept()
    assert {losses.get(timeout=SECONDS) for _ in range(2)} == {(0, 1), (2, 1)}
    for peer in (*chief.peers, alive):
        peer.left.set()
    silent.close()


def test_a_process_that_has_left_is_lost_only_to_a_joint_computation(cluster, losses):
    chief, workers = cluster
    workers[0].send(watchdog.LEAVING)
    left = next(peer for peer in chief.peers if peer.number == 1)
    assert left.left.wait(SECONDS)
    with pytest.raises(queue.Empty):
        losses.get(timeout=0.3)
    with watchdog.together():
        assert {losses.get(timeout=SECONDS) for _ in range(3)} == {(0, 1), (1, 1), (2, 1)}  # the chief tells all

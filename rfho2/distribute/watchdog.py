"""When a process dies, the others end too: each has a connection to the chief, whose end or silence means a loss.

Otherwise they would wait in a collective for an answer that never comes. The chief tells the others which process is lost.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

BEAT = 1.0  # seconds between signs of life
PATIENCE = 30.0  # seconds of silence after which a process is lost: a host that loses power does not close its connections
ANSWER = 10.0  # seconds that a joint computation may still take after a process that takes part in it has left
LOST = 75  # exit code of a process that ends because another one was lost; "temporary failure" in sysexits.h
ALIVE, LEAVING = -1, -2  # messages; any other message is the number of a lost process

Lose = Callable[[int], None]
"""Called with the number of the process that was lost."""


def end(process: int, jobs: list[str], lost: int) -> None:
    """Ends this process with a message; an exception would not reach a main thread that waits in a collective."""
    print(
        f"rfho2: process {lost} ({jobs[lost]}) was lost, so process {process} ({jobs[process]}) ends too. Start all of them "
        f"again with the same command: a run with a checkpoint directory resumes from its last checkpoint.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(LOST)


_under_way: list[float] = []  # when the current joint computations began
_losing: list[tuple[int, Lose]] = []  # this process, and what to do when another is lost; empty if there is only one


def on_loss(process: int, lose: Lose) -> None:
    """Sets what this process, number `process`, does when another one is lost."""
    _losing[:] = [(process, lose)]


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Surrounds a joint computation, which no process can finish once another has left, even if that one left normally."""
    _under_way.append(time.monotonic())
    try:
        yield
    except (tf.errors.UnavailableError, tf.errors.DeadlineExceededError) as error:  # after `PATIENCE` seconds of silence
        for process, lose in _losing:
            for lost in (number for number in named(str(error)) if number != process):
                lose(lost)
        raise
    finally:
        _under_way.pop()


def named(message: str) -> list[int]:
    """The processes that an error of TensorFlow says are lost; the chief, if nobody answers for the service that it hosts.

    >>> named("Collective ops is aborted by: Deadline Exceeded, RPC: /tensorflow.CoordinationService/Heartbeat")
    [0]
    """
    tasks = [int(number) for number in re.findall(r"/job:worker/replica:0/task:(\d+)", message)]
    return tasks or ([0] if "CoordinationService" in message else [])


class Peer:
    """One end of a connection: sends signs of life, and listens for those of the process at the other end, `number`.

    `lose` is called when that process is lost, or reports that another one is.
    """

    def __init__(self, connection: socket.socket, number: int, lose: Lose):
        self.number = number
        self.left = threading.Event()
        self._connection, self._lose = connection, lose
        self._sending = threading.Lock()
        connection.settimeout(PATIENCE)
        for work in (self._listen, self._beat):
            threading.Thread(target=work, daemon=True, name=f"rfho2-watch-{number}").start()

    def send(self, message: int) -> None:
        """Sends one number; an error is ignored, because `_listen` notices a lost process."""
        with contextlib.suppress(OSError), self._sending:
            self._connection.sendall(struct.pack("!i", message))

    def _beat(self) -> None:
        while not self.left.is_set():
            self.send(ALIVE)
            time.sleep(BEAT)

    def _listen(self) -> None:
        while True:
            message = receive(self._connection)
            if message == LEAVING:
                self.left.set()
                return self._miss(time.monotonic())
            if message != ALIVE:
                self._lose(self.number if message is None else message)
                return

    def _miss(self, left: float) -> None:
        """Watches computations after the other process has left: one that does not end is waiting for it."""
        while True:
            time.sleep(BEAT)
            if any(time.monotonic() - max(left, began) > ANSWER for began in _under_way):
                return self._lose(self.number)


def receive(connection: socket.socket) -> int | None:
    """The next number, or None if there is none within `PATIENCE` seconds."""
    data = b""
    try:
        while len(data) < 4:
            more = connection.recv(4 - len(data))
            if not more:
                return None
            data += more
    except OSError:
        return None
    return struct.unpack("!i", data)[0]


class Chief:
    """The process to which all others are connected.

    Args:
      workers: the number of other processes.
      lose: called with the number of a lost process, after the other processes have been told.
      port: the port to listen on; 0 is any free port.
    """

    def __init__(self, workers: int, lose: Lose, port: int = 0):
        self._workers, self._lose = workers, lose
        self._server = socket.create_server(("", port))
        self.port: int = self._server.getsockname()[1]
        self.peers: list[Peer] = []

    def accept(self) -> None:
        """Waits until all other processes are connected."""
        self._server.settimeout(PATIENCE)
        while len(self.peers) < self._workers:
            connection, _ = self._server.accept()
            connection.settimeout(PATIENCE)
            number = receive(connection)
            if number is None or not 1 <= number <= self._workers:  # not a process of this run
                connection.close()
                continue
            self.peers.append(Peer(connection, number, self.tell))

    def tell(self, lost: int) -> None:
        """Tells all processes which one was lost."""
        for peer in self.peers:
            peer.send(lost)
        self._lose(lost)


def connect(host: str, port: int, process: int, lose: Lose) -> Peer:
    """Connects process number `process` to the chief."""
    connection = socket.create_connection((host, port), timeout=PATIENCE)
    connection.sendall(struct.pack("!i", process))
    return Peer(connection, 0, lose)


def leave_at_exit(peers: list[Peer], wait: bool) -> None:
    """Makes a process that ends normally say so; one that ends with an exception does not, and counts as lost.

    The chief has to `wait` until the others have left: it hosts the service that connects TensorFlow's processes.
    """
    failed = threading.Event()
    hook = sys.excepthook

    def on_error(kind: type[BaseException], *details: Any) -> None:
        if not issubclass(kind, KeyboardInterrupt):  # which ends all processes together
            failed.set()
        hook(kind, *details)

    def leave() -> None:
        if failed.is_set():
            return
        for peer in peers:
            peer.send(LEAVING)
        for peer in peers if wait else []:
            peer.left.wait(PATIENCE)

    sys.excepthook = on_error
    atexit.register(leave)

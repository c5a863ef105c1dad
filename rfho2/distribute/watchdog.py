"""A process that dies ends the others: each keeps a connection to the chief, whose end or silence means death.

Without it they would wait in a collective for one that will never answer. The chief tells the others who is gone.
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
PATIENCE = 30.0  # seconds of silence that mean death: a host without power closes no connection
ANSWER = 10.0  # seconds that something may still be under way after a process that takes part in it has left
LOST = 75  # exit code of a process that ends because another one is gone; "try again" in sysexits.h
ALIVE, LEAVING = -1, -2  # what is sent, beside the number of a process that is gone

Lose = Callable[[int], None]
"""Called with the number of the process that is gone."""


def end(own: int, jobs: list[str], gone: int) -> None:
    """Ends this process with a message; the main thread may be inside a collective, where no exception reaches it."""
    print(
        f"rfho2: process {gone} ({jobs[gone]}) is gone, so that process {own} ({jobs[own]}) ends too. Start all of them "
        f"again with the same command: a run with a checkpoint directory goes on from its last checkpoint.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(LOST)


_under_way: list[float] = []  # when what this process computes with the others began
_losing: list[tuple[int, Lose]] = []  # own number, and what to do when another is gone; empty for a process by itself


def on_loss(own: int, lose: Lose) -> None:
    """What process `own` does when another one is gone."""
    _losing[:] = [(own, lose)]


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Around what a process can only finish with the others: one that has left, however well, will not take part."""
    _under_way.append(time.monotonic())
    try:
        yield
    except tf.errors.UnavailableError as error:  # TensorFlow missed one, within ten seconds if it is only silent
        named = [int(number) for number in re.findall(r"/job:worker/replica:0/task:(\d+)", str(error))]
        for own, lose in _losing:
            for gone in (number for number in named if number != own):
                lose(gone)
        raise
    finally:
        _under_way.pop()


class Peer:
    """One end of a connection: sends signs of life, and listens for those of the other.

    Args:
      connection: to the other process.
      other: its number.
      lose: called when it is gone, or says that another one is.
    """

    def __init__(self, connection: socket.socket, other: int, lose: Lose):
        self.other = other
        self.left = threading.Event()
        self._connection, self._lose = connection, lose
        self._sending = threading.Lock()
        connection.settimeout(PATIENCE)
        for work in (self._listen, self._beat):
            threading.Thread(target=work, daemon=True, name=f"rfho2-watch-{other}").start()

    def send(self, message: int) -> None:
        """Sends one number; that the other is gone is for `_listen` to find."""
        try:
            with self._sending:
                self._connection.sendall(struct.pack("!i", message))
        except OSError:
            pass

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
                self._lose(self.other if message is None else message)
                return

    def _miss(self, left: float) -> None:
        """After the other has left: what began with it and does not end was to be computed with it."""
        while True:
            time.sleep(BEAT)
            if any(time.monotonic() - max(left, began) > ANSWER for began in _under_way):
                return self._lose(self.other)


def receive(connection: socket.socket) -> int | None:
    """The next number, or None where there is none within the patience."""
    parts = b""
    try:
        while len(parts) < 4:
            more = connection.recv(4 - len(parts))
            if not more:
                return None
            parts += more
    except OSError:
        return None
    return struct.unpack("!i", parts)[0]


class Chief:
    """The process that all the others are connected to.

    Args:
      others: how many there are.
      lose: called with the number of one that is gone, once the others were told.
      port: to listen at; 0 for any that is free.
    """

    def __init__(self, others: int, lose: Lose, port: int = 0):
        self._others, self._lose = others, lose
        self._server = socket.create_server(("", port))
        self.port: int = self._server.getsockname()[1]
        self.peers: list[Peer] = []

    def accept(self) -> None:
        """Waits until all are connected."""
        self._server.settimeout(PATIENCE)
        while len(self.peers) < self._others:
            connection, _ = self._server.accept()
            connection.settimeout(PATIENCE)
            number = receive(connection)
            if number is None or not 1 <= number <= self._others:  # not one of ours
                connection.close()
                continue
            self.peers.append(Peer(connection, number, self.tell))

    def tell(self, gone: int) -> None:
        """One is gone: the others hear of it from here."""
        for peer in self.peers:
            peer.send(gone)
        self._lose(gone)


def connect(host: str, port: int, own: int, lose: Lose) -> Peer:
    """The other end, in process `own`."""
    connection = socket.create_connection((host, port), timeout=PATIENCE)
    connection.sendall(struct.pack("!i", own))
    return Peer(connection, 0, lose)


def leave_at_exit(peers: list[Peer], wait: bool) -> None:
    """A process that ends well says so; one that ends with an exception does not, and is missed.

    Args:
      peers: its connections.
      wait: for the others to leave first: the chief holds the service through which TensorFlow's processes are connected.
    """
    failed = threading.Event()
    hook = sys.excepthook

    def on_error(kind: type[BaseException], *details: Any) -> None:
        if not issubclass(kind, KeyboardInterrupt):  # which all end by together
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

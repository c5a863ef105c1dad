"""Hosts of their own on one machine: network namespaces, and a relay between them that can delay and lose their frames."""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.processes import ROOT

NAMES = ("alpha", "beta", "gamma", "delta")
TUN, SET_INTERFACE, TAP_WITHOUT_HEADER = "/dev/net/tun", 0x400454CA, 0x1002  # of linux/if_tun.h
FRAME = 65536


def available() -> bool:
    """Whether this process may make network namespaces and virtual links."""
    return os.name == "posix" and os.geteuid() == 0 and bool(shutil.which("ip")) and os.access(TUN, os.R_OK | os.W_OK)


class Relay(threading.Thread):
    """A switch in user space: reads the frames that hosts send, and writes them to the others later, or never.

    Attributes:
      delay: seconds that every frame takes.
      loss: the fraction of frames that are lost.
      silent: hosts whose frames are withheld, in both directions.
    """

    def __init__(self, devices: list[int]):
        super().__init__(daemon=True)
        self.delay, self.loss = 0.0, 0.0
        self.silent: set[int] = set()
        self._devices = devices
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._order, self._random, self._over = itertools.count(), random.Random(0), threading.Event()

    def run(self) -> None:
        """Forwards frames until `stop`."""
        while not self._over.is_set():
            ready, _, _ = select.select(self._devices, [], [], self._until_next())
            for device in ready:
                self._read(self._devices.index(device))
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                *_, receiver, frame = heapq.heappop(self._waiting)
                self._write(receiver, frame)

    def stop(self) -> None:
        """Ends the thread."""
        self._over.set()
        self.join()

    def _until_next(self) -> float:
        return min(0.05, max(0.0, self._waiting[0][0] - time.monotonic())) if self._waiting else 0.05

    def _read(self, sender: int) -> None:
        with contextlib.suppress(OSError):  # a link that is down
            frame = os.read(self._devices[sender], FRAME)
            to = frame[5] - 1 if frame[:5] == _mac(0)[:5] else None  # every other address means everybody
            for receiver in range(len(self._devices)) if to is None else [to]:
                arrives = self._random.random() >= self.loss and not self.silent & {sender, receiver}
                if arrives and receiver != sender:
                    heapq.heappush(self._waiting, (time.monotonic() + self.delay, next(self._order), receiver, frame))

    def _write(self, receiver: int, frame: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._devices[receiver], frame)


class Hosts:
    """Network namespaces that know each other as alpha, beta, gamma and delta; see `hosts`."""

    def __init__(self, names: list[str], relay: Relay):
        self.names, self.relay = names, relay

    def start(self, module: str, *arguments: object, **environment: str) -> list[subprocess.Popen[str]]:
        """Starts the same command on every host, by the environment variables that a user would set."""
        jobs = ",".join(f"{NAMES[i]}:10000" for i in range(len(self.names)))
        shared = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "DTENSOR_JOBS": jobs}
        shared |= {"RFHO2_WATCH_PORT": "10001", **environment}
        command = [sys.executable, "-m", module, *map(str, arguments)]
        return [
            subprocess.Popen(
                ["ip", "netns", "exec", name, *command],
                cwd=ROOT,
                env={**shared, "DTENSOR_CLIENT_ID": str(i)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for i, name in enumerate(self.names)
        ]

    def link(self, host: int, state: str) -> None:
        """Sets the link of a host "up" or "down"."""
        _ip("-n", self.names[host], "link", "set", "eth0", state)


@contextlib.contextmanager
def hosts(number: int) -> Iterator[Hosts]:
    """Makes hosts with a link each, and removes them at the end."""
    names = [f"rfho2-{os.getpid()}-{name}" for name in NAMES[:number]]
    devices: list[int] = []
    relay = None
    try:
        for i, name in enumerate(names):
            _ip("netns", "add", name)
            devices.append(_device(i, name))
            known = "".join(f"10.77.0.{j + 1} {other}\n" for j, other in enumerate(NAMES[:number]))
            settings = Path("/etc/netns") / name  # `ip netns exec` shows its files in the place of those in /etc
            settings.mkdir(parents=True)
            (settings / "hosts").write_text(f"127.0.0.1 localhost\n{known}")
        relay = Relay(devices)
        relay.start()
        yield Hosts(names, relay)
    finally:
        if relay is not None:
            relay.stop()
        for device in devices:
            os.close(device)
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)


def _device(number: int, namespace: str) -> int:
    """A virtual network card, moved into a namespace; its frames are read from and written to the descriptor."""
    device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    name = f"rfho2{number}"
    fcntl.ioctl(device, SET_INTERFACE, struct.pack("16sH22x", name.encode(), TAP_WITHOUT_HEADER))
    _ip("link", "set", name, "address", _mac(number + 1).hex(":"), "netns", namespace, "name", "eth0")
    _ip("-n", namespace, "address", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
    for link in ("lo", "eth0"):
        _ip("-n", namespace, "link", "set", link, "up")
    return device


def _mac(number: int) -> bytes:
    return bytes([2, 0, 0, 0, 0, number])


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)

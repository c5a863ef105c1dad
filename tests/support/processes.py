"""Starts a module in several processes on loopback, which find each other by environment variables."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class ProcessResult(NamedTuple):
    """The exit code of a process, what it printed, and when (`time.monotonic`) it ended."""

    code: int
    out: str
    err: str
    at: float


def free_ports(number: int) -> list[int]:
    """Ports that nothing listens on; all are held until all are known."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(number)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def launch(
    processes: int, *arguments: object, module: str, timeout: float = 120.0, **environment: str
) -> list[ProcessResult]:
    """Runs `python -m MODULE ARGUMENTS` in each of `processes` processes; kills them if they take too long."""
    jobs = ",".join(f"localhost:{port}" for port in free_ports(processes))
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    if processes > 1:
        shared["DTENSOR_JOBS"] = jobs
    children = [
        subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            cwd=ROOT,
            env={**shared, "DTENSOR_CLIENT_ID": str(i)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(processes)
    ]
    return wait(children, timeout)


def wait(children: list[subprocess.Popen[str]], timeout: float) -> list[ProcessResult]:
    """Waits for all processes, reading what they print; kills those that take too long."""
    results: list[ProcessResult | None] = [None] * len(children)

    def read(i: int) -> None:
        out, err = children[i].communicate()
        results[i] = ProcessResult(children[i].returncode, out, err, time.monotonic())

    readers = [threading.Thread(target=read, args=[i]) for i in range(len(children))]
    for reader in readers:
        reader.start()
    deadline = time.monotonic() + timeout
    for reader in readers:
        reader.join(max(0.0, deadline - time.monotonic()))
    for child in children:
        child.kill()
    for reader in readers:
        reader.join()
    return [result for result in results if result is not None]


def assert_agree(results: list[ProcessResult], kinds: list[str]) -> None:
    """The chief compared its results with those of ordinary engines; all processes have the same ones, bit by bit."""
    expected = [kind for kind in kinds for _ in range(2 if kind.startswith("columns") else 1)]  # forward and real time
    for process in results:
        agreed = [line.split() for line in process.out.splitlines() if "agrees" in line]
        assert [kind for kind, _, _ in agreed] == expected, process.err[-3000:]
        assert agreed == [line.split() for line in results[0].out.splitlines() if "agrees" in line]

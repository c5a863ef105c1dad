"""The processes of a run: who they are, from environment variables, and which of them writes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from rfho2.core import errors
from rfho2.distribute import watchdog
from rfho2.distribute.placement import gather, mesh

JOBS, OWN, NUMBER, WATCH = "DTENSOR_JOBS", "DTENSOR_CLIENT_ID", "DTENSOR_NUM_CLIENTS", "RFHO2_WATCH_PORT"


class Cluster(NamedTuple):
    """The addresses of all processes, host:port, and which of them this one is; no addresses for one by itself."""

    jobs: list[str]
    own: int
    watch_port: int


def read(environment: Mapping[str, str]) -> Cluster:
    """The cluster that the environment variables describe, or an error that names the one that is wrong."""
    listed = environment.get(JOBS, "").strip()
    jobs = [job.strip() for job in listed.split(",")] if listed else []
    for job in jobs:
        host, _, port = job.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"{JOBS} is {listed!r}: {job!r} is not host:port; list one address for each process.")
    if len(set(jobs)) < len(jobs):
        raise ValueError(f"{JOBS} is {listed!r}, where an address stands twice; give each process a port of its own.")
    most = max(len(jobs), 1) - 1
    number = _whole(environment, NUMBER, most + 1)
    if number != most + 1:
        raise ValueError(f"{NUMBER} is {number}, but {JOBS} lists {most + 1}; make them agree, or leave {NUMBER} away.")
    own = _whole(environment, OWN, 0 if most == 0 else None)
    if not 0 <= own <= most:
        raise ValueError(f"{OWN} is {own}; with {most + 1} processes in {JOBS} it goes from 0 to {most}.")
    return Cluster(jobs if most else [], own, _whole(environment, WATCH, 0))


def _whole(environment: Mapping[str, str], name: str, default: int | None) -> int:
    text = environment.get(name, "" if default is None else str(default)).strip()
    if not text.isdigit():
        shown = repr(text) if name in environment else "not set"
        raise ValueError(f"{name} is {shown}; set it to a whole number, another one in each process if it is {OWN}.")
    return int(text)


def initialize(devices: int = 1) -> int:
    """Joins the processes that the environment variables list, and watches them; returns their number.

    `DTENSOR_JOBS` lists an address host:port for each process, `DTENSOR_CLIENT_ID` says which of them this one is, and
    `RFHO2_WATCH_PORT` at which port the first one listens for the others (any free one if it is not set). Without them there
    is one process, and nothing to do. When a process dies the others end with exit code 75 within a minute.

    Args:
      devices: logical CPU devices in each process; more than one is of use to try a mesh out.
    """
    cluster = read(os.environ)
    errors.check_count("devices", devices)
    try:
        if cluster.jobs:
            before = signal.getsignal(signal.SIGTERM)
            dtensor.initialize_accelerator_system(num_logical_cpu_devices=devices)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before or signal.SIG_DFL)  # TensorFlow takes it away, and then ignores it
        elif devices > 1:
            (cpu,) = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
    except (RuntimeError, ValueError) as error:
        raise RuntimeError(
            f"rf.distribute.initialize has to come before anything else that uses TensorFlow. ({error})"
        ) from None
    if cluster.jobs:
        _watch(cluster, devices)
    return max(len(cluster.jobs), 1)


def _watch(cluster: Cluster, devices: int) -> None:
    """Connects the processes; the chief's port travels as the first number that they exchange."""
    lose = lambda gone: watchdog.end(cluster.own, cluster.jobs, gone)  # noqa: E731
    watchdog.on_loss(cluster.own, lose)
    server = watchdog.Chief(len(cluster.jobs) - 1, lose, cluster.watch_port) if chief() else None
    ports = gather(np.full([devices], server.port if server else 0, np.int64), mesh())
    if server is not None:
        server.accept()
        watchdog.leave_at_exit(server.peers, wait=True)
    else:
        host = cluster.jobs[0].rpartition(":")[0]
        watchdog.leave_at_exit([watchdog.connect(host, int(ports[0]), cluster.own, lose)], wait=False)


def chief() -> bool:
    """Whether this is the process that writes checkpoints and logs: the first, or the only one."""
    return read(os.environ).own == 0

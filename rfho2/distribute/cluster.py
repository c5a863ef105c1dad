"""The processes of a run, as listed in environment variables, and which of them writes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from rfho2.core import dtensors, errors
from rfho2.distribute import watchdog
from rfho2.distribute.placement import gather, mesh

JOBS, CLIENT_ID, NUMBER, WATCH = "DTENSOR_JOBS", "DTENSOR_CLIENT_ID", "DTENSOR_NUM_CLIENTS", "RFHO2_WATCH_PORT"


class Cluster(NamedTuple):
    """The addresses, host:port, of all processes, the index of this one, and the port on which the chief listens.

    There are no addresses if there is only one process; port 0 means any free port.
    """

    jobs: list[str]
    process: int
    watch_port: int


def read(environment: Mapping[str, str]) -> Cluster:
    """The cluster that the environment variables describe; an error names the variable that is wrong."""
    listed = environment.get(JOBS, "").strip()
    jobs = [job.strip() for job in listed.split(",")] if listed else []
    for job in jobs:
        host, _, port = job.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"{JOBS} is {listed!r}: {job!r} is not host:port; list one address per process.")
    if len(set(jobs)) < len(jobs):
        raise ValueError(f"{JOBS} is {listed!r}, which lists an address twice; give each process its own port.")
    processes = max(len(jobs), 1)
    number = _integer(environment, NUMBER, processes)
    if number != processes:
        raise ValueError(f"{NUMBER} is {number}, but {JOBS} lists {processes}; make them agree, or leave {NUMBER} out.")
    process = _integer(environment, CLIENT_ID, 0 if processes == 1 else None)
    if not 0 <= process < processes:
        raise ValueError(
            f"{CLIENT_ID} is {process}; with {processes} processes in {JOBS} it has to be from 0 to {processes - 1}."
        )
    return Cluster(jobs if processes > 1 else [], process, _integer(environment, WATCH, 0))


def _integer(environment: Mapping[str, str], name: str, default: int | None) -> int:
    text = environment.get(name, "" if default is None else str(default)).strip()
    if not text.isdigit():
        shown = repr(text) if name in environment else "not set"
        hint = ", different in each process" if name == CLIENT_ID else ""
        raise ValueError(f"{name} is {shown}; set it to an integer, at least 0{hint}.")
    return int(text)


def initialize(devices: int = 1) -> int:
    """Joins the processes that the environment variables list, and watches them; returns the number of processes.

    `DTENSOR_JOBS` lists the address host:port of each process, `DTENSOR_CLIENT_ID` is the index of this process in the list,
    and `RFHO2_WATCH_PORT` is the port on which the first process listens for the others (any free port if it is not set).
    Without these variables there is one process, and nothing to join. When a process dies, the others end with exit code 75
    within a minute.

    Args:
      devices: logical CPU devices per process; more than one is useful to try out a mesh.
    """
    cluster = read(os.environ)
    errors.check_count("devices", devices)
    try:
        if cluster.jobs:
            before = signal.getsignal(signal.SIGTERM)
            with dtensors.silence_allowed(watchdog.PATIENCE):
                dtensor.initialize_accelerator_system(num_logical_cpu_devices=devices)
            if threading.current_thread() is threading.main_thread():
                # TensorFlow has replaced the handler by one that ignores the signal.
                signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
        elif devices > 1:
            (cpu,) = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
    except (RuntimeError, ValueError) as error:
        raise RuntimeError(
            f"rf.distribute.initialize has to be called before anything else that uses TensorFlow. ({error})"
        ) from None
    if cluster.jobs:
        _watch(cluster, devices)
    return max(len(cluster.jobs), 1)


def _watch(cluster: Cluster, devices: int) -> None:
    """Connects the processes; the chief's port is the first number that they exchange."""
    lose = lambda lost: watchdog.end(cluster.process, cluster.jobs, lost)  # noqa: E731
    watchdog.on_loss(cluster.process, lose)
    server = watchdog.Chief(len(cluster.jobs) - 1, lose, cluster.watch_port) if chief() else None
    ports = gather(np.full([devices], server.port if server else 0, np.int64), mesh())
    if server is not None:
        server.accept()
        watchdog.leave_at_exit(server.peers, wait=True)
    else:
        host = cluster.jobs[0].rpartition(":")[0]
        watchdog.leave_at_exit([watchdog.connect(host, int(ports[0]), cluster.process, lose)], wait=False)


def chief() -> bool:
    """Whether this process writes checkpoints and logs: it is the first, or the only one."""
    return read(os.environ).process == 0

"""Whether a run that was killed and resumed equals an uninterrupted one: results, checkpoint, CSV log, TensorBoard log."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.backend.event_processing import event_file_loader

from rfho2.monitor import tensorboard as log

OBJECTIVE = f"{log.OBJECTIVE}/value"
MAY_CHANGE = ("configuration", log.BEST)  # TensorBoard tags that a resumed run logs anew


def differences(killed: Path, whole: Path, iterations: int, run: str = ".", tensorboard: bool = True) -> list[str]:
    """How the output of a killed run differs from that of the uninterrupted one; empty if nothing was lost.

    Args:
      killed, whole: output directories.
      iterations: hyper-iterations of the runs.
      run: where, below the output directory, checkpoints and logs are.
      tensorboard: whether there is a log of TensorBoard with every hyper-iteration.
    """
    contents = (("the last checkpoint", last_checkpoint), ("history.csv", csv_rows))
    wrong = ["results.json differs"] if results(killed) != results(whole) else []
    wrong += [f"{name} differs" for name, content in contents if content(killed / run) != content(whole / run)]
    numbers = [int(row["iteration"]) for row in csv_rows(killed / run)]
    if numbers != list(range(iterations)):
        wrong.append(f"history.csv has the hyper-iterations {numbers}")
    return wrong + (tensorboard_faults(killed / run / "tensorboard", iterations) if tensorboard else [])


def results(output: Path) -> Any:
    """Everything but the timing."""
    return json.loads((output / "results.json").read_text())["results"]


def last_checkpoint(output: Path) -> dict[str, bytes]:
    """The bits of the last checkpoint: hypers, weights, sensitivities."""
    directory = max((output / "checkpoints").glob("ckpt-*"))
    with np.load(directory / "arrays.npz", allow_pickle=False) as file:
        return {name: file[name].tobytes() for name in file.files}


def csv_rows(output: Path) -> list[dict[str, str]]:
    """The CSV log."""
    with (output / "history.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def tensorboard_faults(logdir: Path, iterations: int) -> list[str]:
    """Values that TensorBoard has twice with different contents, and hyper-iterations that it lacks."""
    seen: dict[tuple[str, int], bytes] = {}
    faults = set()
    for event, value in logged_values(logdir):
        key, content = (value.tag, event.step), value.tensor.SerializeToString()
        if seen.setdefault(key, content) != content and value.tag not in MAY_CHANGE:
            faults.add(f"TensorBoard: {value.tag} at {event.step} has two values")
    missing = [k for k in range(iterations) if (OBJECTIVE, k) not in seen]
    return sorted(faults) + ([f"TensorBoard lacks {missing}"] if missing else [])


def log_times(logdir: Path) -> list[float]:
    """The moment at which each hyper-iteration of an uninterrupted run was logged.

    The time between two of them covers all parts of a hyper-iteration, including its checkpoint.
    """
    return [event.wall_time for event, value in logged_values(logdir) if value.tag == OBJECTIVE]


def logged_values(logdir: Path) -> Iterator[tuple[Any, Any]]:
    """The events in TensorBoard's files, with each of their values."""
    for path in sorted(logdir.glob("events.*")):
        for event in event_file_loader.EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                yield event, value

"""Independent trainings in several processes: each leaves a row in a file, and a stopped run resumes after the last row."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from tqdm import tqdm

Row = dict[str, Any]
ROWS = "rows.jsonl"
UNITS = 25  # for each process, before fresh ones take over: TensorFlow keeps some 70 MB of each Keras model it has compiled
SINGLE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # NumPy reads them once


class Unit(Protocol):
    """What a row depends on: all of it is in the name. A progress bar shows the name up to the first semicolon."""

    @property
    def name(self) -> str:
        """Identifies the unit."""
        ...


def run(units: Iterable[Unit], compute: Callable[[Any, Path], Row], output: Path, workers: int | None) -> list[Row]:
    """The rows of all units, in their order; those that `output` has are read, the others computed and added.

    Args:
      units: what to compute; can be pickled.
      compute: (unit, output) -> its row, which has the unit's name as "unit"; a function of a module.
      output: the folder that has, or gets, `rows.jsonl`.
      workers: processes, with one thread each; None computes in this process, with all threads.
    """
    units = list({unit.name: unit for unit in units}.values())
    path = output / ROWS
    output.mkdir(parents=True, exist_ok=True)
    known = {row["unit"]: row for row in read(path)}
    missing = [unit for unit in units if unit.name not in known]
    if missing:
        rows = _one_by_one(missing, compute, output) if workers is None else _together(missing, compute, output, workers)
        with path.open("a") as file, contextlib.closing(rows):
            file.write("\n")  # after a line that was cut off
            for row in rows:
                known[row["unit"]] = row
                file.write(json.dumps(row) + "\n")
                file.flush()
    return [known[unit.name] for unit in units]


def _one_by_one(units: list[Unit], compute: Callable[[Any, Path], Row], output: Path) -> Generator[Row, None, None]:
    with tqdm(units, unit="run") as bar:
        for unit in bar:
            bar.set_description(unit.name.split(";")[0])
            yield compute(unit, output)


def _together(
    units: list[Unit], compute: Callable[[Any, Path], Row], output: Path, workers: int
) -> Generator[Row, None, None]:
    context, group = multiprocessing.get_context("spawn"), workers * UNITS
    with _environment(SINGLE), tqdm(total=len(units), unit="run") as bar:
        for first in range(0, len(units), group):
            with concurrent.futures.ProcessPoolExecutor(workers, context, initializer=one_thread) as pool:
                futures = [pool.submit(compute, unit, output) for unit in units[first : first + group]]
                try:
                    for future in concurrent.futures.as_completed(futures):
                        yield future.result()
                        bar.update()
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """These variables for the processes that are started meanwhile, unless they are set."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def checkpoints(unit: Unit, output: Path) -> Path:
    """The folder for the checkpoints of a unit, which `afresh` removes."""
    return output / "checkpoints" / hashlib.sha256(unit.name.encode()).hexdigest()[:16]


def afresh(output: Path) -> None:
    """Forgets the rows of an earlier run, and its checkpoints."""
    (output / ROWS).unlink(missing_ok=True)
    shutil.rmtree(output / "checkpoints", ignore_errors=True)


def read(path: Path) -> list[Row]:
    """The rows of a file; a line that was cut off is left out."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def one_thread() -> None:
    """The processes share the cores already, and a GPU's memory."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)

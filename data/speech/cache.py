"""A cache of speech features on disk: one memory-mapped array and a few small ones, with checksums, written atomically."""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from data import locks
from data.errors import DataError

LARGE, SMALL, META = "features.npy", "index.npz", "meta.json"
BLOCK = 1 << 22  # bytes per read when computing a checksum

# Raised by numpy, zipfile and json on files that are cut off, corrupted or of another kind.
BROKEN = (OSError, ValueError, EOFError, KeyError, TypeError, RuntimeError, struct.error, zipfile.BadZipFile, zlib.error)

Write = Callable[[np.ndarray], object]
Build = Callable[[Write], tuple[dict[str, np.ndarray], list[str]]]


class Stored(NamedTuple):
    """An entry of the cache: `features` float32 [n, d], memory-mapped and read-only; small arrays; and lines of text."""

    features: np.ndarray
    arrays: dict[str, np.ndarray]
    notes: list[str]


def digest(settings: dict[str, Any], root: Path, files: Iterable[Path]) -> str:
    """A name for what these settings and files produce; a file enters with its path in `root`, its size and its time."""
    state = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for file in files:
        try:
            status = file.stat()
            identity = [status.st_size, status.st_mtime_ns]
        except OSError:  # the file is missing, which is a change too
            identity = []
        state.update(json.dumps([file.relative_to(root).as_posix(), *identity]).encode())
    return state.hexdigest()[:24]


def cached(folder: Path, width: int, build: Build) -> Stored:
    """The entry in `folder`; if there is none, or a broken one, `build` makes it.

    Args:
      width: number of columns of the features.
      build: receives a function that appends rows float32 [n, width] to the features; returns the arrays and the notes.
    """
    try:
        with contextlib.suppress(*BROKEN):
            if folder.exists():
                return _open(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locks.alone(folder):
            if folder.exists():  # broken, or another process was faster
                try:
                    return _open(folder)
                except BROKEN as error:
                    warnings.warn(f"{folder} is broken ({error}) and is built again.", stacklevel=2)
                    with _temporary(folder) as temporary, contextlib.suppress(FileNotFoundError):
                        folder.rename(temporary / "broken")
            return _built(folder, width, build)
    except OSError as error:
        raise DataError(
            f"cache_dir {folder.parent} cannot be used ({error}); choose a writable one with enough space."
        ) from None


def _built(folder: Path, width: int, build: Build) -> Stored:
    """Writes into a temporary folder and renames it at the end: other processes see a complete entry or none."""
    with _temporary(folder) as temporary:
        entry = temporary / "made"
        entry.mkdir()
        with (entry / LARGE).open("w+b") as file:
            arrays, notes = _append(file, width, build)
        np.savez(entry / SMALL, allow_pickle=False, **arrays)
        checksums = {name: checksum(entry / name) for name in (LARGE, SMALL)}
        (entry / META).write_text(json.dumps({"checksums": checksums, "notes": notes}, indent=1))
        try:
            entry.rename(folder)
        except OSError:
            if not folder.exists():  # otherwise another process was first, with the same content
                raise
    return _open(folder)


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """A temporary folder on the same disk; only a killed process leaves one behind, which may then be deleted."""
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.unfinished-", dir=folder.parent) as name:
        yield Path(name)


def _append(file: BinaryIO, width: int, build: Build) -> tuple[dict[str, np.ndarray], list[str]]:
    """Writes the rows as they are built, then the header with their number; numpy pads headers, so that any number fits."""
    _header(file, 0, width)
    start = file.tell()
    arrays, notes = build(lambda rows: file.write(np.ascontiguousarray(rows, np.float32).data))
    rows = (file.tell() - start) // (4 * width)
    file.seek(0)
    _header(file, rows, width)
    if file.tell() != start:
        raise RuntimeError(f"the header of a .npy file takes {file.tell()} bytes for {rows} rows, but {start} for none.")
    return arrays, notes


def _header(file: BinaryIO, rows: int, width: int) -> None:
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})


def _open(folder: Path) -> Stored:
    meta = json.loads((folder / META).read_text())
    for name in (LARGE, SMALL):
        if checksum(folder / name) != meta["checksums"][name]:
            raise ValueError(f"the checksum of {name} differs from that in {META}")
    with np.load(folder / SMALL, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return Stored(np.load(folder / LARGE, mmap_mode="r", allow_pickle=False), arrays, [str(note) for note in meta["notes"]])


def checksum(path: Path) -> int:
    """CRC-32 of a file, which detects disk errors and interrupted writes but not deliberate changes."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            value = zlib.crc32(block, value)
    return value

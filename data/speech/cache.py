"""Features of speech kept on disk: one memory-mapped array and some small ones, checked by checksums, never half there."""

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
BLOCK = 1 << 22  # bytes read at a time for a checksum

# What numpy, zipfile and json were seen to raise on files that are cut off, changed or something else.
BROKEN = (OSError, ValueError, EOFError, KeyError, TypeError, RuntimeError, struct.error, zipfile.BadZipFile, zlib.error)

Write = Callable[[np.ndarray], object]
Build = Callable[[Write], tuple[dict[str, np.ndarray], list[str]]]


class Stored(NamedTuple):
    """What is kept: `features` float32 [n, d], memory-mapped and read-only; small arrays; and lines of text."""

    features: np.ndarray
    arrays: dict[str, np.ndarray]
    notes: list[str]


def digest(settings: dict[str, Any], root: Path, files: Iterable[Path]) -> str:
    """A name for what comes of these settings and files; a file is known by its path in `root`, its size and its time."""
    state = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for file in files:
        try:
            found = file.stat()
            known = [found.st_size, found.st_mtime_ns]
        except OSError:  # a missing file is one of the things that may change
            known = []
        state.update(json.dumps([file.relative_to(root).as_posix(), *known]).encode())
    return state.hexdigest()[:24]


def cached(folder: Path, width: int, build: Build) -> Stored:
    """What `folder` holds, or else what `build` makes, which it will hold then.

    Args:
      width: columns of the features.
      build: is given a function that appends rows float32 [n, width] to the features; returns the arrays and the notes.
    """
    try:
        with contextlib.suppress(*BROKEN):
            if folder.exists():
                return _open(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locks.alone(folder):
            if folder.exists():  # broken, or another process was quicker
                try:
                    return _open(folder)
                except BROKEN as error:
                    warnings.warn(f"{folder} is broken ({error}); it is built again.", stacklevel=2)
                    with _beside(folder) as aside, contextlib.suppress(FileNotFoundError):
                        folder.rename(aside / "broken")
            return _built(folder, width, build)
    except OSError as error:
        raise DataError(f"cache_dir {folder.parent} cannot be used ({error}); choose one with space to write to.") from None


def _built(folder: Path, width: int, build: Build) -> Stored:
    """Everything is written into a folder beside, which then gets its name: others see all of it or nothing."""
    with _beside(folder) as beside:
        made = beside / "made"
        made.mkdir()
        with (made / LARGE).open("w+b") as file:
            arrays, notes = _append(file, width, build)
        np.savez(made / SMALL, allow_pickle=False, **arrays)
        checksums = {name: checksum(made / name) for name in (LARGE, SMALL)}
        (made / META).write_text(json.dumps({"checksums": checksums, "notes": notes}, indent=1))
        try:
            made.rename(folder)
        except OSError:
            if not folder.exists():  # or another process came first, with the same
                raise
    return _open(folder)


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A folder on the same disk, gone at the end; only a killed process leaves it, and it may be deleted then."""
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.unfinished-", dir=folder.parent) as name:
        yield Path(name)


def _append(file: BinaryIO, width: int, build: Build) -> tuple[dict[str, np.ndarray], list[str]]:
    """Rows as they come, and at last the header, which says how many; numpy leaves room in it for any number."""
    _header(file, 0, width)
    start = file.tell()
    arrays, notes = build(lambda rows: file.write(np.ascontiguousarray(rows, np.float32).data))
    rows = (file.tell() - start) // (4 * width)
    file.seek(0)
    _header(file, rows, width)
    if file.tell() != start:
        raise RuntimeError(f"the header of a .npy file takes {file.tell()} bytes for {rows} rows and {start} for none.")
    return arrays, notes


def _header(file: BinaryIO, rows: int, width: int) -> None:
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})


def _open(folder: Path) -> Stored:
    meta = json.loads((folder / META).read_text())
    for name in (LARGE, SMALL):
        if checksum(folder / name) != meta["checksums"][name]:
            raise ValueError(f"{name} has another checksum than {META} says")
    with np.load(folder / SMALL, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return Stored(np.load(folder / LARGE, mmap_mode="r", allow_pickle=False), arrays, [str(note) for note in meta["notes"]])


def checksum(path: Path) -> int:
    """CRC-32 of a file, which finds what disks and interruptions do (not what somebody does on purpose)."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            value = zlib.crc32(block, value)
    return value

"""Checkpoints on disk: each a directory that appears whole or not at all, and is refused by another problem.

`<directory>/ckpt-00000012/` holds `arrays.npz` (the leaves of a nest, never pickled), `record.json` (everything else but
the older rows of the history, which are in `history-*.json`) and what else the caller writes there.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Nest
from rfho2.driver import history as histories

DAMAGE = (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile)


class CheckpointError(OSError):
    """A checkpoint could not be written; those before it are as they were."""


class Store:
    """The checkpoints of one run; the directory is this process's alone, see `rfho2.locks`.

    Args:
      directory: where they are.
      fingerprint: plain values that say which problem this is; a checkpoint with another one is refused.
      keep: how many; more than one, should the newest be damaged.
    """

    def __init__(self, directory: str | os.PathLike[str], fingerprint: dict[str, Any], keep: int = 2):
        self.directory = Path(directory)
        self.fingerprint = json.loads(json.dumps(fingerprint, default=str))
        self._keep = keep
        self._known: set[Path] = set()  # those that are whole: written or read by this object

    def save(self, k: int, arrays: Nest, record: dict[str, Any], also: Callable[[Path], None] | None = None) -> None:
        """Writes checkpoint k beside the others and moves it into place; then drops the old ones.

        `record` has plain values, its "history" one row for each hyper-iteration.
        """
        try:
            place = self._write(k, arrays, record, also)
        except (OSError, tf.errors.OpError) as error:
            try:
                left = f"{self._places()[0]} is whole, and the next run goes on from there"
            except (OSError, IndexError):  # there is none, or the directory cannot be read either
                left = "nothing that was kept before was changed"
            raise CheckpointError(
                f"checkpoint_dir: hyper-iteration {k} could not be kept in {self.directory} ({error}); {left}. "
                f"Make room, or bring the directory back, and run again."
            ) from error
        later = [other for other in self._places() if other > place]  # damaged, or the run would have gone on from there
        for old in later + [other for other in self._places() if other <= place][self._keep :]:
            shutil.rmtree(old, ignore_errors=True)
            self._known.discard(old)

    def _write(self, k: int, arrays: Nest, record: dict[str, Any], also: Callable[[Path], None] | None) -> Path:
        for killed in self.directory.glob(".draft-*"):
            shutil.rmtree(killed, ignore_errors=True)
        # Not made here if it has vanished: where a disk was unmounted, another one would be filled.
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=self.directory))
        try:
            leaves: dict[str, Any] = {str(i): np.asarray(leaf) for i, leaf in enumerate(nest.flatten(arrays))}
            np.savez(draft / "arrays.npz", **leaves)
            if also is not None:
                also(draft)
            rest = histories.write(draft, record["history"], self._dropped_next())
            kept = {"rows": len(record["history"]), "history": rest}
            whole = {**record, **kept, "fingerprint": self.fingerprint, "versions": versions()}
            (draft / "record.json").write_text(json.dumps(whole))
            for file in draft.iterdir():
                _flush(file)
            _flush(draft)
            place = self.directory / f"ckpt-{k:08d}"
            shutil.rmtree(place, ignore_errors=True)
            draft.rename(place)
            _flush(self.directory)
            self._known.add(place)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return place

    def load(self, template: Nest, also: Callable[[Path], None] | None = None) -> tuple[Nest, dict[str, Any]] | None:
        """The newest checkpoint that can be read, in the structure of `template`; None if there is none.

        `also` reads what the caller wrote there.
        """
        for place in self._places():
            try:
                record = _read_record(place)
            except DAMAGE as error:
                _damaged(place, error)
                continue
            self._compare(place, record)
            try:
                with np.load(place / "arrays.npz", allow_pickle=False) as file:
                    leaves = [tf.constant(file[str(i)]) for i in range(len(file.files))]
                found = nest.pack(template, leaves)
                history = histories.read(place, record["history"], record["rows"])
                if also is not None:
                    also(place)
            except (*DAMAGE, tf.errors.OpError, AssertionError) as error:
                _damaged(place, error)
                continue
            self._known.add(place)
            return found, {**record, "history": history}
        return None

    def clear(self) -> None:
        """Removes the checkpoints of this problem; refuses those of another."""
        for place in self._places():
            try:
                record = _read_record(place)
            except DAMAGE:  # nothing to keep
                continue
            self._compare(place, record)
        for place in self._places():
            shutil.rmtree(place)

    def _dropped_next(self) -> Path | None:
        """The checkpoint whose files the next one may share: those that stay share none, should one be damaged."""
        place = next(iter(self._places()[self._keep - 1 :]), None)
        return place if place in self._known else None

    def _places(self) -> list[Path]:
        return sorted(self.directory.glob("ckpt-" + "[0-9]" * 8), reverse=True)

    def _compare(self, place: Path, record: dict[str, Any]) -> None:
        there, here = record.get("fingerprint", {}), self.fingerprint
        different = [key for key in sorted({*there, *here}) if there.get(key) != here.get(key)]
        if different:
            pairs = "; ".join(f"{key}: {there.get(key)!s:.300} there, {here.get(key)!s:.300} now" for key in different)
            raise ValueError(
                f"checkpoint_dir: {place} belongs to another problem ({pairs}). Nothing was changed. Use another directory, "
                f"or remove this one."
            )
        if record.get("versions") != versions():
            warnings.warn(
                f"checkpoint {place} was written with {record.get('versions')}, this is {versions()}: results may differ "
                f"in the last digits.",
                stacklevel=4,
            )


def versions() -> dict[str, str]:
    """The versions that can change the bits of a result."""
    return {"tensorflow": tf.__version__, "numpy": np.__version__, "machine": platform.machine()}


def digest(arrays: Nest) -> str:
    """A hash of the contents of a nest."""
    sha = hashlib.sha256()
    for leaf in nest.flatten(arrays):
        sha.update(np.ascontiguousarray(leaf).tobytes())
    return sha.hexdigest()[:16]


def _damaged(place: Path, error: Exception) -> None:
    warnings.warn(f"checkpoint {place} is damaged ({error}); using the one before it.", stacklevel=4)


def _read_record(place: Path) -> dict[str, Any]:
    record = json.loads((place / "record.json").read_text())
    if not isinstance(record, dict):
        raise ValueError(f"record.json holds {record!r:.40}")
    return record


def _flush(path: Path) -> None:
    """Waits until the disk has it: a rename that outlives its contents would be a half-written checkpoint."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

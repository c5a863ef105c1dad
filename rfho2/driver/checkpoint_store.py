"""Checkpoints on disk: each is a directory that appears complete or not at all, and that other problems reject.

`<directory>/ckpt-00000012/` holds `arrays.npz` (the distinct leaves of a nest, never pickled), `history-*.json` (the older
rows of the history), `record.json` (everything else), whatever the caller adds, and a manifest with the hashes of all these.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.core import files, nest
from rfho2.core.types import Nest
from rfho2.core.warn import warn
from rfho2.driver import history, manifest

HASH = re.compile("[0-9a-f]{16}")
GRAPH = "graph of "  # prefix of the parts of a fingerprint that depend on the versions of TensorFlow and Keras
PLACE = re.compile(r"ckpt-\d{8}")
DRAFT = ".draft-"


class CheckpointError(OSError):
    """A checkpoint could not be written; earlier checkpoints are intact."""


class Store:
    """The checkpoints of one run; only this process uses the directory, see `rfho2/driver/locks.py`.

    Args:
      fingerprint: plain values that identify the problem; a checkpoint with another fingerprint is rejected.
      keep: how many checkpoints to keep; more than one, in case the newest is damaged.
    """

    def __init__(self, directory: str | os.PathLike[str], fingerprint: dict[str, Any], keep: int = 2):
        self.directory = Path(directory)
        self.fingerprint = json.loads(json.dumps(fingerprint, default=str))
        self._keep = keep
        self._intact: set[Path] = set()  # checkpoints known to be intact: written or read by this object
        self._pieces: dict[str, str] = {}  # the hashes of the pieces of the history in them

    def save(self, k: int, arrays: Nest, record: dict[str, Any], also: Callable[[Path], None] | None = None) -> None:
        """Writes checkpoint k under a temporary name and moves it into place; then removes the oldest.

        Args:
          k, arrays: the hyper-iteration, and a nest of tensors.
          record: plain values; "history" has one row per hyper-iteration.
          also: writes further files into the directory that it is given.
        """
        try:
            place = self._write(k, arrays, record, also)
        except (OSError, tf.errors.OpError) as error:
            try:
                left = f"{self._places()[0]} is intact, and the next run resumes from it"
            except (OSError, IndexError):  # there is none, or the directory cannot be read either
                left = "nothing saved earlier was changed"
            raise CheckpointError(
                f"checkpoint_dir: hyper-iteration {k} could not be saved in {self.directory} ({error}); {left}. "
                f"Free some space, or restore the directory, and run again."
            ) from error
        with contextlib.suppress(OSError):  # the checkpoint is written; the next one removes what remains
            later = [other for other in self._places() if other > place]  # damaged, or the run would have resumed from them
            for old in later + [other for other in self._places() if other <= place][self._keep :]:
                self._intact.discard(old)
                files.try_to_remove(old)

    def _write(self, k: int, arrays: Nest, record: dict[str, Any], also: Callable[[Path], None] | None) -> Path:
        for name in files.names(self.directory):
            if name.startswith(DRAFT):  # left by a killed process
                files.try_to_remove(self.directory / name)
        # The directory is not recreated if it has vanished: a disk may have been unmounted, and another would fill up.
        draft = files.draft_directory(self.directory, DRAFT)
        try:
            flat = nest.flatten(arrays)
            copied = {id(leaf): np.asarray(leaf) for leaf in flat}  # from a GPU: each only once
            leaves = [copied[id(leaf)] for leaf in flat]
            numbers = _numbers(leaves)
            distinct: dict[str, Any] = {str(i): leaves[i] for i in numbers}
            with files.writing(draft / "arrays.npz") as file:
                np.savez(file, **distinct)
            if also is not None:
                also(draft)
            rest, self._pieces = history.write(draft, record["history"], self._removed_next(), self._pieces)
            split = {"rows": len(record["history"]), "history": rest, "leaves": numbers}
            content = {**record, **split, "fingerprint": self.fingerprint, "versions": versions()}
            recorded = files.write(draft / "record.json", json.dumps(content).encode())
            manifest.write(draft, {**self._pieces, "record.json": recorded, "arrays.npz": file.sha256})
            files.flush(draft)
            place = self.directory / f"ckpt-{k:08d}"
            if place.name in files.names(self.directory):
                files.remove_tree(place)
            files.rename(draft, place)
            files.flush(self.directory)
            self._intact.add(place)
        except BaseException:
            files.try_to_remove(draft)
            raise
        return place

    def load(self, template: Nest, also: Callable[[Path], None] | None = None) -> tuple[Nest, dict[str, Any]] | None:
        """The newest readable checkpoint as (arrays, record); None if there is none.

        The arrays have the structure of `template`; `also` reads the files that the caller added to a checkpoint.
        """
        for place in self._places():
            try:
                contents = _read(place)
                record = json.loads(contents["record.json"])
                self._compare(place, record)
                if also is not None:
                    also(place)
            except (manifest.DamageError, OSError, tf.errors.OpError) as error:
                warn(f"checkpoint {place} is damaged ({error}); using the one before it.")
                continue
            with np.load(io.BytesIO(contents["arrays.npz"]), allow_pickle=False) as file:
                distinct = {name: tf.constant(file[name]) for name in file.files}
            arrays = nest.pack(template, [distinct[str(i)] for i in record["leaves"]])
            rows = history.read(contents, record["history"], record["rows"])
            self._intact.add(place)
            self._pieces = {
                name: files.digest_bytes(data) for name, data in contents.items() if name.startswith(history.PREFIX)
            }
            return arrays, {**record, "history": rows}
        return None

    def clear(self) -> None:
        """Removes the checkpoints of this problem; refuses to remove those of another."""
        for place in self._places():
            with contextlib.suppress(manifest.DamageError):  # nothing worth keeping
                self._compare(place, json.loads(_read(place)["record.json"]))
        # The newest is the last to lose its name: a process that is killed half-way leaves either it or nothing.
        for place in reversed(self._places()):
            files.rename(place, files.draft_directory(self.directory, DRAFT))
        for name in files.names(self.directory):
            if name.startswith(DRAFT):
                files.remove_tree(self.directory / name)

    def unusable(self, error: OSError) -> CheckpointError:
        """The error for a directory that this process cannot lock, create or read."""
        try:
            newest = next(iter(self._places()), None)
        except OSError:
            newest = None
        advice = f"{newest} exists: copy the directory elsewhere to resume from it" if newest else "choose another"
        return CheckpointError(f"checkpoint_dir is {str(self.directory)!r}, which cannot be used ({error}); {advice}.")

    def _removed_next(self) -> Path | None:
        """The checkpoint to be removed next, whose files a new one may share; checkpoints that stay share no files."""
        place = next(iter(self._places()[self._keep - 1 :]), None)
        return place if place in self._intact else None

    def _places(self) -> list[Path]:
        names = files.names(self.directory) if self.directory.is_dir() else []
        return [self.directory / name for name in reversed(names) if PLACE.fullmatch(name)]

    def _compare(self, place: Path, record: dict[str, Any]) -> None:
        saved, now = record.get("fingerprint", {}), self.fingerprint
        same_versions = record.get("versions") == versions()
        different = [key for key in sorted({*saved, *now}) if saved.get(key) != now.get(key)]
        if not same_versions:
            different = [key for key in different if not key.startswith(GRAPH)]  # the warning below covers them
        if different:
            differences = "; ".join(_difference(key, saved.get(key), now.get(key)) for key in different)
            raise ValueError(
                f"checkpoint_dir: {place} belongs to another problem ({differences}). Nothing was changed. Use another "
                f"directory, or remove this one."
            )
        if not same_versions:
            warn(
                f"checkpoint {place} was written with {record.get('versions')}; this is {versions()}. Results may differ in "
                f"the last digits."
            )


def _difference(key: str, there: Any, now: Any) -> str:
    """What differs, with both values unless they are hashes, which say nothing to a reader."""
    if any(isinstance(value, str) and HASH.fullmatch(value) for value in (there, now)):
        return f"{key}: changed"
    return f"{key}: {there!s:.300} there, {now!s:.300} now"


def _numbers(leaves: list[np.ndarray]) -> list[int]:
    """The number under which each leaf is stored: often, the state is also the best state and part of the carry.

    Contents are compared, because the state of a mesh comes as copies; first a few bytes of them, because that is quick.
    """
    alike: dict[Any, list[int]] = {}
    numbers = []
    for i, leaf in enumerate(leaves):
        contents = _bytes(leaf)
        known = alike.setdefault((leaf.dtype, leaf.shape, contents[:64].tobytes(), contents[-64:].tobytes()), [])
        same = [j for j in known if np.array_equal(_bytes(leaves[j]), contents)]
        numbers.append(same[0] if same else i)
        known += [] if same else [i]
    return numbers


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def versions() -> dict[str, str]:
    """Versions that can change the last bits of a result, or the graph of a problem."""
    import rfho2  # not above, because it imports this module

    packages = {
        "rfho2": rfho2.__version__,
        "tensorflow": tf.__version__,
        "keras": importlib.metadata.version("keras"),
        "numpy": np.__version__,
    }
    return {**packages, "machine": platform.machine()}


def digest_arrays(arrays: Nest) -> str:
    """A hash of the contents of a nest."""
    sha = hashlib.sha256()
    for leaf in nest.flatten(arrays):
        sha.update(np.ascontiguousarray(leaf).tobytes())
    return sha.hexdigest()[:16]


def _read(place: Path) -> dict[str, bytes]:
    """The files of a checkpoint, verified; `DamageError` if one has changed."""
    try:
        verifiable = manifest.NAME in files.names(place)
    except OSError as error:
        raise manifest.DamageError(f"it cannot be read: {error}") from error
    if not verifiable:
        raise ValueError(
            f"checkpoint_dir: {place} has no {manifest.NAME}: an early version of rfho2 wrote it, or the file was removed. "
            f"Nothing shows whether it is intact. Nothing was changed. Use another directory, or remove this one."
        )
    return manifest.read(place)

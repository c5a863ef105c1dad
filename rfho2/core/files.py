"""Every file operation that a run depends on, in one place, so that a test can make each of them fail."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

system: Any = os  # tests replace it with one whose n-th operation fails
CHUNK = 1 << 20
NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
READ = os.O_RDONLY | getattr(os, "O_BINARY", 0)


def digest_bytes(data: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


class Writer(io.RawIOBase):
    """A file that is written sequentially, with the hash of everything written so far."""

    def __init__(self, descriptor: int):
        super().__init__()
        self._descriptor = descriptor
        self._sha = hashlib.sha256()

    def write(self, data: Any) -> int:
        """Writes all of the data; a single call to the operating system may write only part of it."""
        view = memoryview(data).cast("B")
        self._sha.update(view)
        unwritten = view
        while len(unwritten):
            unwritten = unwritten[system.write(self._descriptor, unwritten) :]
        return len(view)

    def fileno(self) -> int:
        """The file descriptor."""
        return self._descriptor

    def writable(self) -> bool:
        """True; the file is neither readable nor seekable."""
        return True

    @property
    def sha256(self) -> str:
        """SHA-256, in hexadecimal."""
        return self._sha.hexdigest()


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = system.open(path, flags, 0o666)
    try:
        yield descriptor
    finally:
        system.close(descriptor)


@contextlib.contextmanager
def writing(path: Path, flags: int = NEW, durable: bool = True) -> Iterator[Writer]:
    """A new file, or the end of an old one; when the block ends, its contents are on the disk, if `durable`."""
    with _opened(path, flags) as descriptor:
        yield Writer(descriptor)
        if durable:
            system.fsync(descriptor)


def write(path: Path, data: bytes, durable: bool = True) -> str:
    """Writes a file, and returns the SHA-256 of its contents."""
    with writing(path, durable=durable) as file:
        file.write(data)
    return file.sha256


def append(path: Path, size: int, data: bytes) -> int:
    """Appends after the first `size` bytes of a file, dropping what a failed attempt left there; returns the new size."""
    with writing(path, APPEND, durable=False) as file:
        whole = min(size, system.fstat(file.fileno()).st_size)  # less if the file was truncated
        system.ftruncate(file.fileno(), whole)
        return whole + file.write(data)


def read(path: Path) -> bytes:
    """The contents of a file."""
    with _opened(path, READ) as descriptor:
        return b"".join(iter(lambda: system.read(descriptor, CHUNK), b""))


def flush(path: Path) -> None:
    """Waits until a file or a directory is on the disk: a rename saved before the contents would leave damage."""
    with _opened(path, READ) as descriptor:
        system.fsync(descriptor)


def make_directory(path: Path) -> None:
    """Creates a directory and its parents, unless they exist."""
    for parent in (*reversed(path.parents), path):
        with contextlib.suppress(FileExistsError):
            if not parent.is_dir():
                system.mkdir(parent)


def draft_directory(parent: Path, prefix: str) -> Path:
    """A new, empty directory with a unique name."""
    while True:
        place = parent / (prefix + secrets.token_hex(8))
        with contextlib.suppress(FileExistsError):
            system.mkdir(place, 0o700)
            return place


def names(directory: Path) -> list[str]:
    """The names of the entries of a directory, sorted."""
    return sorted(system.listdir(directory))


def files_below(directory: Path) -> list[Path]:
    """All files in a directory and its subdirectories."""
    paths = []
    for name in names(directory):
        place = directory / name
        paths += files_below(place) if _is_directory(place) else [place]
    return paths


def rename(old: Path, new: Path) -> None:
    """Moves a file or directory atomically; an existing file is replaced."""
    system.replace(old, new)


def link(existing: Path, new: Path) -> bool:
    """Hard-links a file; False if it does not exist or its file system has no hard links."""
    try:
        system.link(existing, new)
    except OSError:
        return False
    return True


def remove_tree(place: Path) -> None:
    """Removes a directory and everything in it; after an error the remainder stays."""
    for name in names(place):
        inside = place / name
        if _is_directory(inside):
            remove_tree(inside)
        else:
            system.unlink(inside)
    system.rmdir(place)


def try_to_remove(place: Path) -> None:
    """Like `remove_tree`, but whatever cannot be removed stays."""
    with contextlib.suppress(OSError):
        remove_tree(place)


def _is_directory(place: Path) -> bool:
    return stat.S_ISDIR(system.lstat(place).st_mode)

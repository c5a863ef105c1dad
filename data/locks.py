"""Locks for cache entries: one process builds an entry while the others wait, and then read it.

`rfho2.driver.locks` does the opposite: it refuses a second process, because two runs may never share a directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None  # type: ignore[assignment]

TRIES = 1000
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # raised by file systems without locks, as on some clusters

_held: set[Path] = set()
_guard = threading.Lock()


@contextlib.contextmanager
def alone(entry: Path, wait: bool = True) -> Iterator[None]:
    """Holds `<entry>.lock` while the body runs.

    A lock avoids duplicate work and keeps a broken entry from being removed twice. It is no substitute for moving a
    finished entry into place atomically: systems and disks without locks proceed without one, and so does a second
    thread of this process.

    Args:
      wait: False raises BlockingIOError if another process holds the lock.
    """
    entry = entry.absolute()
    with _guard:
        first = entry not in _held
        _held.add(entry)
    if not first:
        yield
        return
    file = entry.with_name(entry.name + ".lock")
    descriptor = None
    try:
        descriptor = _locked(file, wait)
        yield
    finally:
        if descriptor is not None:
            file.unlink(missing_ok=True)  # while the lock is held: afterwards the file may belong to another process
            os.close(descriptor)
        with _guard:
            _held.discard(entry)


def _locked(file: Path, wait: bool) -> int | None:
    """An open descriptor that holds the lock; None where the system or the disk has no reliable locks."""
    for _ in range(TRIES if fcntl else 0):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            _lock(descriptor, file, wait)
            if _is_open_as(file, descriptor):
                return descriptor
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError) and error.errno in NO_LOCKS:
                file.unlink(missing_ok=True)
                return None
            raise
        os.close(descriptor)  # the previous holder removed the file: the name is free, or belongs to a new file
    return None


def _lock(descriptor: int, file: Path, wait: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not wait:
            raise
        print(f"{file.with_suffix('')} is being made by another process; waiting for it.", file=sys.stderr)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _is_open_as(file: Path, descriptor: int) -> bool:
    """Whether `descriptor` refers to the file that has this name now."""
    try:
        return os.path.samestat(file.stat(follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False

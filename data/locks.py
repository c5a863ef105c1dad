"""One process at a time for each entry of a cache; the others wait, and then find it made."""

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
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # what disks say that have none, as on some clusters

_held: set[Path] = set()
_guard = threading.Lock()


@contextlib.contextmanager
def alone(entry: Path, wait: bool = True) -> Iterator[None]:
    """Holds `<entry>.lock` while the body runs.

    A lock saves double work and keeps a broken entry from being removed twice. The entry has to be moved into place whole
    all the same: systems and disks without locks go on without one, and so does a second thread of this process.

    Args:
      wait: False raises BlockingIOError where another process holds it.
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
            file.unlink(missing_ok=True)  # while it is held: afterwards it may be another's
            os.close(descriptor)
        with _guard:
            _held.discard(entry)


def _locked(file: Path, wait: bool) -> int | None:
    """An open descriptor that has the lock; None where there are no locks, or none that can be relied on."""
    for _ in range(TRIES if fcntl else 0):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            _lock(descriptor, file, wait)
            if _is(file, descriptor):
                return descriptor
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError) and error.errno in NO_LOCKS:
                file.unlink(missing_ok=True)
                return None
            raise
        os.close(descriptor)  # who had it removed it: another file has this name now, or none
    return None


def _lock(descriptor: int, file: Path, wait: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not wait:
            raise
        print(f"{file.with_suffix('')} is being made by another process; waiting for it.", file=sys.stderr)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _is(file: Path, descriptor: int) -> bool:
    """Whether the file of this name is the one that is open."""
    try:
        return os.path.samestat(file.stat(follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False

"""One process at a time in a directory."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: there nothing keeps a second process out
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"


class InUseError(RuntimeError):
    """Another process works in the directory."""


@contextlib.contextmanager
def held(directory: str | os.PathLike[str], argument: str) -> Iterator[None]:
    """Keeps other processes out of a directory, which is made if it is not there.

    The system gives the lock back when its process ends, however it ends, so that none is left behind. The file stays, and
    says whose it is or was.

    Args:
      directory: what to lock.
      argument: how a user calls it, for the error.
    """
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(place / NAME, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
                raise InUseError(
                    f"{argument} is {str(place)!r}, where {owner} is at work. Wait until it has ended, or choose another "
                    f"directory. Nothing was changed."
                ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)  # which gives the lock back

"""Locks a directory, so that only one process at a time works in it."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from rfho2.core import files

try:
    import fcntl
except ImportError:  # on Windows, where nothing keeps a second process out
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"


class InUseError(RuntimeError):
    """Another process is using the directory."""


@contextlib.contextmanager
def held(directory: str | os.PathLike[str], argument: str) -> Iterator[None]:
    """Keeps other processes out of a directory, which is created if necessary.

    The operating system releases the lock when the process ends, however it ends, so that no stale lock can remain. The lock
    file stays, and names its current or last owner. `argument` is the name of the user's argument, for messages.
    """
    place = Path(directory)
    files.make_directory(place)
    descriptor = files.system.open(place / NAME, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
                raise InUseError(
                    f"{argument} is {str(place)!r}, which {owner} is using. Wait until it has finished, or choose another "
                    f"directory. Nothing was changed."
                ) from None
        with contextlib.suppress(OSError):  # on a full disk the lock holds without the name of its owner
            files.system.ftruncate(descriptor, 0)
            files.system.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            files.system.close(descriptor)  # releases the lock

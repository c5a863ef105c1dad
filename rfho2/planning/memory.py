"""Resident memory of this process, and what is free, under Linux."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

CLEAR_REFS = Path("/proc/self/clear_refs")
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of mallopt(3)


def now() -> int:
    """Bytes in use, what was freed but not given back aside."""
    _give_back()
    return _status("VmRSS")


def forget_peak() -> None:
    """`peak` counts from here on."""
    _give_back()
    CLEAR_REFS.write_text("5")


def peak() -> int:
    """The most bytes in use since `forget_peak`."""
    return _status("VmHWM")


def free() -> float:
    """Bytes of main memory that can be had: of the machine, or of the container if that has fewer."""
    try:
        free = _kilobytes(Path("/proc/meminfo"), "MemAvailable")
    except (OSError, StopIteration):
        raise ValueError('memory is None, but this system does not tell what is free; pass such as "2GB".') from None
    try:
        group = Path("/sys/fs/cgroup")
        free = min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # no container, or "max"
        pass
    return free


def keep_freed() -> bool:
    """Lets this process keep what it frees for the next call; False where its allocator cannot, which glibc's can.

    The states of reverse mode are one block. By default a large one is given back to the system after each hypergradient and
    taken again, zeroed page by page, by the next: 5 % of the time. The process stays as large as it was at its peak.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc; TypeError: Windows has no name for all that is loaded
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1))


def _status(which: str) -> int:
    return _kilobytes(Path("/proc/self/status"), which)


def _kilobytes(path: Path, which: str) -> int:
    """The bytes in a line such as `VmRSS: 123 kB`."""
    return int(next(line for line in path.read_text().splitlines() if line.startswith(which)).split()[1]) * 1024


def _give_back() -> None:
    gc.collect()
    if sys.platform == "linux":
        getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)  # glibc only

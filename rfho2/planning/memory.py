"""Resident and free memory, on Linux, and `keep_freed`, with which the process keeps the memory that it frees."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

CLEAR_REFS = Path("/proc/self/clear_refs")
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of mallopt(3)


def now() -> int:
    """Resident bytes, after returning freed memory to the system."""
    _return_freed()
    return _status("VmRSS")


def reset_peak() -> int:
    """Restarts the measurement of `peak`; returns the resident bytes, as `now`."""
    before = now()
    CLEAR_REFS.write_text("5")
    return before


def peak() -> int:
    """The largest number of resident bytes since `reset_peak`."""
    return _status("VmHWM")


def free() -> float:
    """Available bytes of main memory: those of the machine, or of the container if it has fewer."""
    try:
        free = _kilobytes(Path("/proc/meminfo"), "MemAvailable")
    except (OSError, StopIteration):
        raise ValueError(
            'memory is None, but this system does not report its free memory; pass a size such as "2GB".'
        ) from None
    try:
        group = Path("/sys/fs/cgroup")
        free = min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # no container, or "max"
        pass
    return free


def keep_freed() -> bool:
    """Makes this process keep the memory that it frees; returns False if its allocator is not glibc's, which is required.

    The states of reverse mode are one block of memory. By default a large block is returned to the system after each
    hypergradient and requested again, zeroed page by page, by the next one: 5 % of the time. The process then stays as large
    as it was at its peak.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc; TypeError: Windows has no handle for the whole process
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1))


def _status(which: str) -> int:
    return _kilobytes(Path("/proc/self/status"), which)


def _kilobytes(path: Path, which: str) -> int:
    """The bytes in a line such as `VmRSS: 123 kB`."""
    return int(next(line for line in path.read_text().splitlines() if line.startswith(which)).split()[1]) * 1024


def _return_freed() -> None:
    gc.collect()
    if sys.platform == "linux":
        getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)  # glibc only

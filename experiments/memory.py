"""Resident memory of this process, under Linux."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

from rfho2.timing import resident

CLEAR_REFS = Path("/proc/self/clear_refs")


def now() -> int:
    """Bytes in use, what was freed but not given back aside."""
    _give_back()
    return resident("VmRSS")


def forget_peak() -> None:
    """`peak` counts from here on."""
    _give_back()
    CLEAR_REFS.write_text("5")


def peak() -> int:
    """The most bytes in use since `forget_peak`."""
    return resident("VmHWM")


def _give_back() -> None:
    gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)  # glibc only

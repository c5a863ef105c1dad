"""A process keeps the memory that it frees if asked to; tested in a fresh process, because that cannot be undone."""

import subprocess
import sys
from pathlib import Path

import pytest

from rfho2.planning import memory

PROGRAM = """
import ctypes, importlib.util, sys
spec = importlib.util.spec_from_file_location("memory", sys.argv[1])
memory = importlib.util.module_from_spec(spec)
spec.loader.exec_module(memory)
if sys.argv[2] == "keep":
    assert memory.keep_freed()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
before = memory._status("VmRSS")
block = libc.malloc(100_000_000)
ctypes.memset(block, 1, 100_000_000)
libc.free(block)
print(memory._status("VmRSS") - before)
"""


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_other_allocators_are_not_told_to_keep_memory(error, monkeypatch):
    def fails(name):
        raise error

    monkeypatch.setattr(memory.ctypes, "CDLL", fails)
    assert memory.keep_freed() is False


@pytest.mark.skipif(not memory.CLEAR_REFS.exists(), reason="resident memory can be read on Linux only")
@pytest.mark.parametrize(("mode", "left"), [("keep", 1e8), ("default", 0.0)])
def test_freed_memory_is_kept_if_requested(mode, left):
    command = [sys.executable, "-c", PROGRAM, str(Path(memory.__file__)), mode]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert float(printed) == pytest.approx(left, abs=5e6)

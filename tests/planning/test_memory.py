"""What is freed is kept when that is asked for; in a process of its own, since it holds for all of one."""

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


@pytest.mark.skipif(not memory.CLEAR_REFS.exists(), reason="resident memory is read under Linux only")
@pytest.mark.parametrize(("what", "left"), [("keep", 1e8), ("usual", 0.0)])
def test_what_is_freed_is_kept_if_asked_for(what, left):
    command = [sys.executable, "-c", PROGRAM, str(Path(memory.__file__)), what]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert float(found) == pytest.approx(left, abs=5e6)

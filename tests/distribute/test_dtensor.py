"""Engines are plain ops: inputs sharded over two logical devices give the same hypergradients."""

import subprocess
import sys
from pathlib import Path

import pytest

METHODS = [
    "reverse",
    "checkpointed",
    "forward",
    "forward_many",
    "forward_chunked",
    "real_time",
    "reverse_fixed",
    "forward_fixed",
]


@pytest.mark.parametrize("mode", ["graph", pytest.param("jit", marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", METHODS)
def test_sharded_inputs_give_the_same(method, mode):
    """In a fresh process, because logical devices cannot be added to a running one."""
    command = [sys.executable, "-m", "tests.distribute.dtensor_child", method, mode]
    child = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300)
    assert child.returncode == 0, child.stderr[-3000:]
    assert child.stdout.endswith("agree\n")

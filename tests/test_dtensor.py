"""Engines are plain ops: inputs sharded over two logical devices give the same hypergradients."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("mode", ["graph", pytest.param("jit", marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", ["reverse", "forward", "forward_many", "real_time", "reverse_fixed", "forward_fixed"])
def test_sharded_inputs_give_the_same(method, mode):
    """In a fresh process, because logical devices cannot be added to a running one."""
    command = [sys.executable, "-m", "tests.dtensor_child", method, mode]
    child = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=300)
    assert child.returncode == 0, child.stderr[-3000:]
    assert child.stdout.endswith("agree\n")

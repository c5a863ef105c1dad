"""A contestant in JAX that computes in a separate process."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from data.errors import DataError
from experiments.benchmarks.jax_worker import ANSWER
from experiments.benchmarks.peer_case import InJax


class RemoteJax:
    """A hypergradient that another process computes; `seconds` is how long the last call took there.

    Args:
      command: what runs the other Python.
      contestant, arrays: what to compute, and the file with its inputs.
      precision: of JAX's matrix products.
    """

    def __init__(self, command: str, contestant: InJax, arrays: Path, precision: str):
        words = [*shlex.split(command), "-m", "experiments.benchmarks.jax_worker"]
        environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # or JAX takes most of the GPU's memory
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(words, **pipes, text=True, env=environment)
        self.seconds = float("nan")
        described = self._ask(
            build=contestant.computation, arrays=str(arrays), options=contestant.options, precision=precision
        )
        print(f"{contestant.computation} in JAX: {described}", flush=True)

    def __call__(self, argument: np.ndarray) -> np.ndarray:
        answer = self._ask(call=np.asarray(argument).tolist())
        self.seconds = answer["seconds"]
        return np.asarray(answer["values"], np.float32)

    def peak(self) -> int | None:
        """The largest number of bytes used on the device, if JAX knows."""
        return self._ask(peak=True)

    def close(self) -> None:
        """Ends the process."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()

    def _ask(self, **question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended, and will not answer either
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                return json.loads(line.removeprefix(ANSWER))
        raise DataError(f"the process with JAX ended with code {self._process.wait()}; its errors are above.")

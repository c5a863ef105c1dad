"""The core tests in fresh environments with the oldest and the newest versions: `make matrix`.

python -m tests.matrix                            # every corner whose Python is on this machine
python -m tests.matrix --corners "newest, Python 3.12" --suite tests/core
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parents[1]
ENVIRONMENTS = HERE / ".venv-matrix"
TOOLS = ("pytest", "hypothesis", "scipy", "absl-py", "matplotlib")
SHOWN = ("tensorflow", "keras", "numpy", "scipy", "tqdm")
SUITE = (
    "tests/core", "tests/constraints", "tests/dynamics", "tests/test_batches.py", "tests/hypergradients/test_golden.py",
    "tests/hypergradients/test_engines.py",
    "tests/hypergradients/test_implicit.py", "tests/hypergradients/test_real_time.py",
    "tests/monitor", "tests/keras_bridge/test_real_time_tuner.py",
)  # fmt: skip


class Corner(NamedTuple):
    """Versions that are tried together; pip chooses the others."""

    name: str
    python: str
    pins: tuple[str, ...]


# What requirements.txt begins with.
OLDEST = ("tensorflow==2.16.*", "keras==3.6.*", "numpy==1.26.*", "tqdm==4.60.*", "scipy==1.11.*", "matplotlib==3.8.*")
CORNERS = (
    Corner("oldest, Python 3.11", "3.11", OLDEST),
    Corner("TensorFlow 2.18, Python 3.12", "3.12", ("tensorflow==2.18.*", "keras==3.8.*")),
    Corner("TensorFlow 2.20, Python 3.13", "3.13", ("tensorflow==2.20.*",)),
    Corner("newest, Python 3.11", "3.11", ()),
    Corner("newest, Python 3.12", "3.12", ()),
    Corner("newest, Python 3.13", "3.13", ()),
)


def interpreter(version: str) -> str | None:
    """A Python of this version that runs: one that pyenv keeps, or on the path (where pyenv's own may not run)."""
    versions = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python"))
    candidates = [*map(str, reversed(versions)), shutil.which(f"python{version}")]
    return next((python for python in candidates if python and not subprocess.call([python, "-c", ""])), None)


def run(corner: Corner, suite: list[str]) -> str:
    """Makes the environment, runs the tests, and returns a row of the table."""
    python = interpreter(corner.python)
    if python is None:
        return f"| {corner.name} | {corner.python} | {' | '.join('-' for _ in SHOWN)} | not on this machine |"
    place = ENVIRONMENTS / re.sub(r"\W+", "_", corner.name)
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([python, "-m", "venv", place], check=True)
    python, began = str(place / "bin" / "python"), time.perf_counter()
    installed = subprocess.run([python, "-m", "pip", "install", "--quiet", HERE, *corner.pins, *TOOLS], check=False)
    seconds = time.perf_counter() - began
    versions = [_version(python, name) for name in SHOWN]
    if installed.returncode:
        outcome = "cannot be installed"
    else:
        command = [python, "-m", "pytest", "-m", "not slow", "-p", "no:cacheprovider", *suite]
        completed = subprocess.run(command, cwd=HERE, check=False, text=True, stdout=subprocess.PIPE)
        outcome = next((line for line in reversed(completed.stdout.splitlines()) if line.strip()), "").strip("= ")
        if completed.returncode:
            print(completed.stdout[-10_000:])
    shutil.rmtree(place)
    return f"| {corner.name} | {corner.python} | {' | '.join(versions)} | {outcome}; installed in {seconds:.0f} s |"


def _version(python: Path, name: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return subprocess.run([python, "-c", code], check=False, text=True, capture_output=True).stdout.strip() or "-"


def main() -> int:
    """Prints the table; fails if a corner does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--corners", nargs="*", default=[corner.name for corner in CORNERS])
    parser.add_argument("--suite", nargs="*", default=list(SUITE))
    arguments = parser.parse_args()
    lines = [f"| corner | Python | {' | '.join(SHOWN)} | tests |", "|---" * (3 + len(SHOWN)) + "|"]
    for corner in CORNERS:
        if corner.name in arguments.corners:
            lines.append(run(corner, arguments.suite))
            print(lines[-1], flush=True)
    print("\n".join(lines))
    return int(any("failed" in line or "error" in line or "cannot" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())

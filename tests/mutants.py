"""Do the tests notice a mistake? Applies random mutations to the library, one at a time: `make mutants`.

`mutants.json` lists them. Each is a text that occurs once in its file, and the text to put in its place: another operator,
another constant, a dropped term, swapped arguments, an index that is off by one. They were drawn at random from the syntax
tree, a fixed number for each folder. A mutant is caught if the quick tests of its folder fail.

    python -m tests.mutants --jobs=2
    python -m tests.mutants --only=3,17     # the ones to look at again
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
AREAS = {
    "core": ["tests/core", "tests/test_batches.py", "tests/hypergradients", "tests/dynamics"],
    "dynamics": ["tests/dynamics", "tests/hypergradients"],
    "hypergradients": ["tests/hypergradients", "tests/planning", "tests/core"],
    "constraints": ["tests/constraints"],
    "driver": ["tests/driver"],
}
WANTED = 0.95  # share that has to be caught
TIMEOUT = 600  # seconds; a mutant that makes a loop endless counts as caught


class Mutant(NamedTuple):
    """One replacement; `equivalent` gives the reason where no test can see it."""

    area: str
    file: str
    old: str
    new: str
    equivalent: str = ""


def read(path: Path) -> list[Mutant]:
    """The mutants, each of which has to apply exactly once."""
    mutants = [Mutant(**entry) for entry in json.loads(path.read_text())]
    for number, mutant in enumerate(mutants):
        count = (ROOT / mutant.file).read_text().count(mutant.old)
        if count != 1:
            raise ValueError(f"mutant {number}: {mutant.old!r} occurs {count} times in {mutant.file}; it has to occur once.")
    return mutants


def caught(mutant: Mutant, copy: Path) -> str:
    """The first test that fails with the mutant in a copy of the project; empty if none does."""
    file = copy / mutant.file
    original = file.read_text()
    file.write_text(original.replace(mutant.old, mutant.new))
    # Doctests of the file first: they are the quickest.
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", mutant.file]
    environment = os.environ | {"PYTHONPATH": str(copy), "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        run = subprocess.run(
            [*command, *AREAS[mutant.area]], cwd=copy, env=environment, capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    finally:
        file.write_text(original)
    if run.returncode == 0:
        return ""
    if run.returncode not in (1, 2):  # failed tests, or a module that cannot be imported
        raise RuntimeError(f"pytest ended with exit code {run.returncode}:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0][:150] if failed else f"exit code {run.returncode}"


def copies(number: int, directory: Path) -> queue.Queue[Path]:
    """Copies of the project's tracked files, for tests that run at the same time."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    free: queue.Queue[Path] = queue.Queue()
    for i in range(number):
        for name in filter(None, tracked.split("\0")):
            target = directory / str(i) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        free.put(directory / str(i))
    return free


def main() -> None:
    """Runs the mutants and prints what caught each; exit code 1 if too few were caught."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="mutants tested at the same time")
    parser.add_argument("--only", default="", help="numbers of mutants, with commas between them")
    arguments = parser.parse_args()
    mutants = read(Path(__file__).with_name("mutants.json"))
    chosen = [int(number) for number in arguments.only.split(",") if number] or range(len(mutants))
    with tempfile.TemporaryDirectory() as directory:
        free = copies(arguments.jobs, Path(directory))

        def run(number: int) -> bool:
            mutant, copy, began = mutants[number], free.get(), time.perf_counter()
            try:
                by = caught(mutant, copy)
            finally:
                free.put(copy)
            verdict = by or (f"equivalent: {mutant.equivalent}" if mutant.equivalent else "SURVIVED")
            took = f"{time.perf_counter() - began:4.0f} s"
            print(f"{number:3} {took}  {mutant.file}: {mutant.old}  ->  {mutant.new}\n           {verdict}", flush=True)
            return bool(by)

        with ThreadPoolExecutor(arguments.jobs) as pool:
            results = list(pool.map(run, chosen))
    counted = [by for number, by in zip(chosen, results, strict=True) if by or not mutants[number].equivalent]
    print(f"{sum(counted)} of {len(counted)} caught, {len(results) - len(counted)} equivalent mutants aside")
    sys.exit(sum(counted) < WANTED * len(counted))


if __name__ == "__main__":
    main()

"""What a release promises, each command in a fresh clone of the last commit: its result, and its seconds.

python -m tests.promises               # all of them, one after the other, for hours
python -m tests.promises demo wheels   # some of them

Each adds a row to build/promises.jsonl, and its output to build; a command that fails gets a row, too. pip's cache is not
used, so that the times are those of a machine that has never seen the project.
"""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.matrix import interpreter
from tests.release import HERE

ROWS = HERE / "build" / "promises.jsonl"
MAKE = ("demo", "test", "check-all", "docs", "mutants", "matrix", "soak", "dist")
PYTHONS = ("3.11", "3.12", "3.13")
COUNTS = re.compile(r"\b(\d+) (passed|failed|skipped|errors?)\b")


def wheels(clone: Path) -> str:
    """Shell commands: the wheel on every Python, with the programs of README and docs/keras.md, outside the checkout."""
    outside = clone.parent / "outside"
    outside.mkdir()
    for page in ("README.md", "docs/keras.md"):
        program = re.findall(r"(?s)```python\n(.*?)```", (clone / page).read_text())[0]
        (outside / f"{Path(page).stem}.py").write_text(program)
    lines = ["set -ex", "make .venv/.tools", "make dist || test -e dist/*.whl", f"cd {outside}"]
    for version in PYTHONS:
        lines.append(f"{interpreter(version) or f'python{version}'} -m venv {version}")
        lines.append(f"{version}/bin/python -m pip install --quiet {clone}/dist/*.whl")
        lines += [f"{version}/bin/python {program.name}" for program in sorted(outside.iterdir())]
    return "\n".join([*lines, f"echo {', '.join(PYTHONS)}: installed, and both programs run"])


def summary(output: str) -> str:
    """How many tests passed, summed over all calls of pytest; without any, the last line."""
    lines = [line.strip("= ") for line in output.replace("\r", "\n").splitlines() if line.strip("= ")]
    counts: collections.Counter[str] = collections.Counter()
    for line in (line for line in lines if re.search(r" in \d[\d.]*s\b", line)):
        for number, kind in COUNTS.findall(line):
            counts[kind] += int(number)
    return ", ".join(f"{number:,} {kind}" for kind, number in counts.items()) or (lines[-1][:120] if lines else "")


def run(name: str) -> bool:
    """Runs a command in a clone and adds its row; whether it succeeded."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        clone = Path(place) / "clone"
        subprocess.run(["git", "clone", "--quiet", HERE, clone], check=True)
        commit = subprocess.check_output(["git", "log", "-1", "--format=%h"], cwd=clone, text=True).strip()
        command = wheels(clone) if name == "wheels" else f"make {name}"
        began = time.perf_counter()
        ROWS.parent.mkdir(exist_ok=True)
        with (ROWS.parent / f"{name}.log").open("w+") as log:  # it can be read while the command runs
            returned = subprocess.call(
                ["bash", "-c", command],
                cwd=clone,
                env=os.environ | {"PIP_NO_CACHE_DIR": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            log.seek(0)
            output = log.read()
        seconds = round(time.perf_counter() - began)
    result = ("" if returned == 0 else "FAILED: ") + summary(output)
    with ROWS.open("a") as rows:
        rows.write(json.dumps({"command": name, "commit": commit, "result": result, "seconds": seconds}) + "\n")
    return returned == 0


def table() -> str:
    """All rows, in the order in which they were made."""
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    lines = [f"| `{r['command']}` | {r['commit']} | {r['result']} | {r['seconds'] / 60:.1f} min |" for r in rows]
    return "\n".join(["| command | commit | result | time |", "|---|---|---|---|", *lines])


if __name__ == "__main__":
    done = [run(name) for name in sys.argv[1:] or [*MAKE, "wheels"]]
    print(table())
    sys.exit(0 if all(done) else 1)

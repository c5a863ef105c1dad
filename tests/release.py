"""The files of a release: two builds with the same hash, checked metadata, a list of what is inside, known vulnerabilities.

python -m tests.release        # `make dist`; writes dist/ and build/
python -m tests.release lock   # `make lock`; updates requirements.lock and tools.lock
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

HERE = Path(__file__).parents[1]
DIST, BUILD = HERE / "dist", HERE / "build"
LIBRARY = BUILD / "library.txt"  # what the library requires, in the versions of requirements.lock
BILL = BUILD / "rfho2.cdx.json"
LOCK = (
    *("pip", "compile", "setup.py", "--universal", "--python-version", "3.11", "--generate-hashes"),
    *("--quiet", "--no-header", "--no-annotate", "--no-emit-index-url"),
)


class NotCleanError(Exception):
    """What keeps a release from being called clean."""


def tool(*arguments: Any, cwd: Path = HERE, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Runs a module of this environment; a failure ends the release."""
    settings = {"check": True, "text": True, **settings}
    return subprocess.run([sys.executable, "-m", *map(str, arguments)], cwd=cwd, **settings)


def committed_at(checkout: Path) -> str:
    """The seconds of the last commit: files in the wheel get this date, whenever it is built."""
    return subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=checkout, text=True).strip()


def build(checkout: Path, output: Path) -> None:
    """The wheel and the source distribution, with the tools of tools.lock."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": committed_at(checkout)}
    tool("build", "--quiet", "--no-isolation", "--outdir", output, cwd=checkout, env=environment)


def digest(folder: Path) -> str:
    """The SHA-256 of the wheel in a folder."""
    (wheel,) = folder.glob("*.whl")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def same_wheel_elsewhere() -> str:
    """Builds a clone of the last commit in another folder; returns the hash, which has to be that of dist/."""
    with tempfile.TemporaryDirectory() as place:
        clone = Path(place) / "clone"
        subprocess.run(["git", "clone", "--quiet", HERE, clone], check=True)
        build(clone, Path(place) / "dist")
        here, there = digest(DIST), digest(Path(place) / "dist")
    if here != there:
        raise NotCleanError(f"The wheel has the hash {here}, that of a clone of the last commit {there}. Commit first.")
    return here


def lock() -> None:
    """The newest versions for `requirements.lock`, and for the tools of docs and releases."""
    tool("uv", *LOCK, "--upgrade", "--extra", "dev", "--output-file", "requirements.lock")
    extras = ["--extra", "docs", "--extra", "release", "--constraint", "requirements.lock"]
    tool("uv", *LOCK, "--upgrade", *extras, "--output-file", "tools.lock")


def bill_of_materials(version: str) -> int:
    """Writes what the library consists of, as CycloneDX; returns the number of packages."""
    tool("uv", *LOCK, "--constraint", "requirements.lock", "--output-file", LIBRARY)
    tool("cyclonedx_py", "requirements", LIBRARY, "--output-reproducible", "--output-file", BILL)
    bill = json.loads(BILL.read_text())
    about = {"type": "library", "name": "rfho2", "version": version, "purl": f"pkg:pypi/rfho2@{version}"}
    bill.setdefault("metadata", {})["component"] = about
    BILL.write_text(json.dumps(bill, indent=2) + "\n")
    return len({component["name"] for component in bill["components"]})


def audit() -> str:
    """Asks a public database for vulnerabilities of the packages, in the versions for this Python and system."""
    command = ["pip_audit", "--requirement", LIBRARY, "--require-hashes", "--disable-pip", "--format", "json"]
    asked = tool(*command, check=False, capture_output=True)
    return verdict(asked.stdout, asked.stderr, {pin.name for pin in pins(LIBRARY.read_text()) if applies(pin)})


def pins(locked: str) -> list[Requirement]:
    """The entries of a file of locked requirements."""
    return [Requirement(line.removesuffix("\\")) for line in re.findall(r"(?m)^[\w.-]+==.*", locked)]


def applies(pin: Requirement) -> bool:
    """Whether it is for this Python and system."""
    return pin.marker is None or pin.marker.evaluate()


def verdict(answer: str, complaint: str, wanted: set[str]) -> str:
    """A sentence, if each of these packages was audited and none is vulnerable."""
    if not answer.strip():
        raise NotCleanError(f"The vulnerabilities could not be looked up: {complaint.strip()[-500:]}")
    packages = json.loads(answer)["dependencies"]
    reasons = dict.fromkeys(wanted - {package["name"] for package in packages}, "no answer")
    reasons |= {package["name"]: package["skip_reason"] for package in packages if "skip_reason" in package}
    if reasons or not packages:
        why = next(iter(reasons.values()), "the answer has no packages")
        raise NotCleanError(
            f"{len(reasons)} of {len(wanted)} packages were NOT audited: {why}. Is the database of vulnerabilities "
            f"reachable from this machine?"
        )
    vulnerable = [f"{p['name']} {p['version']}: {', '.join(v['id'] for v in p['vulns'])}" for p in packages if p["vulns"]]
    if vulnerable:
        raise NotCleanError(f"Known vulnerabilities: {'; '.join(vulnerable)}.")
    return f"No known vulnerabilities in {len(packages)} packages, as locked for this Python and system."


def main() -> None:
    """Prints one line for each part; the last ones may say why the release is not clean."""
    for folder in (DIST, BUILD):
        shutil.rmtree(folder, ignore_errors=True)
    build(HERE, DIST)
    tool("twine", "check", "--strict", *DIST.iterdir())
    BUILD.mkdir(exist_ok=True)
    (wheel,) = DIST.glob("*.whl")
    print(f"{bill_of_materials(wheel.name.split('-')[1])} packages in {BILL.relative_to(HERE)}")
    problems = []
    for part in (same_wheel_elsewhere, audit):
        try:
            print(f"{part.__name__.replace('_', ' ')}: {part()}")
        except NotCleanError as problem:
            problems.append(str(problem))
    if problems:
        raise SystemExit("\n".join(problems))


if __name__ == "__main__":
    lock() if sys.argv[1:] == ["lock"] else main()

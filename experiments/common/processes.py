"""Binaries of this package in child processes: a fresh process has no leftover memory, compiled code or warm caches."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


def command(name: str, *flags: str) -> list[str]:
    """The arguments that run `python -m experiments.NAME FLAGS` with this interpreter."""
    return [sys.executable, "-m", f"experiments.{name}", *flags]


def run(name: str, *flags: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a binary and waits for it; its output goes where ours does, unless options of `subprocess.run` redirect it."""
    sys.stdout.flush()  # otherwise the child's lines would precede ours in a file
    return subprocess.run(command(name, *flags), check=check, text=True, **options)


def last_line(name: str, *flags: str, **options: Any) -> str:
    """Runs a binary and returns the last line that it prints; libraries may print other lines before it."""
    return run(name, *flags, stdout=subprocess.PIPE, **options).stdout.splitlines()[-1]


def start(name: str, *flags: str, log: Path) -> subprocess.Popen[bytes]:
    """Starts a binary without waiting for it; appends what it prints to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(command(name, *flags), stdout=file, stderr=file)


def failure(code: int, stderr: str) -> str:
    """Why a process failed: the signal that ended it, or the last line that it printed."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}" + (", out of memory?" if -code == signal.SIGKILL else "")
    return next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), f"exit code {code}")[:300]

"""Binaries in child processes: how they are started, and why they failed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from experiments.common import processes


@pytest.fixture
def script(monkeypatch):
    """Replaces the binaries by small scripts: importing TensorFlow would take longer than everything else."""

    def use(code):
        monkeypatch.setattr(processes, "command", lambda name, *flags: [sys.executable, "-c", code, name, *flags])

    return use


def test_a_binary_is_run_by_this_interpreter() -> None:
    assert processes.command("soak", "--kills=1") == [sys.executable, "-m", "experiments.soak", "--kills=1"]


def test_the_last_line_is_returned(script) -> None:
    script("import os, sys; print('a warning'); print(os.environ['PLACE'], *sys.argv[1:])")
    assert processes.last_line("name", "--flag=1", env={"PLACE": "here"}) == "here name --flag=1"


def test_a_failure_is_raised_unless_it_is_asked_for(script) -> None:
    script("import sys; sys.exit('no more memory')")
    with pytest.raises(subprocess.CalledProcessError):
        processes.run("name", stderr=subprocess.DEVNULL)
    done = processes.run("name", check=False, capture_output=True)
    assert processes.failure(done.returncode, done.stderr) == "no more memory"


def test_a_started_binary_appends_to_its_log(script, tmp_path) -> None:
    log = tmp_path / "new" / "log.txt"
    for word in ("first", "second"):
        script(f"print({word!r})")
        assert processes.start("name", log=log).wait() == 0
    assert log.read_text() == "first\nsecond\n"


def test_why_a_process_failed() -> None:
    assert processes.failure(-9, "") == "killed by SIGKILL, out of memory?"
    assert processes.failure(-15, "") == "killed by SIGTERM"
    assert processes.failure(1, "Traceback\nResourceExhaustedError: no more\n\n") == "ResourceExhaustedError: no more"
    assert processes.failure(3, "") == "exit code 3"

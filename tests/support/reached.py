"""Which tests reach which lines of the library: `recorded` runs them with this module as a plugin of pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import coverage
import pytest

FOLDER = "RFHO2_REACHED"  # the environment variable that names the folder to write to
TESTS = ("-m", "not slow", "tests", "rfho2", "--ignore=tests/experiments", "--ignore=tests/data")


class Reached(NamedTuple):
    """The seconds of each test, and for each line of each file the tests that run it."""

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[str]]]


def recorded(place: Path, target: Path, processes: int) -> Reached:
    """Runs the quick tests of the library in a copy of the project, unless the file `target` has what they reach."""
    if not target.exists():
        print("Recording which tests reach which lines ...", flush=True)
        whole = Reached({}, {})
        with tempfile.TemporaryDirectory() as directory:
            command = [sys.executable, "-m", "pytest", "-n", str(processes), "--dist", "loadfile"]
            command += ["-p", __name__, "-p", "no:cacheprovider"]
            environment = os.environ | {"PYTHONPATH": str(place), "TF_CPP_MIN_LOG_LEVEL": "3", FOLDER: directory}
            subprocess.run([*command, *TESTS], cwd=place, env=environment, check=True)
            for path in Path(directory).iterdir():
                part = Reached(**json.loads(path.read_text()))
                whole.seconds.update(part.seconds)
                for file, lines in part.lines.items():
                    for line, tests in lines.items():
                        whole.lines.setdefault(file, {}).setdefault(line, []).extend(tests)
        target.write_text(json.dumps(whole._asdict()))
    return Reached(**json.loads(target.read_text()))


class Recorder:
    """Records the lines that each test runs and its seconds, in one process."""

    def __init__(self, root: Path, target: Path) -> None:
        self.root, self.target = root, target
        self.seconds: dict[str, float] = {}
        self.lines = coverage.Coverage(data_file=None, source=[str(root / "rfho2")], config_file=False)
        self.lines.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """One test, with the fixtures that it is the first to need."""
        self.lines.switch_context(item.nodeid)
        began = time.perf_counter()
        result = yield
        self.seconds[item.nodeid] = time.perf_counter() - began
        return result

    def pytest_unconfigure(self) -> None:
        """Writes what was recorded."""
        self.lines.stop()
        data = self.lines.get_data()
        reached = {
            str(Path(file).relative_to(self.root)): {
                line: [test for test in tests if test] for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        (self.target / f"{os.getpid()}.json").write_text(json.dumps({"seconds": self.seconds, "lines": reached}))


def pytest_configure(config: pytest.Config) -> None:
    """Records in the processes that run tests."""
    if hasattr(config, "workerinput") or not config.option.numprocesses:
        config.pluginmanager.register(Recorder(config.rootpath, Path(os.environ[FOLDER])))

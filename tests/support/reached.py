"""Which tests reach which lines of the library: a pytest plugin of `tests.mutants`, which says where to write it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

FOLDER = "RFHO2_REACHED"  # the environment variable that names the folder to write to


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

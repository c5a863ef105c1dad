"""Fixtures for all tests, and a table of what each folder costs."""

import collections
import gc
import importlib
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.support import graphs

BUDGETS = Path(__file__).parent.parent / "CONTRIBUTING.md"  # | `tests/core` | 60 |
MOST_MEMORY = 0.4 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # bytes of one of two test processes
SECONDS: collections.Counter[str] = collections.Counter()


def pytest_configure(config: pytest.Config) -> None:
    """Settings of Python and TensorFlow.

    Ctrl-C is received in background jobs, too, where a shell has it ignored. On a GPU: memory as it is needed, for several
    processes, and products as exact as NumPy's. For the quick tests: no optimisation of graphs, which takes time and which
    `make check-all` has.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if shutil.which("nvidia-smi"):
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        importlib.import_module("tensorflow").config.experimental.enable_tensor_float_32_execution(False)
    if config.option.markexpr == "not slow" and (
        hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None)
    ):
        graphs.plain()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds up the seconds of each folder, over all processes."""
    place = report.nodeid.partition("::")[0].split("/")
    SECONDS["/".join(place[:2]) if place[0] == "tests" and len(place) > 2 else place[0]] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says what the folders took, beside what CONTRIBUTING.md allows; only of the quick tests as a whole."""
    if config.option.markexpr == "not slow" and config.args_source is not config.ArgsSource.ARGS:
        rows = [line.split("|") for line in BUDGETS.read_text().splitlines() if line.startswith("| `")]
        allowed = {row[1].strip(" `"): row[2].strip() for row in rows}
        for folder, seconds in SECONDS.most_common():
            terminalreporter.write_line(f"{seconds:6.0f} s of {allowed.get(folder, '-'):>4}  {folder}")
        terminalreporter.write_line(f"{SECONDS.total():6.0f} s in all, of both processes")


@pytest.fixture(autouse=True)
def no_global_seed():
    """Tests build models with `keras.utils.set_random_seed`, which would also seed the shuffles of all later tests."""
    yield
    if "tensorflow" in sys.modules:  # the tests of the readers do without
        sys.modules["tensorflow"].random.set_seed(None)


@pytest.fixture(autouse=True, scope="module")
def little_garbage_collection():
    """Leaves graphs and compiled functions in memory while there is room: to free them takes a tenth of the time."""
    gc.disable()
    yield
    if _memory() > MOST_MEMORY:
        gc.unfreeze()
        gc.collect()
    gc.freeze()


def _memory() -> int:
    """Bytes that the process holds; without /proc (macOS) the most it has ever held, which is there in bytes."""
    if Path("/proc/self/statm").exists():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

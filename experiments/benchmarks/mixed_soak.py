"""A run that is repeatedly killed, terminated or stopped, or left without a running clock or disk space."""

from __future__ import annotations

import collections
import contextlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from data.errors import DataError
from experiments.benchmarks import soak_checks
from experiments.benchmarks.soak import EARLY, POLL, Config, finish, fresh, rows
from experiments.common import processes

STILL = 0.25  # fraction of the starts with a clock that stands still
DISK = 1_000_000_000  # bytes: a disk with more free space is not filled
NOTICED = 300.0  # seconds within which a full disk or a signal has to end the run, which may still be compiling
KINDS = ("kill", "terminate", "full disk", "stop")


class Case(NamedTuple):
    """A binary, its flags, and where below its output directory the run itself writes."""

    binary: str
    flags: tuple[str, ...]
    run: str


CASES = {
    "hyper_cleaning": Case("data_hyper_cleaning", ("--notensorboard",), "runs/DH-1000-seed-0"),
    "real_time": Case("real_time_digits", ("--hidden=30",), "."),
}


class Soak:
    """One run with disturbances.

    Args:
      case: what runs.
      output: where it writes; on a disk that is small enough to be filled.
      iterations: its hyper-iterations.
      seed: of the disturbances and their moments.
    """

    def __init__(self, case: Case, output: Path, iterations: int, seed: int):
        self.case, self.output, self.iterations = case, output, iterations
        self.done: collections.Counter[str] = collections.Counter()
        self.log = Path(tempfile.mkdtemp(prefix="soak-")) / "log.txt"  # on another disk, which is never full
        self._rng = random.Random(seed)
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, disturbances: int) -> None:
        """Disturbs the run at moments spread over its length, and then lets it finish."""
        goals = sorted(self._rng.randrange(self.iterations) for _ in range(disturbances))
        try:
            for goal in tqdm(goals, unit="disturbance"):
                self._reach(goal)
                self._disturb(self._rng.choice(KINDS))
            if self._child is not None:
                self._child.wait()
            self._child = self.start(still=False)
            finish(self._child, self.output, self.log)
        finally:
            if self._child is not None:
                self._child.kill()
                self._child.wait()

    def start(self, still: bool) -> subprocess.Popen[bytes]:
        """Starts the run, or resumes it."""
        flags = [f"--output_dir={self.output}", f"--hyper_iterations={self.iterations}", *self.case.flags]
        name = self.case.binary
        if still:
            self.done["still clock"] += 1
            name, flags = "benchmarks.still_clock", [str(self._rng.uniform(0, 1e5)), f"experiments.{name}", *flags]
        return processes.start(name, *flags, log=self.log)

    def _reach(self, goal: int) -> None:
        """Waits until the run has written row `goal`, or for a moment of its start; starts it if it is not running."""
        early = self._child is None and self._rng.random() < EARLY
        if self._child is None:
            self._child = self.start(self._rng.random() < STILL)
        while not early and rows(self.output / self.case.run) <= goal and self._child.poll() is None:
            time.sleep(POLL)
        time.sleep(self._rng.uniform(0, 5) if early else self._rng.uniform(0, 0.3))

    def _disturb(self, kind: str) -> None:
        child = self._child
        assert child is not None
        if child.poll() is None:
            self.done[kind] += 1
        if kind == "stop":
            child.send_signal(signal.SIGSTOP)
            time.sleep(self._rng.uniform(1, 5))
            child.send_signal(signal.SIGCONT)
            return
        with full(self.output) if kind == "full disk" else contextlib.nullcontext():
            if kind != "full disk":
                child.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
            try:
                child.wait(NOTICED)
            except subprocess.TimeoutExpired:
                raise DataError(f"{kind}: the run in {self.output} did not end; see {self.log}.") from None
        self._child = None


@contextlib.contextmanager
def full(place: Path) -> Iterator[None]:
    """Fills the disk of a directory, and makes space again."""
    filler = place.parent / "filler"
    try:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass
        yield
    finally:
        filler.unlink(missing_ok=True)


def run_mixed(config: Config) -> bool:
    """Makes a run with disturbances and one without, and prints how they differ; returns whether nothing was lost."""
    case, whole, mixed = CASES[config.case], Path(config.output_dir) / "whole", fresh(config, "mixed")
    mixed.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(mixed.parent).free
    if free > DISK:
        raise DataError(
            f"--output_dir is {config.output_dir}, on a disk with {free / 1e9:.0f} GB of free space, which this test would "
            f"fill; make a small one (mount -t tmpfs -o size=200m tmpfs /mnt/soak) and choose a directory on it."
        )
    undisturbed = Soak(case, whole, config.hyper_iterations, config.seed)
    finish(undisturbed.start(still=False), whole, undisturbed.log)  # at once, if it exists already
    soak = Soak(case, mixed, config.hyper_iterations, config.seed)
    began = time.monotonic()
    soak.run(config.kills)
    wrong = soak_checks.differences(mixed, whole, config.hyper_iterations, case.run, tensorboard=config.case == "real_time")
    if b"Traceback" in soak.log.read_bytes():
        wrong.append(f"a process ended with a traceback, see {soak.log}")
    events = ", ".join(f"{number} x {kind}" for kind, number in sorted(soak.done.items()))
    minutes = (time.monotonic() - began) / 60
    print(f"{config.case}, {minutes:.0f} minutes, {config.hyper_iterations} hyper-iterations (seed {config.seed}): {events}")
    print("; ".join(wrong) or "nothing was lost: the same bits as undisturbed")
    return not wrong

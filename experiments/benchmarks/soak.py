"""Runs that are killed and resumed, and long runs that are monitored; `soak_checks` compares what they leave behind."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from data.errors import DataError
from experiments.benchmarks import soak_checks
from experiments.common import processes
from experiments.common.config import setting
from rfho2.driver.iteration import MOST

CHECKPOINT_EVERY = 20  # hyper-iterations, where several of them share a call
EARLY = 0.2  # fraction of the kills that come while the process is still starting
POLL, WATCH = 0.002, 0.2  # seconds between two checks of the CSV log, and of the process
MEMORY, FILES, TIME = "resident memory, MB", "open files", "seconds per hyper-iteration"
LIMITS = {MEMORY: 1.02, FILES: 1.0, TIME: 1.1}  # of the ratio of the last quarter to the second; times are noisy

Samples = list[tuple[int, float]]
"""(hyper-iteration, number)."""


@dataclasses.dataclass(frozen=True)
class Config:
    """What is run."""

    part: str = setting("kills", "Which test to run.", choices=["kills", "calls", "long", "mixed"])
    case: str = setting("real_time", "What runs in the mixed test.", choices=["real_time", "hyper_cleaning"])
    output_dir: str = setting("results/soak", "Where the runs write; those of an earlier soak have to be removed first.")
    hyper_iterations: int = setting(300, "Hyper-iterations of the run.", at_least=4)
    kills: int = setting(200, "Number of kills, or of disturbances in the mixed test.", at_least=0)
    hidden: int = setting(30, "Units of the network.", at_least=1)
    seed: int = setting(0, "Seed of the moments of the kills.", at_least=0)


class Growth(NamedTuple):
    """Medians of a quantity over the second and over the last quarter of a run."""

    second: float
    last: float

    @property
    def ratio(self) -> float:
        """1 if the quantity does not grow."""
        return self.last / self.second


def start(output: Path, iterations: int, settings: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts the run, or resumes it."""
    flags = [f"--output_dir={output}", f"--hyper_iterations={iterations}", *settings]
    return processes.start("real_time_digits", *flags, log=output / "log.txt")


def finish(child: subprocess.Popen[bytes], output: Path, log: Path | None = None) -> None:
    """Waits for the end of a run that is not killed."""
    if child.wait() != 0:
        raise DataError(f"the run in {output} ended with {child.returncode}; see {log or output / 'log.txt'}.")


def rows(output: Path) -> int:
    """Number of hyper-iterations in the CSV log, which is written shortly before the checkpoint."""
    path = output / "history.csv"
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def kill(child: subprocess.Popen[bytes], output: Path, goal: int | None, wait: float) -> bool:
    """Sends SIGKILL `wait` seconds after the process has written row `goal`; False if the process ended by itself before.

    Args:
      goal: None counts the seconds from now.
    """
    while goal is not None and rows(output) <= goal and child.poll() is None:
        time.sleep(POLL)
    time.sleep(wait)
    child.send_signal(signal.SIGKILL)
    return child.wait() == -signal.SIGKILL


def killed_run(output: Path, iterations: int, kills: int, settings: Sequence[str], seed: int, calls: bool = False) -> int:
    """Makes a run that is killed at moments spread over its length; returns the number of kills that hit it alive.

    Args:
      calls: whether each start chooses another number of hyper-iterations in a compiled call.
    """
    rng, done, plain = random.Random(seed), 0, list(settings)
    goals = sorted(rng.randrange(iterations) for _ in range(kills))
    for goal in tqdm(goals, unit="kill", desc="killed"):
        settings = [*plain, f"--iterations_per_call={rng.randint(0, MOST)}"] if calls else plain
        child = start(output, iterations, settings)
        try:
            early = rng.random() < EARLY
            done += kill(child, output, None if early else goal, rng.uniform(0, 5) if early else rng.uniform(0, 0.3))
        finally:
            child.kill()
            child.wait()
    finish(start(output, iterations, settings), output)
    return done


def watch(child: subprocess.Popen[bytes], output: Path) -> dict[str, Samples]:
    """Memory and open files, sampled while the process lives."""
    samples: dict[str, Samples] = {MEMORY: [], FILES: []}
    process, page = Path(f"/proc/{child.pid}"), os.sysconf("SC_PAGE_SIZE")
    while child.poll() is None:
        try:
            iteration = rows(output)
            memory = int((process / "statm").read_text().split()[1]) * page / 1e6
            files = len(list((process / "fd").iterdir()))
        except OSError:  # it has just ended
            break
        samples[MEMORY].append((iteration, memory))
        samples[FILES].append((iteration, files))
        time.sleep(WATCH)
    return samples


def long_run(output: Path, iterations: int, settings: Sequence[str]) -> dict[str, Growth]:
    """The growth of each quantity in a long run."""
    child = start(output, iterations, settings)
    try:
        samples = watch(child, output)
        finish(child, output)
    finally:
        child.kill()
    samples[TIME] = list(enumerate(np.diff(soak_checks.log_times(output / "tensorboard")).tolist()))
    return {name: growth(numbers, iterations) for name, numbers in samples.items()}


def growth(samples: Samples, iterations: int) -> Growth:
    """The growth of one quantity; medians ignore a moment at which the machine was busy."""
    quarter = iterations / 4
    second = [x for k, x in samples if quarter <= k < 2 * quarter]
    last = [x for k, x in samples if 3 * quarter <= k < 4 * quarter]
    return Growth(float(np.median(second)), float(np.median(last)))


def run_long(config: Config) -> bool:
    """Makes a long run and prints what grew; returns whether all ratios are within their limits."""
    growths = long_run(fresh(config, "long"), config.hyper_iterations, [f"--hidden={config.hidden}"])
    for name, measured in growths.items():
        quarters = f"{measured.second:.4g} in the second quarter, {measured.last:.4g} in the last"
        print(f"{name}: {quarters} ({measured.ratio:.3f}, at most {LIMITS[name]})")
    return not any(measured.ratio > LIMITS[name] for name, measured in growths.items())


def run_kills(config: Config) -> bool:
    """Makes a run with kills and one without, and prints how they differ; returns whether nothing was lost."""
    whole, killed = fresh(config, "whole"), fresh(config, "killed")
    iterations, settings = config.hyper_iterations, [f"--hidden={config.hidden}"]
    calls = config.part == "calls"
    if calls:
        settings += ["--noaccuracies", f"--checkpoint_every={CHECKPOINT_EVERY}"]
    finish(start(whole, iterations, settings), whole)
    done = killed_run(killed, iterations, config.kills, settings, config.seed, calls)
    wrong = soak_checks.differences(killed, whole, iterations)
    verdict = "; ".join(wrong) or "nothing was lost"
    print(f"{done} kills in {iterations} hyper-iterations (seed {config.seed}): {verdict}")
    return not wrong


def fresh(config: Config, name: str) -> Path:
    """A directory without an earlier run, which would be read back instead of run."""
    path = Path(config.output_dir) / name
    if path.exists():
        raise DataError(f"{path} has an earlier run; remove it, or choose another --output_dir.")
    return path

"""Runs that are killed again and again, and a run that goes on for long: nothing is lost, nothing grows.

    python -m experiments.soak --part=kills --kills=200 --hyper_iterations=300
    python -m experiments.soak --part=long --hyper_iterations=500

Both drive `experiments.real_time_digits` (20 training steps in each hyper-iteration) as a process of its own.

kills: the process gets SIGKILL at random moments, some of them before it has begun, and is started again each time. Its
results have to be those of a run that nobody killed, to the bit: the last checkpoint, results.json, history.csv with each
hyper-iteration once; what TensorBoard has twice has to be equal.

long: resident memory, open files and the time of a hyper-iteration with all that belongs to it, the last quarter of the run
against the second.
"""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import flags
from tensorboard.backend.event_processing import event_file_loader
from tqdm import tqdm

from data.errors import DataError
from experiments.common import binary as common

FLAGS = flags.FLAGS
EARLY = 0.2  # of the kills come while the process is still starting
POLL = 0.002  # seconds
MEMORY, FILES, TIME = "resident memory, MB", "open files", "seconds per hyper-iteration"
MOST = {MEMORY: 1.02, FILES: 1.0, TIME: 1.1}  # last quarter / second; times are noisy


class Growth(NamedTuple):
    """Means over the second and over the last quarter of a run, of what is watched."""

    second: float
    last: float

    @property
    def ratio(self) -> float:
        """1 for what does not grow."""
        return self.last / self.second


def start(output: Path, iterations: int, settings: Sequence[str]) -> subprocess.Popen[bytes]:
    """The run, or what is left of it."""
    output.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "experiments.real_time_digits", f"--output_dir={output}"]
    with (output / "log.txt").open("ab") as log:
        return subprocess.Popen([*command, f"--hyper_iterations={iterations}", *settings], stdout=log, stderr=log)


def finish(child: subprocess.Popen[bytes], output: Path) -> None:
    """Waits for the end of a run that nobody kills."""
    if child.wait() != 0:
        raise DataError(f"the run in {output} ended with {child.returncode}; see {output / 'log.txt'}.")


def rows(output: Path) -> int:
    """Hyper-iterations in the CSV, which is written a little before the checkpoint."""
    path = output / "history.csv"
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def kill(child: subprocess.Popen[bytes], output: Path, goal: int | None, wait: float) -> bool:
    """SIGKILL, `wait` seconds after the process has written row `goal` (None: after its start); False if it ended before."""
    while goal is not None and rows(output) <= goal and child.poll() is None:
        time.sleep(POLL)
    time.sleep(wait)
    child.send_signal(signal.SIGKILL)
    return child.wait() == -signal.SIGKILL


def killed_run(output: Path, iterations: int, kills: int, settings: Sequence[str], seed: int) -> int:
    """A run with so many kills at moments that are spread over it; how many there were."""
    rng, done = random.Random(seed), 0
    goals = sorted(rng.randrange(iterations) for _ in range(kills))
    for goal in tqdm(goals, unit="kill", desc="killed"):
        child = start(output, iterations, settings)
        try:
            early = rng.random() < EARLY
            done += kill(child, output, None if early else goal, rng.uniform(0, 5) if early else rng.uniform(0, 0.3))
        finally:
            child.kill()
            child.wait()
    finish(start(output, iterations, settings), output)
    return done


def lost(killed: Path, whole: Path, iterations: int) -> list[str]:
    """What a killed run has otherwise than the whole one; empty is right."""
    found = []
    for name, content in (("results.json", results), ("the last checkpoint", arrays), ("history.csv", table)):
        if content(killed) != content(whole):
            found.append(f"{name} differs")
    numbers = [int(row["iteration"]) for row in table(killed)]
    if numbers != list(range(iterations)):
        found.append(f"history.csv has the hyper-iterations {numbers}")
    return found + repeats(killed / "tensorboard", iterations)


def results(output: Path) -> Any:
    """All but the time that it took."""
    return json.loads((output / "results.json").read_text())["results"]


def arrays(output: Path) -> dict[str, bytes]:
    """The last checkpoint to the bit: hypers, weights, sensitivities."""
    place = max((output / "checkpoints").glob("ckpt-*"))
    with np.load(place / "arrays.npz", allow_pickle=False) as file:
        return {name: file[name].tobytes() for name in file.files}


def table(output: Path) -> list[dict[str, str]]:
    """The CSV."""
    with (output / "history.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def repeats(logdir: Path, iterations: int) -> list[str]:
    """What TensorBoard has otherwise the second time, or not at all."""
    seen: dict[tuple[str, int], bytes] = {}
    found = set()
    for event, value in logged(logdir):
        key, content = (value.tag, event.step), value.tensor.SerializeToString()
        if seen.setdefault(key, content) != content and value.tag not in ("configuration", "best value"):
            found.add(f"TensorBoard: {value.tag} at {event.step} has two values")
    missing = [k for k in range(iterations) if ("value", k) not in seen]
    return sorted(found) + ([f"TensorBoard lacks {missing}"] if missing else [])


def moments(logdir: Path) -> list[float]:
    """When each hyper-iteration of a run that nobody killed was logged: between two is all of one, its checkpoint too."""
    return [event.wall_time for event, value in logged(logdir) if value.tag == "value"]


def logged(logdir: Path) -> Iterator[tuple[Any, Any]]:
    """The events of TensorBoard's files, with each of their values."""
    for path in sorted(logdir.glob("events.*")):
        for event in event_file_loader.EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                yield event, value


def watched(child: subprocess.Popen[bytes], output: Path) -> dict[str, list[tuple[int, float]]]:
    """(hyper-iteration, number) of memory and open files while the process lives."""
    found: dict[str, list[tuple[int, float]]] = {MEMORY: [], FILES: []}
    process = Path(f"/proc/{child.pid}")
    page = os.sysconf("SC_PAGE_SIZE")
    while child.poll() is None:
        try:
            now = rows(output)
            memory = int((process / "statm").read_text().split()[1]) * page / 1e6
            files = len(list((process / "fd").iterdir()))
        except OSError:  # it has just ended
            break
        found[MEMORY].append((now, memory))
        found[FILES].append((now, files))
        time.sleep(0.2)
    return found


def long_run(output: Path, iterations: int, settings: Sequence[str]) -> dict[str, Growth]:
    """What grows in a long run."""
    child = start(output, iterations, settings)
    try:
        found: dict[str, list[tuple[int, float]]] = dict(watched(child, output))
        finish(child, output)
    finally:
        child.kill()
    found[TIME] = list(enumerate(np.diff(moments(output / "tensorboard")).tolist()))
    return {name: growth(numbers, iterations) for name, numbers in found.items()}


def growth(numbers: Sequence[tuple[int, float]], iterations: int) -> Growth:
    """Of (hyper-iteration, number), by medians: a machine that was busy for a moment does not count."""
    part = iterations / 4
    second = [x for k, x in numbers if part <= k < 2 * part]
    last = [x for k, x in numbers if 3 * part <= k < 4 * part]
    return Growth(float(np.median(second)), float(np.median(last)))


def main() -> None:
    """Runs the part that is asked for, and says what it found; exit code 1 if something was lost, or grew."""
    output, iterations = Path(FLAGS.output_dir), FLAGS.hyper_iterations
    settings = [f"--hidden={FLAGS.hidden}"]
    for name in ("long",) if FLAGS.part == "long" else ("whole", "killed"):
        if (output / name).exists():  # it would be read back, and nothing tried
            raise DataError(f"{output / name} is there from an earlier run; remove it, or choose another --output_dir.")
    if FLAGS.part == "long":
        found = long_run(output / "long", iterations, settings)
        for name, of in found.items():
            quarters = f"{of.second:.4g} in the second quarter, {of.last:.4g} in the last"
            print(f"{name}: {quarters} ({of.ratio:.3f}, at most {MOST[name]})")
        sys.exit(any(of.ratio > MOST[name] for name, of in found.items()))
    finish(start(output / "whole", iterations, settings), output / "whole")
    done = killed_run(output / "killed", iterations, FLAGS.kills, settings, FLAGS.seed)
    wrong = lost(output / "killed", output / "whole", iterations)
    print(f"{done} kills in {iterations} hyper-iterations (seed {FLAGS.seed}): " + ("; ".join(wrong) or "nothing was lost"))
    if wrong:
        sys.exit(1)


def command_line() -> None:
    """Defines the flags and runs."""
    flags.DEFINE_enum("part", "kills", ["kills", "long"], "Which of the two.")
    flags.DEFINE_string("output_dir", "results/soak", "Where the runs write; those of an earlier time have to be removed.")
    flags.DEFINE_integer("hyper_iterations", 300, "Of the run.", lower_bound=4)
    flags.DEFINE_integer("kills", 200, "How many.", lower_bound=0)
    flags.DEFINE_integer("hidden", 30, "Units of the network.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Of the moments of the kills.")
    common.run_main(main)

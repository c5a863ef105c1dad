"""What a hypergradient costs (paper, Appendix A): seconds against the number of hypers, memory against that of the weights.

    python -m experiments.complexity --preset=quick
    python -m experiments.complexity --preset=paper --output_dir=results/complexity_paper
    python -m experiments.complexity --slopes

A 784-h-h-10 tanh network learns 5,000 digits in T steps with momentum, batches of 100. The m hypers are learning rate,
momentum and the weights of the first m - 2 digits in the loss; the objective is the error on 5,000 other digits.

Each measurement is made in a process of its own, with XLA where the engine does so by itself.
Seconds: of one hypergradient, best of `rounds` calls; a call before them compiles and does not count. What would exceed the
budget runs fewer steps at two lengths, and the line through both is followed to T: "extrapolated".
Memory: the most that is resident during a second call beyond what was before the engine was built. Its graph and code, the
states it keeps, the sensitivities and the objective's activations count. TensorFlow, the digits, the initial weights, and
what a run of three steps by an engine of the same kind left behind do not; nor does what the compiler has freed.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from absl import flags
from tqdm import tqdm

from data import mnist
from data.errors import DataError
from experiments.common import binary as common
from experiments.complexity import report
from experiments.complexity.measure import Task, caller, digits, measure, measure_elsewhere, problem, seconds_of
from experiments.complexity.report import METHODS, Row, SlopeConfig, checkpoints
from rfho2.hypergradients.forward import TOGETHER
from rfho2.planning import memory

FLAGS = flags.FLAGS
MANY = 100  # hypers, above which forward mode is always extrapolated
TIMED = 10  # forward steps to extrapolate from, if they fit the budget


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured.

    Attributes:
      steps: T.
      hypers: the numbers m of hypers whose time is measured, with `hidden` units in each hidden layer.
      widths: the hidden layers whose memory is measured, with two hypers; about 165 k, 335 k and 640 k weights, as in the
        paper, and 1.3 M.
      truncate: k of truncated reverse mode.
      rounds: timed calls, of which the best counts.
      budget: seconds that a timed call may take.
      memory_limit: GB that a measurement may need; what needs more is predicted.
    """

    steps: int = 1000
    hypers: tuple[int, ...] = (2, 5, 10, 22, 50, 100, 200, 500, 1000, 2000, 5000)
    hidden: int = 200
    widths: tuple[int, ...] = (171, 304, 496, 810)
    truncate: int = 100
    rounds: int = 2
    budget: float = 40.0
    memory_limit: float = 8.0

    def __post_init__(self) -> None:
        most = mnist.TRAIN + 2
        if not self.hypers or not all(2 <= m <= most for m in self.hypers):
            raise DataError(
                f"hypers is {list(self.hypers)}; each number has to be from 2, learning rate and momentum, to {most}, "
                f"with a weight for each digit."
            )


PRESETS = {"paper": Config(), "quick": Config(steps=50, hypers=(2, 10, 100), widths=(171, 304), truncate=10)}


def plan(config: Config) -> list[Task]:
    """All measurements; fewer hypers come first, because they tell what more will take."""

    def task(panel: str, method: str, hypers: int, hidden: int, rounds: int) -> Task:
        return Task(panel, method, hypers, hidden, config.steps, min(config.truncate, config.steps), rounds)

    hypers = sorted(set(config.hypers))
    base = task("seconds", "plain", hypers[0], config.hidden, config.rounds)
    seconds = [task("seconds", method, m, config.hidden, config.rounds) for m in hypers for method in METHODS]
    memory = [task("memory", method, 2, h, 1) for h in sorted(set(config.widths)) for method in METHODS]
    return [base, *seconds, *memory]


def shortened(task: Task, budget: float, before: Sequence[Row]) -> Task:
    """The task with lengths to extrapolate from if T steps would exceed the budget; memory depends on T and stays.

    The last time of the same method predicts the next: forward mode in proportion to m, the others alike.
    """
    if task.panel == "memory":
        return task
    known = [row for row in before if row["method"] == task.method and row["panel"] == task.panel and row["seconds"]]
    growth = task.hypers / known[-1]["hypers"] if known and task.method == "forward" else 1.0
    predicted = known[-1]["seconds"] * growth if known else 0.0
    if predicted <= budget and not (task.method == "forward" and task.hypers > MANY):
        return task
    short, long = 100, 200  # checkpoints save as much of the states there as at T, to some percent
    if task.method == "forward":  # not from one step, whose sensitivity XLA knows to be 0
        short, long = 2, 2 + max(1, min(TIMED, int(budget * task.steps / max(predicted, budget))))
    elif task.method == "truncated":  # what is added to k steps has no way back
        short, long = task.truncate, 2 * task.truncate
    return task._replace(timed=(short, long)) if long < task.steps else task


def predicted_bytes(task: Task) -> int:
    """What the method keeps: states, or columns of Z, of two float32 for each weight."""
    steps = task.timed[1] if task.timed else task.steps
    kept = {"reverse": steps, "checkpointed": checkpoints(steps), "truncated": min(task.truncate, steps)}
    return kept.get(task.method, min(task.hypers, TOGETHER)) * 2 * 4 * report.weights_of(task.hidden)


def refused(task: Task, limit: float) -> Row | None:
    """What takes the place of a measurement that needs more than `limit` GB."""
    needed = predicted_bytes(task)
    if needed <= limit * 1e9:
        return None
    missing = f"not run: needs about {needed / 1e9:.1f} GB, more than --memory_limit={limit:g}"
    return {"seconds": None, "peak_bytes": needed, "extrapolated": True, "missing": missing}


def run(config: Config, path: Path, resume: bool = True, measure: Callable[[Task], Row] = measure_elsewhere) -> list[Row]:
    """All rows; those that succeeded are kept in the file and not measured again, those that failed are tried again."""
    kept = {Task.of(row): row for row in _read(path)} if resume else {}
    rows: list[Row] = []
    bar = tqdm(plan(config), unit="measurement")
    for wanted in bar:
        task = shortened(wanted, config.budget, rows)
        bar.set_postfix_str(f"{task.panel}: {task.method}, m = {task.hypers}, h = {task.hidden}")
        if task not in kept:
            usual = {**task._asdict(), "weights": report.weights_of(task.hidden), "missing": None}
            row = usual | {"extrapolated": bool(task.timed)} | (refused(task, config.memory_limit) or measure(task))
            if row["missing"]:
                rows.append(row)
                continue
            kept[task] = row
            common.write_text(path, json.dumps(list(kept.values()), indent=1) + "\n")
        rows.append(kept[task])
    return rows


def _read(path: Path) -> list[Row]:
    try:
        return json.loads(path.read_text()) if path.exists() else []
    except ValueError as error:
        raise DataError(f"{path} cannot be read ({error}); delete it, or start afresh with --noresume.") from None


def slopes(config: SlopeConfig) -> list[Row]:
    """Log-log slopes of the seconds: median of interleaved calls, minus that of a call with one step."""
    laws = report.laws(config)
    points = sorted({point for law in laws for pair in law.points() for point in pair})
    calls = [caller(way, problem(steps, m, config.batch, config.validation), config.hidden, m) for way, steps, m in points]
    for call in tqdm(calls, desc="compiling"):
        call()
    rounds = [[seconds_of(call) for call in calls] for _ in tqdm(range(config.rounds), desc="rounds")]
    median = dict(zip(points, np.median(rounds, axis=0).tolist(), strict=True))
    return [report.fitted(law, median) for law in laws]


def config_from_flags() -> Config:
    """The preset, with every flag that was given in its place."""
    return dataclasses.replace(PRESETS[FLAGS.preset], **common.given(Config))


def main() -> None:
    """Flags to config, run, report."""
    if FLAGS.measure is not None:
        return print(json.dumps(measure(Task.of(json.loads(FLAGS.measure)))))
    output, began = Path(FLAGS.output_dir), time.perf_counter()
    digits()  # bad data before hours
    if FLAGS.slopes:
        memory.keep_freed()  # or blocks above 32 MB, the states of 200 steps, cost page faults at every call
        tf.get_logger().setLevel("ERROR")  # it would warn of so many engines that are traced
        rows = slopes(SlopeConfig())
        common.write_results(output / "slopes.json", SlopeConfig(), rows, {"whole run": time.perf_counter() - began})
        return print(report.slope_table(rows))
    if not memory.CLEAR_REFS.exists():
        raise DataError(
            f"{memory.CLEAR_REFS} is not there: peak memory can be measured under Linux only; --slopes runs anywhere."
        )
    config = config_from_flags()
    rows = run(config, output / "measurements.json", FLAGS.resume)
    common.write_results(output / "results.json", config, rows, {"whole run": time.perf_counter() - began})
    print(report.write(output, rows))


def define_flags() -> None:
    """Every field of the config is a flag; those not given come from the preset."""
    flags.DEFINE_enum("preset", "quick", sorted(PRESETS), "quick: T = 50, 3 numbers of hypers, 2 widths; paper: T = 1000.")
    flags.DEFINE_string("output_dir", "results/complexity", "Where results go; a stopped run goes on from here.")
    flags.DEFINE_bool("resume", True, "Measure only what output_dir does not have; --noresume starts afresh.")
    flags.DEFINE_bool("slopes", False, "Fit log-log slopes instead, on a smaller network: slopes.json.")
    flags.DEFINE_string("measure", None, "For internal use: print one measurement, given and printed as JSON.")
    flags.DEFINE_integer("steps", None, "T: inner steps.", lower_bound=1)
    flags.DEFINE_list("hypers", None, "Numbers of hypers to measure times for.")
    flags.DEFINE_integer("hidden", None, "Hidden units where times are measured, in each of two layers.", lower_bound=1)
    flags.DEFINE_list("widths", None, "Hidden units to measure memory for.")
    flags.DEFINE_integer("truncate", None, "Steps that truncated reverse mode looks back.", lower_bound=1)
    flags.DEFINE_integer("rounds", None, "Timed calls, of which the best counts.", lower_bound=1)
    flags.DEFINE_float("budget", None, "Seconds that a timed call may take; longer ones are extrapolated.", lower_bound=0.0)
    flags.DEFINE_float("memory_limit", None, "GB that a measurement may need; others are predicted.", lower_bound=0.0)


def command_line() -> None:
    """Defines the flags and runs."""
    define_flags()
    common.run_main(main)

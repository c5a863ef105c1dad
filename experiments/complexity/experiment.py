"""What a hypergradient costs: which measurements are made, which are extrapolated or predicted, and which are kept."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tqdm import tqdm

from data import mnist
from data.errors import DataError
from experiments.common.config import setting
from experiments.common.results import write_text
from experiments.complexity.measure import measure_in_fresh_process
from experiments.complexity.tasks import METHODS, Row, Task, predicted_bytes, weights_of

MANY_HYPERS = 100  # more than these, and forward mode is always extrapolated
TIMED_STEPS = 10  # forward steps to extrapolate from, if they fit the budget


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured. The default widths give about 165 k, 335 k and 640 k weights, as in the paper, and 1.3 M."""

    steps: int = setting(1000, "T: inner steps.", at_least=1)
    hypers: tuple[int, ...] = setting(
        (2, 5, 10, 22, 50, 100, 200, 500, 1000, 2000, 5000), "Numbers m of hypers to measure times for.", at_least=1
    )
    hidden: int = setting(200, "Hidden units where times are measured, in each of two layers.", at_least=1)
    widths: tuple[int, ...] = setting(
        (171, 304, 496, 810), "Hidden units to measure memory for, with two hypers.", at_least=1
    )
    truncate: int = setting(100, "k: steps that truncated reverse mode looks back.", at_least=1)
    rounds: int = setting(2, "Timed calls, of which the best counts.", at_least=1)
    budget: float = setting(40.0, "Seconds that a timed call may take; longer ones are extrapolated.", at_least=0.0)
    memory_limit: float = setting(8.0, "GB that a measurement may need; others are predicted.", at_least=0.0)

    def __post_init__(self) -> None:
        most = mnist.TRAIN + 2
        if not self.hypers or not all(2 <= m <= most for m in self.hypers):
            raise DataError(
                f"hypers is {list(self.hypers)}; each number must be between 2 (learning rate and momentum) and {most} "
                f"(these and one weight per digit)."
            )


PRESETS = {"quick": Config(steps=50, hypers=(2, 10, 100), widths=(171, 304), truncate=10), "paper": Config()}


def plan(config: Config) -> list[Task]:
    """All measurements; fewer hypers come first, because their times predict those of more."""

    def task(panel: str, method: str, hypers: int, hidden: int, rounds: int) -> Task:
        return Task(panel, method, hypers, hidden, config.steps, min(config.truncate, config.steps), rounds)

    numbers = sorted(set(config.hypers))
    plain = task("seconds", "plain", numbers[0], config.hidden, config.rounds)
    seconds = [task("seconds", method, m, config.hidden, config.rounds) for m in numbers for method in METHODS]
    memory = [task("memory", method, 2, h, 1) for h in sorted(set(config.widths)) for method in METHODS]
    return [plain, *seconds, *memory]


def shortened(task: Task, budget: float, earlier: Sequence[Row]) -> Task:
    """The task with two lengths to extrapolate from if T steps would exceed the budget; memory is never extrapolated.

    The last time of the same method predicts the next: in proportion to m for forward mode, unchanged for the others.
    """
    if task.panel == "memory":
        return task
    same = [row for row in earlier if row["method"] == task.method and row["panel"] == task.panel and row["seconds"]]
    growth = task.hypers / same[-1]["hypers"] if same and task.method == "forward" else 1.0
    predicted = same[-1]["seconds"] * growth if same else 0.0
    if predicted <= budget and not (task.method == "forward" and task.hypers > MANY_HYPERS):
        return task
    short, long = 100, 200  # checkpoints save nearly the same fraction of the states there as at T
    if task.method == "forward":  # not from one step, whose sensitivity XLA knows to be 0
        short, long = 2, 2 + max(1, min(TIMED_STEPS, int(budget * task.steps / max(predicted, budget))))
    elif task.method == "truncated":  # steps beyond the last k are not differentiated
        short, long = task.truncate, 2 * task.truncate
    return task._replace(timed=(short, long)) if long < task.steps else task


def refused(task: Task, limit: float) -> Row | None:
    """The row of a task that needs more than `limit` GB: predicted, not measured."""
    needed = predicted_bytes(task)
    if needed <= limit * 1e9:
        return None
    missing = f"not run: needs about {needed / 1e9:.1f} GB, more than --memory_limit={limit:g}"
    return {"seconds": None, "peak_bytes": needed, "extrapolated": True, "missing": missing}


def run(
    config: Config, path: Path, resume: bool = True, measure: Callable[[Task], Row] = measure_in_fresh_process
) -> list[Row]:
    """All rows; those that succeeded are kept in the file and not measured again, those that failed are tried again."""
    kept = {Task.of(row): row for row in _read(path)} if resume else {}
    rows: list[Row] = []
    bar = tqdm(plan(config), unit="measurement")
    for planned in bar:
        task = shortened(planned, config.budget, rows)
        bar.set_postfix_str(f"{task.panel}: {task.method}, m = {task.hypers}, h = {task.hidden}")
        if task in kept:
            rows.append(kept[task])
            continue
        defaults = {"weights": weights_of(task.hidden), "missing": None, "extrapolated": bool(task.timed)}
        rows.append(task._asdict() | defaults | (refused(task, config.memory_limit) or measure(task)))
        if not rows[-1]["missing"]:
            kept[task] = rows[-1]
            write_text(path, json.dumps(list(kept.values()), indent=1) + "\n")
    return rows


def _read(path: Path) -> list[Row]:
    try:
        return json.loads(path.read_text()) if path.exists() else []
    except ValueError as error:
        raise DataError(f"{path} cannot be read ({error}); delete it, or start afresh with --noresume.") from None

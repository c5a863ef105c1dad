"""Tables and figure of the ten tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from experiments.common import figures
from experiments.common.results import write_text
from experiments.keras_tasks.experiment import RANDOM, STARTS, TUNER, Record

DEFAULT, FIVE, SEARCH = "Keras's default", "best of five rates", "best of random trials"
METHODS: dict[str, Callable[[str], bool]] = {
    DEFAULT: lambda method: method == "rate x 1",
    FIVE: lambda method: method.startswith("rate x"),
    "cosine decay": lambda method: method == "cosine",
    "ReduceLROnPlateau": lambda method: method == "plateau",
    SEARCH: lambda method: method.startswith(RANDOM),
    **{f"tuner from x {start:g}": f"{TUNER} x {start:g}".__eq__ for start in STARTS},
}
USUAL_START, *OTHER_STARTS = (f"tuner from x {start:g}" for start in STARTS)

Case = tuple[str, int]
"""Optimizer and seed."""


class Mean(NamedTuple):
    """A mean of paired differences, and its standard error (NaN with one seed)."""

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:+.2f}" + ("" if np.isnan(self.error) else f" ± {self.error:.2f}")

    def as_good(self) -> bool:
        """Whether the difference is at least minus one standard error."""
        return bool(self.mean >= -np.nan_to_num(self.error))


def write(output: Path, records: Sequence[Record]) -> str:
    """Writes tables and figure; returns what to print."""
    texts = {"scores.md": scores(records), "differences.md": differences(records), "conclusion.txt": conclusion(records)}
    for name, text in texts.items():
        write_text(output / name, text)
    draw(records, output / "rates")
    return "\n".join(texts.values())


def methods_of(records: Sequence[Record]) -> list[str]:
    """The methods that were run."""
    return [name for name, matches in METHODS.items() if any(matches(record["method"]) for record in records)]


def tasks_of(records: Sequence[Record]) -> list[str]:
    """The tasks, in their order."""
    return list(dict.fromkeys(record["task"] for record in records))


def chosen(records: Sequence[Record], task: str, method: str) -> dict[Case, Record]:
    """The training that a method keeps, by its validation loss, for each optimizer and seed."""
    own = [r for r in records if r["task"] == task and METHODS[method](r["method"])]
    cases = dict.fromkeys((r["optimizer"], r["seed"]) for r in own)
    return {
        case: min((r for r in own if (r["optimizer"], r["seed"]) == case), key=lambda r: r["validation"]) for case in cases
    }


def compare(records: Sequence[Record], task: str, method: str, baseline: str) -> Mean:
    """The mean difference of test scores, with its standard error over seeds."""
    ours, theirs = chosen(records, task, method), chosen(records, task, baseline)
    strata: dict[str, list[float]] = {}
    for case, record in ours.items():
        strata.setdefault(case[0], []).append(record["test"] - theirs[case]["test"])
    variances = [float(np.var(d, ddof=1)) / len(d) if len(d) > 1 else np.nan for d in strata.values()]
    return Mean(float(np.mean([np.mean(d) for d in strata.values()])), float(np.sqrt(sum(variances)) / len(strata)))


def time_ratio(records: Sequence[Record], task: str) -> float:
    """The tuner's seconds over those of one fit by Keras, both with building and compiling."""
    seconds = {m: sum(r["seconds"] for r in chosen(records, task, m).values()) for m in (USUAL_START, DEFAULT)}
    return seconds[USUAL_START] / seconds[DEFAULT]


def scores(records: Sequence[Record]) -> str:
    """Test scores of each task, optimizer and method: means over the seeds."""
    methods = methods_of(records)
    lines = [f"| task | optimizer | {' | '.join(methods)} |", "|---" * (2 + len(methods)) + "|"]
    for task in tasks_of(records):
        for optimizer in dict.fromkeys(r["optimizer"] for r in records):
            cells = []
            for method in methods:
                own = [r["test"] for case, r in chosen(records, task, method).items() if case[0] == optimizer]
                cells.append(f"{np.mean(own):.2f}")
            lines.append(f"| {task} | {optimizer} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def differences(records: Sequence[Record]) -> str:
    """Differences of test scores, with standard errors, and times."""
    others = [name for name in methods_of(records) if not name.startswith(TUNER)]
    titles = [f"minus {name}" for name in others] + [f"{name}, minus x 1" for name in OTHER_STARTS] + ["time / one fit"]
    lines = [f"| tuner from x 1 | {' | '.join(titles)} |", "|---" * (1 + len(titles)) + "|"]
    for task in tasks_of(records):
        cells = [str(compare(records, task, USUAL_START, other)) for other in others]
        cells += [str(compare(records, task, start, USUAL_START)) for start in OTHER_STARTS]
        lines.append(f"| {task} | {' | '.join(cells)} | {time_ratio(records, task):.2f} |")
    return "\n".join(lines) + "\n"


def conclusion(records: Sequence[Record]) -> str:
    """On how many tasks the tuner is as good as something else."""
    tasks = tasks_of(records)

    def count(method: str, baseline: str) -> str:
        return f"{sum(compare(records, task, method, baseline).as_good() for task in tasks)} of {len(tasks)}"

    others = [name for name in methods_of(records) if not name.startswith(TUNER)]
    lines = [f"Tuner from the default rate, as good as {other}: {count(USUAL_START, other)}" for other in others]
    lines += [f"{start.capitalize()}, as good as from x 1: {count(start, USUAL_START)}" for start in OTHER_STARTS]
    lines.append(f"Time / one fit, at most: {max(time_ratio(records, task) for task in tasks):.2f}")
    return "\n".join(lines) + "\n"


def draw(records: Sequence[Record], path: Path) -> None:
    """Learning rates and validation losses of the tuner with the first seed, one column for each task."""
    tasks, optimizers = tasks_of(records), list(dict.fromkeys(r["optimizer"] for r in records))
    shape = (2 * len(optimizers), len(tasks))
    figure, axes = plt.subplots(*shape, figsize=(3.4 * shape[1], 2.2 * shape[0]), layout="constrained", squeeze=False)
    for column, task in zip(axes.T, tasks, strict=True):
        for row, optimizer in enumerate(optimizers):
            own = [r for r in records if (r["task"], r["optimizer"]) == (task, optimizer) and "way" in r]
            rates, losses = column[2 * row : 2 * row + 2]
            for record in (r for r in own if r["seed"] == own[0]["seed"]):
                rates.plot(record["way"]["learning_rate"], label=f"from {record['rate']:g}")
                losses.plot(record["way"]["value"])
            rates.set(title=f"{task}, {optimizer}", ylabel="learning rate", yscale="log")
            losses.set(ylabel="objective", yscale="log")
            rates.legend(fontsize="x-small")
        column[-1].set_xlabel("hyper-batches")
    figures.add_grids(axes.flat)
    figures.save_figure(figure, path)

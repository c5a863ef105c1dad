"""Tables and figure of the tasks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from experiments.common.figures import add_grids
from experiments.common.pool import Row
from experiments.common.study import Caption, Study
from experiments.common.tables import Table, distinct, groups, mean, where, without
from experiments.keras_tasks.experiment import (
    KNOTS,
    PRESETS,
    RANDOM,
    SHORTER,
    STARTS,
    TUNER,
    Config,
    compute,
    method_of,
    units,
)
from experiments.keras_tasks.stand_ins import STAND_INS

DEFAULT, FIVE, SEARCH, SIX_KNOTS = "Keras's default", "best of five rates", "best of random trials", "six knots"
METHODS: dict[str, Callable[[str], bool]] = {
    DEFAULT: lambda method: method == "rate x 1",
    FIVE: lambda method: method.startswith("rate x"),
    "cosine decay": lambda method: method == "cosine",
    "ReduceLROnPlateau": lambda method: method == "plateau",
    SEARCH: lambda method: method.startswith(RANDOM),
    SIX_KNOTS: KNOTS.__eq__,
    **{f"tuner from x {start:g}": f"{TUNER} x {start:g}".__eq__ for start in STARTS},
    SHORTER: SHORTER.__eq__,
    **{method_of(name): method_of(name).__eq__ for name in STAND_INS},
}
USUAL_START, *OTHER_STARTS = (f"tuner from x {start:g}" for start in STARTS)


class Mean(NamedTuple):
    """A mean of paired differences (NaN without pairs), and its standard error (NaN with one seed)."""

    mean: float
    error: float

    def __str__(self) -> str:
        if np.isnan(self.mean):
            return "-"
        return f"{self.mean:+.2f}" + ("" if np.isnan(self.error) else f" ± {self.error:.2f}")

    def as_good(self) -> bool:
        """Whether the difference is at least minus one standard error."""
        return bool(self.mean >= -np.nan_to_num(self.error))


def tables(config: Config, rows: Sequence[Row], output: Path) -> dict[str, str]:
    """Scores, differences, objectives for accuracy, and on how many tasks tuner and knots are as good as something else."""
    made = {"scores.md": scores(rows), "differences.md": differences(rows), "conclusion.txt": conclusion(rows)}
    made |= {"knots.md": knots(rows)} if where(rows, method=KNOTS) else {}
    return made | ({"objectives.md": objectives(rows)} if stand_ins_of(rows) else {})


def methods_of(rows: Sequence[Row]) -> list[str]:
    """The methods that were run."""
    return [name for name, matches in METHODS.items() if any(matches(row["method"]) for row in rows)]


def baselines_of(rows: Sequence[Row]) -> list[str]:
    """The methods that were run, but the tuner."""
    return [name for name in methods_of(rows) if not name.startswith(TUNER)]


def chosen(rows: Sequence[Row], task: str, method: str) -> dict[tuple[str, int], Row]:
    """The training that a method keeps, by its validation loss, for each optimizer and seed."""
    matching = [row for row in where(rows, task=task) if METHODS[method](row["method"])]
    best = [min(case, key=lambda row: row["validation"]) for case in groups(matching, "optimizer", "seed")]
    return {(row["optimizer"], row["seed"]): row for row in best}


def compare(rows: Sequence[Row], task: str, method: str, baseline: str, score: str = "test") -> Mean:
    """The mean difference of test scores (or of validation scores), with its standard error over seeds."""
    ours, theirs = chosen(rows, task, method), chosen(rows, task, baseline)
    strata: dict[str, list[float]] = {}
    for case in ours.keys() & theirs.keys():
        if score in ours[case] and score in theirs[case]:
            strata.setdefault(case[0], []).append(ours[case][score] - theirs[case][score])
    if not strata:
        return Mean(np.nan, np.nan)
    variances = [float(np.var(d, ddof=1)) / len(d) if len(d) > 1 else np.nan for d in strata.values()]
    return Mean(float(np.mean([np.mean(d) for d in strata.values()])), float(np.sqrt(sum(variances)) / len(strata)))


def time_ratio(rows: Sequence[Row], task: str, method: str = USUAL_START) -> float:
    """The seconds of all trainings of a method over those of one fit by Keras, which include building and compiling."""
    matching = [row for row in where(rows, task=task) if METHODS[method](row["method"])]
    cases = len(groups(matching, "optimizer", "seed"))
    return float(sum(row["seconds"] for row in matching) / cases / mean(chosen(rows, task, DEFAULT).values(), "seconds"))


def scores(rows: Sequence[Row]) -> str:
    """Test scores of each task, optimizer and method, but for stand-ins (see `objectives`): means over the seeds."""
    methods = [name for name in methods_of(rows) if name not in map(method_of, STAND_INS)]
    table = Table("task", "optimizer", *methods)
    for task, optimizer in itertools.product(distinct(rows, "task"), distinct(rows, "optimizer")):
        kept = [where(chosen(rows, task, method).values(), optimizer=optimizer) for method in methods]
        table.add(task, optimizer, *(f"{mean(trainings, 'test'):.2f}" if trainings else "-" for trainings in kept))
    return str(table)


def stand_ins_of(rows: Sequence[Row]) -> list[str]:
    """The stand-ins that were run."""
    return [name for name in STAND_INS if where(rows, method=method_of(name))]


def objectives(rows: Sequence[Row]) -> str:
    """What stand-ins for the error change, in validation and test accuracy; the last row has means over the tasks."""
    names = stand_ins_of(rows)
    table = Table("objective, minus the loss", *(f"{name}: {part}" for name in names for part in ("validation", "test")))
    methods = [method_of(name) for name in names]
    tasks = distinct([row for row in rows if row["method"] in methods], "task")
    columns = [
        [compare(rows, task, method, USUAL_START, score) for task in tasks]
        for method in methods
        for score in ("validation score", "test")
    ]
    for i, task in enumerate(tasks):
        table.add(task, *(column[i] for column in columns))
    table.add("mean", *map(over_tasks, columns))
    return str(table)


def over_tasks(differences: Sequence[Mean]) -> Mean:
    """The mean over the tasks that have one, with the standard error that theirs imply."""
    means, errors = np.array([each for each in differences if not np.isnan(each.mean)] or [Mean(np.nan, np.nan)]).T
    return Mean(float(means.mean()), float(np.sqrt((errors**2).sum()) / len(errors)))


def differences(rows: Sequence[Row]) -> str:
    """Differences of test scores, with standard errors, and times."""
    baselines = baselines_of(rows)
    others = [*OTHER_STARTS, SHORTER]
    titles = [f"minus {name}" for name in baselines] + [f"{name}, minus x 1" for name in others]
    table = Table("tuner from x 1", *titles, "time / one fit")
    for task in distinct(rows, "task"):
        cells = [compare(rows, task, USUAL_START, baseline) for baseline in baselines]
        cells += [compare(rows, task, other, USUAL_START) for other in others]
        table.add(task, *cells, f"{time_ratio(rows, task):.2f}")
    return str(table)


def knots(rows: Sequence[Row]) -> str:
    """Differences of test scores between six knots and the baselines, with standard errors, and times."""
    baselines = [name for name in baselines_of(rows) if name != SIX_KNOTS]
    table = Table(SIX_KNOTS, *(f"minus {name}" for name in baselines), "time / one fit")
    for task in distinct(rows, "task"):
        cells = [compare(rows, task, SIX_KNOTS, baseline) for baseline in baselines]
        table.add(task, *cells, f"{time_ratio(rows, task, SIX_KNOTS):.2f}")
    return str(table)


def conclusion(rows: Sequence[Row]) -> str:
    """On how many tasks tuner and knots are as good as something else, and what they take."""
    tasks, methods = distinct(rows, "task"), methods_of(rows)

    def count(method: str, baseline: str) -> str:
        return f"{sum(compare(rows, task, method, baseline).as_good() for task in tasks)} of {len(tasks)}"

    lines = [f"Tuner from the default rate, as good as {name}: {count(USUAL_START, name)}" for name in baselines_of(rows)]
    if SIX_KNOTS in methods:
        lines += [
            f"Six knots, as good as {name}: {count(SIX_KNOTS, name)}" for name in baselines_of(rows) if name != SIX_KNOTS
        ]
    others = [name for name in (*OTHER_STARTS, SHORTER) if name in methods]
    lines += [f"{name.capitalize()}, as good as from x 1: {count(name, USUAL_START)}" for name in others]
    if SHORTER in methods:
        changes = [compare(rows, task, SHORTER, USUAL_START) for task in tasks]
        lines.append(f"{SHORTER.capitalize()}, minus from x 1, mean over the tasks: {over_tasks(changes)}")
    for name in (method for method in (USUAL_START, SIX_KNOTS, FIVE, SEARCH) if method in methods):
        ratios = [time_ratio(rows, task, name) for task in tasks]
        lines.append(f"Time / one fit, {name}: {min(ratios):.2f} to {max(ratios):.2f}")
    return "\n".join(lines) + "\n"


def figures(config: Config, rows: Sequence[Row]) -> dict[str, plt.Figure]:
    """Learning rates and validation losses of the tuner with the first seed, one column for each task."""
    tasks, optimizers = distinct(rows, "task"), distinct(rows, "optimizer")
    shape = (2 * len(optimizers), len(tasks))
    figure, axes = plt.subplots(*shape, figsize=(3.4 * shape[1], 2.2 * shape[0]), layout="constrained", squeeze=False)
    for column, task in zip(axes.T, tasks, strict=True):
        for number, optimizer in enumerate(optimizers):
            of_starts = [row for row in rows if row["method"] in [f"{TUNER} x {start:g}" for start in STARTS]]
            tuned = where(of_starts, task=task, optimizer=optimizer)
            rates, losses = column[2 * number : 2 * number + 2]
            for row in where(tuned, seed=tuned[0]["seed"]):
                rates.plot(row["way"]["learning_rate"], label=f"from {row['rate']:g}")
                losses.plot(row["way"]["value"])
            rates.set(title=f"{task}, {optimizer}", ylabel="learning rate", yscale="log")
            losses.set(ylabel="objective", yscale="log")
            rates.legend(fontsize="x-small")
        column[-1].set_xlabel("hyper-batches")
    add_grids(axes.flat)
    return {"rates": figure}


STUDY = Study(
    "keras_tasks",
    "Keras tasks",
    "The learning rate of small models of many kinds is tuned while they train, compared with what users do otherwise.",
    Config, PRESETS, units, compute, tables, figures,
    {
        "scores.md": Caption("Test scores in per cent; means over seeds"),
        "differences.md": Caption("Differences of test scores ± standard errors, and times"),
        "knots.md": Caption("The same for a schedule of six knots that is tuned on the whole training", False),
        "objectives.md": Caption("Accuracy with a stand-in for the error as objective, minus that with the loss", False),
        "rates.png": Caption("Learning rates and validation losses, bounded, along the trainings of the first seed"),
    },
    lambda config, rows: rows if config.tuner else [],
    recorded=lambda rows: without(rows, "way"),
    preset_help="development, frozen: five tasks each; ten: both; later: five more; quick: two tasks for two epochs.",
)  # fmt: skip

"""The tables and the figure of long training runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.common.figures import add_grids
from experiments.common.pool import Row
from experiments.common.statistics import difference
from experiments.common.study import Caption, Study
from experiments.common.tables import Table, column, distinct, where
from experiments.long_training.experiment import PRESETS, Config, compute, results, units
from experiments.long_training.methods import FIT, LONG_KNOTS, LOOP, METHODS, REAL_TIME, SHORT_KNOTS
from experiments.long_training.problems import DEVELOPMENT

TUNED = (*REAL_TIME, SHORT_KNOTS, LONG_KNOTS)
ENDINGS = {FIT: "", LOOP: "_compiled"}  # of the names of tables
BASELINES = tuple(method for method in METHODS if method not in TUNED)


def tables(config: Config, rows: Sequence[Row], output: Path) -> dict[str, str]:
    """Scores of each method, how far the methods that tune are from the best baseline, and the lengths of the runs."""
    made = {}
    for counted, ending in ENDINGS.items():
        chosen = where(rows, counted=counted)
        made[f"table{ending}.md"] = means(chosen, "test", ".2f")
        made[f"differences{ending}.md"] = differences(chosen)
        made[f"steps{ending}.md"] = means(chosen, "steps", ".0f")
    return made | {"overview.md": overview(rows)}


def means(rows: Sequence[Row], key: str, form: str) -> str:
    """Means over the seeds: a row for each method and budget, a column for each problem."""
    names = distinct(rows, "problem")
    made = Table("time budget", "method", *names)
    for budget in sorted(distinct(rows, "budget")):
        for method in shown(rows):
            chosen = [where(rows, problem=name, method=method, budget=budget) for name in names]
            made.add(budget, method, *(format(np.mean(column(one, key)), form) if one else "-" for one in chosen))
    return str(made)


def differences(rows: Sequence[Row]) -> str:
    """Test scores of the methods that tune, minus those of the baseline with the lowest validation losses."""
    names = distinct(rows, "problem")
    made = Table("time budget", "method", *names)
    for budget in sorted(distinct(rows, "budget")):
        for method in (method for method in shown(rows) if method in TUNED):
            cells = []
            for name in names:
                here = where(rows, problem=name, budget=budget)
                ours, best = where(here, method=method), best_baseline(here)
                known = ours and best
                cells.append(f"{difference(score(ours), score(where(here, method=best)))} ({best})" if known else "-")
            made.add(budget, method, *cells)
    return str(made)


def overview(rows: Sequence[Row]) -> str:
    """Of each method: mean test scores minus those of the best baseline, on average and at the worst.

    Over the problems that were not used for development, if there are any.
    """
    names = [name for name in distinct(rows, "problem") if name not in DEVELOPMENT] or distinct(rows, "problem")
    columns = [f"{part}, {counted}" for counted in ENDINGS for part in ("mean", "lowest")]
    made = Table("time budget", "method", *columns)
    for budget in sorted(distinct(rows, "budget")):
        for method in shown(rows):
            cells = []
            for counted in ENDINGS:
                behind = [
                    np.mean(column(where(here, method=method), "test")) - np.mean(column(where(here, method=best), "test"))
                    for here in (where(rows, problem=name, budget=budget, counted=counted) for name in names)
                    if (best := best_baseline(here)) and where(here, method=method)
                ]
                whole = len(behind) == len(names)
                cells += [f"{part(behind):+.2f}" if whole else "-" for part in (np.mean, np.min)]
            made.add(budget, method, *cells)
    return str(made)


def best_baseline(rows: Sequence[Row]) -> str | None:
    """The baseline with the lowest mean validation loss."""
    there = [method for method in BASELINES if where(rows, method=method)]
    return min(there, key=lambda method: np.mean(column(where(rows, method=method), "validation")), default=None)


def score(rows: Sequence[Row]) -> np.ndarray:
    """One for each seed, as a share, because differences are shown in points."""
    return column(rows, "test", "seed") / 100


def shown(rows: Sequence[Row]) -> list[str]:
    """The methods that were run, in order."""
    return [method for method in METHODS if where(rows, method=method)]


def figures(config: Config, rows: Sequence[Row]) -> dict[str, plt.Figure]:
    """Test scores of each method, one panel for each problem: light for the shorter budget, dark for the longer one.

    Dots if plain steps cost what they cost in Keras's `fit`, crosses if they cost what they cost in a compiled loop. Scores
    far below the others are triangles at the left edge.
    """
    names, listed = distinct(rows, "problem"), shown(rows)
    figure, axes = plt.subplots(
        -(-len(names) // 3),
        min(3, len(names)),
        figsize=(4.2 * min(3, len(names)) + 1.5, (0.24 * len(listed) + 1) * -(-len(names) // 3)),
        layout="constrained",
        squeeze=False,
        sharey=True,
    )
    add_grids(axes.flat)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    budgets = sorted(distinct(rows, "budget"))
    for axis, name in zip(axes.flat, names, strict=False):
        every = column(where(rows, problem=name), "test")
        left = max(np.min(every), 4 * np.median(every) - 3 * np.max(every))
        for i, budget in enumerate(budgets):
            for place, method in enumerate(listed):
                colour = "tab:red" if method in TUNED else "tab:blue"
                alpha = 1.0 if i == len(budgets) - 1 else 0.35
                for counted, marker, shift in ((FIT, "o", -0.15), (LOOP, "x", 0.15)):
                    values = column(where(rows, problem=name, method=method, budget=budget, counted=counted), "test")
                    for value in values:
                        shape, at = (marker, value) if value >= left else ("<", left)
                        axis.plot(at, place + shift, shape, color=colour, alpha=alpha, markersize=4)
        axis.set(title=f"{name}{' (development)' if name in DEVELOPMENT else ''}", xlabel="test score, %")
        axis.set_yticks(range(len(listed)), listed)
        axis.set_ylim(len(listed) - 0.5, -0.5)
    return {"long_training": figure}


STUDY = Study(
    "long_training",
    "The learning rate of long training runs",
    "Real time, tuned schedules, searches, decay, and optimisers without a rate, given the same time.",
    Config, PRESETS, units, compute, tables, figures,
    {
        "table.md": Caption("Test score, %, within one and five times the time that tuning in real time takes"),
        "table_compiled.md": Caption("The same, if plain steps cost what they cost in a compiled loop"),
        "differences.md": Caption("Points by which methods with hypergradients are ahead of the best baseline"),
        "differences_compiled.md": Caption("The same, if plain steps cost what they cost in a compiled loop"),
        "overview.md": Caption("Points behind the best baseline, over the problems not used for development"),
        "steps.md": Caption("Steps of the runs; of methods with several runs, the last one"),
        "steps_compiled.md": Caption("The same, if plain steps cost what they cost in a compiled loop"),
        "long_training.png": Caption("Test scores; pale: shorter time; crosses: plain steps compiled; triangles: far lower"),
    },
    results,
    preset_help="full: nine problems, three seeds; development: three of them; quick: one, for a minute.",
    workers=2,
)  # fmt: skip

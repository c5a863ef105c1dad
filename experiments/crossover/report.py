"""The tables and the figure of the crossover."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.common.figures import add_grids
from experiments.common.pool import Row
from experiments.common.statistics import difference, interval
from experiments.common.study import Caption, Study
from experiments.common.tables import Table, column, distinct, where
from experiments.crossover.experiment import PRESETS, UNTUNED, WITH, WITHOUT, Config, check, compute, results, units
from experiments.crossover.methods import CMA, LONGER, OURS, RANDOM, SHARED, STEPPING_BACK, TPE

ORDER = (UNTUNED, LONGER, SHARED, RANDOM, TPE, CMA, OURS, STEPPING_BACK)
SEARCHES = (SHARED, RANDOM, TPE, CMA)
STYLES = {
    UNTUNED: ("0.6", ":"), LONGER: ("0.6", "--"), SHARED: ("tab:brown", "-"), RANDOM: ("tab:blue", "-"),
    TPE: ("tab:green", "-"), CMA: ("tab:purple", "-"), OURS: ("tab:red", "-"),
    STEPPING_BACK: ("tab:orange", "-"),
}  # fmt: skip


def tables(config: Config, rows: Sequence[Row], output: Path) -> dict[str, str]:
    """One for each reading, and what trainings took."""
    return {
        "ahead.md": differences(where(rows, reading=WITHOUT)),
        "ahead_in_loss.md": differences(where(rows, reading=WITHOUT), "test_loss"),
        "ahead_with_compiling.md": differences(where(rows, reading=WITH)),
        "table.md": accuracies(where(rows, reading=WITHOUT)),
        "with_compiling.md": accuracies(where(rows, reading=WITH)),
        "trainings.md": trainings(where(rows, reading=WITHOUT, budget=max(config.budgets))),
    }


def differences(rows: Sequence[Row], key: str = "accuracy") -> str:
    """How far hypergradients are ahead of the best search at each budget: in points, or in hundredths of the test loss."""
    budgets = sorted(distinct(rows, "budget"))
    made = Table("family", "method", "hypers", *(f"{budget} trainings" for budget in budgets))
    for method in (OURS, STEPPING_BACK):
        for family, n in distinct(where(rows, method=method), "family", "n"):
            of = [{m: score(rows, family, n, budget, m, key) for m in (method, *SEARCHES)} for budget in budgets]
            made.add(family, method, n, *(ahead(scores, method) for scores in of))
    return str(made)


def accuracies(rows: Sequence[Row]) -> str:
    """Mean test accuracies, and how far hypergradients are ahead of the best search, ± half a 95 % interval."""
    shown = [method for method in ORDER if where(rows, method=method)]
    made = Table("family", "hypers", "trainings", *shown, "hypergradients minus the best search, points")
    for family, n, budget in distinct(rows, "family", "n", "budget"):
        scores = {method: score(rows, family, n, budget, method) for method in shown}
        cells = [f"{100 * scores[method].mean():.1f}" if len(scores[method]) else "-" for method in shown]
        made.add(family, n, budget, *cells, ahead(scores))
    return str(made)


def score(rows: Sequence[Row], family: str, n: int, budget: int, method: str, key: str = "accuracy") -> np.ndarray:
    """One for each seed; the higher, the better."""
    sign = -1 if key == "test_loss" else 1
    return sign * column(where(rows, family=family, n=n, budget=budget, method=method), key, "seed")


def ahead(scores: dict[str, np.ndarray], method: str = OURS) -> str:
    """A method minus the search with the highest mean."""
    searches = [search for search in SEARCHES if search in scores and len(scores[search])]
    if method not in scores or not searches:
        return "-"
    best = max(searches, key=lambda search: scores[search].mean())
    return f"{difference(scores[method], scores[best])} ({best})"


def trainings(rows: Sequence[Row]) -> str:
    """How many trainings each method had, and what compiling took."""
    made = Table("family", "hypers", "method", "seconds of a training", "trainings", "seconds for compiling")
    for family, n in distinct(rows, "family", "n"):
        for method in ORDER:
            chosen = where(rows, family=family, n=n, method=method)
            if chosen and method != UNTUNED:
                means = [np.mean(column(chosen, key)) for key in ("plain", "trainings", "compiling")]
                made.add(family, n, method, f"{means[0]:.2f}", f"{means[1]:.0f}", f"{means[2]:.1f}")
    return str(made)


def figures(config: Config, rows: Sequence[Row]) -> dict[str, plt.Figure]:
    """Test accuracy by the number of hypers: a row for each budget, a column for each family; and the middle row alone."""
    shown, budgets = where(rows, reading=WITHOUT), sorted(config.budgets)
    return {"crossover": _panels(shown, budgets), "crossover_short": _panels(shown, budgets[len(budgets) // 2 :][:1])}


def _panels(rows: Sequence[Row], budgets: Sequence[int]) -> plt.Figure:
    kinds = distinct(rows, "family")
    size = (3.0 * len(kinds), 2.5 * len(budgets) + 0.7)
    figure, axes = plt.subplots(
        len(budgets), len(kinds), figsize=size, layout="constrained", squeeze=False, sharex=True, sharey="col"
    )
    add_grids(axes.flat)
    for line, budget in zip(axes, budgets, strict=True):
        for axis, family in zip(line, kinds, strict=True):
            for method in ORDER:
                _draw(axis, where(rows, family=family, budget=budget, method=method), method)
            axis.set_xscale("log")
            axis.set_title(f"{family}, {budget} trainings", fontsize="medium")
        line[0].set_ylabel("test accuracy, %")
    for axis in axes[-1]:
        axis.set_xlabel("hypers")
    figure.legend(*axes[0, -1].get_legend_handles_labels(), loc="outside lower center", ncols=len(ORDER), fontsize="small")
    return figure


def _draw(axis: plt.Axes, rows: Sequence[Row], method: str) -> None:
    counts = sorted(distinct(rows, "n"))
    intervals = [interval(100 * column(where(rows, n=n), "accuracy")) for n in counts]
    means, halves = np.array([i.mean for i in intervals]), np.nan_to_num([i.half for i in intervals])
    colour, line = STYLES[method]
    marker = "o" if method in (OURS, STEPPING_BACK) else None
    axis.plot(counts, means, line, color=colour, label=method, marker=marker, markersize=3)
    axis.fill_between(counts, means - halves, means + halves, color=colour, alpha=0.12, linewidth=0)


STUDY = Study(
    "crossover",
    "How many hypers does it take for a gradient to pay off?",
    "Hypergradients, searches and plain training, given the same time, for 1 to 1,000 hypers.",
    Config, PRESETS, units, compute, tables, figures,
    {
        "ahead.md": Caption(
            "Test accuracy of hypergradients minus that of the best search (in brackets), in points, ± half a 95 % interval"
        ),
        "ahead_in_loss.md": Caption("Test loss of the best search minus that of hypergradients, in hundredths"),
        "ahead_with_compiling.md": Caption("The same as the first table, if the time for compiling counts"),
        "table.md": Caption("Test accuracy, %, after the time of a number of training runs; compiling is left out"),
        "with_compiling.md": Caption("Test accuracy, %, if the time for compiling counts"),
        "trainings.md": Caption("CPU seconds of a training run and of compiling; training runs in the longest budget"),
        "crossover.png": Caption("Test accuracy by the number of hypers, with 95 % intervals"),
        "crossover_short.png": Caption("The same for the middle budget"),
    },
    results,
    timing=("plain", "compiling", "time"),
    preset_help="full: four families, 1 to 1,000 hypers, five seeds; quick: one family, up to 100 hypers, ten trainings.",
    workers=2,
    check=check,
)  # fmt: skip

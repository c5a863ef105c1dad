"""Tables and the figure: F1 and accuracies of every way, for each scenario and number of trusted digits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.cleaning_compared.experiment import BOUNDS, BUDGET, DH, PRESETS, Config, compute, results, units
from experiments.common.figures import add_grids
from experiments.common.pool import Row
from experiments.common.statistics import interval
from experiments.common.study import Caption, Study
from experiments.common.tables import Table, column, distinct, mean, where


def tables(config: Config, rows: Sequence[Row], output: Path) -> dict[str, str]:
    """All tables in one file."""
    flagged, limited = flagged_rows(rows), where(rows, scenario=BUDGET)
    texts = [table(flagged, key) for key in ("f1", "accuracy")] + [differences(flagged)] if flagged else []
    return {"table.md": "\n".join([*texts, *([budget_table(limited)] if limited else []), seconds(rows)])}


def figures(config: Config, rows: Sequence[Row]) -> dict[str, plt.Figure]:
    """F1 against the number of trusted digits."""
    flagged = flagged_rows(rows)
    return {"f1": drawn(flagged)} if flagged else {}


def flagged_rows(rows: Sequence[Row]) -> list[Row]:
    """Those of ways to find wrong labels, rather than to keep as many as a budget allows."""
    return [row for row in rows if row["scenario"] != BUDGET]


def table(rows: Sequence[Row], key: str) -> str:
    """The mean over the seeds of F1, or of the test accuracy in per cent; the best of each row, bounds aside, is bold."""
    methods = [m for m in distinct(rows, "method") if key != "f1" or m not in BOUNDS]
    made = Table(f"{'F1' if key == 'f1' else 'accuracy, %'}: scenario", "trusted", *methods)
    for scenario, trusted in distinct(rows, "scenario", "trusted"):
        means = {m: mean(where(rows, scenario=scenario, trusted=trusted, method=m), key) for m in methods}
        best = max(value for m, value in means.items() if m not in BOUNDS)
        shown = {m: f"{value:.3f}" if key == "f1" else f"{100 * value:.2f}" for m, value in means.items()}
        cells = [f"**{shown[m]}**" if means[m] == best else shown[m] for m in methods]
        made.add(scenario, f"{trusted:,}", *cells)
    return str(made)


def differences(rows: Sequence[Row]) -> str:
    """Data hyper-cleaning minus every other way, paired over all seeds and numbers of trusted digits of a scenario."""
    methods = [m for m in distinct(rows, "method") if m not in BOUNDS and m != DH]
    made = Table(f"F1 of {DH} minus that of", *methods)
    for scenario in distinct(rows, "scenario"):
        of_scenario = where(rows, scenario=scenario)
        cells = []
        for method in methods:
            # Seeds are independent; different numbers of trusted digits of one seed are not.
            pairs = [
                column(where(of_scenario, trusted=n, method=DH), "f1", order="seed")
                - column(where(of_scenario, trusted=n, method=method), "f1", order="seed")
                for n in distinct(of_scenario, "trusted")
            ]
            gain = interval(np.mean(pairs, axis=0))
            cells.append(f"{gain.mean:+.3f}" + ("" if np.isnan(gain.half) else f" ± {gain.half:.3f}"))
        made.add(scenario, *cells)
    return str(made)


def budget_table(rows: Sequence[Row]) -> str:
    """Accuracies of models of what a budget allows, and how many of the kept labels are correct."""
    methods = distinct(rows, "method")
    made = Table("digits kept", *(f"{m}: accuracy, % (correct labels)" for m in methods))
    for budget in sorted(distinct(rows, "budget")):
        each = [where(rows, budget=budget, method=m) for m in methods]
        made.add(f"{budget:,}", *(f"{100 * mean(of, 'accuracy'):.2f} ({mean(of, 'correct'):.0%})" for of in each))
    return str(made)


def seconds(rows: Sequence[Row]) -> str:
    """Mean seconds of each way."""
    means = {m: mean(where(rows, method=m), "seconds") for m in distinct(rows, "method") if m not in BOUNDS}
    return "Seconds, on average: " + "; ".join(f"{m} {value:.1f}" for m, value in means.items()) + ".\n"


def drawn(rows: Sequence[Row]) -> plt.Figure:
    """F1 against the number of trusted digits, a panel for each scenario."""
    scenarios = distinct(rows, "scenario")
    methods = [m for m in distinct(rows, "method") if m not in BOUNDS]
    figure, axes = plt.subplots(
        1, len(scenarios), figsize=(3.2 * len(scenarios), 3.8), sharey=True, layout="constrained", squeeze=False
    )
    add_grids(axes.flat)
    for axis, scenario in zip(axes.flat, scenarios, strict=True):
        sizes = sorted(distinct(where(rows, scenario=scenario), "trusted"))
        for number, method in enumerate(methods):
            means = [mean(where(rows, scenario=scenario, trusted=n, method=method), "f1") for n in sizes]
            style = {"color": "black", "linewidth": 2.5} if method == DH else {"color": f"C{number}", "linewidth": 1.2}
            axis.plot(sizes, means, marker="o", markersize=4, label=method, **style)
        axis.set(xscale="log", title=scenario, xlabel="trusted digits")
    axes[0, 0].set_ylabel("F1 of the labels suspected")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    return figure


STUDY = Study(
    "cleaning_compared",
    "Hyper-cleaning, and what users do instead",
    "Trusted digits that are few, different or unbalanced: who finds the wrong labels?",
    Config, PRESETS, units, compute, tables, figures,
    {
        "table.md": Caption("F1 of the labels suspected, and accuracies of models of the others; means over seeds"),
        "f1.png": Caption("F1 against the number of trusted digits", always=False),
    },
    results,
    preset_help="full: three seeds; quick: 500 digits and few iterations.",
    workers=os.cpu_count() or 1,
)  # fmt: skip

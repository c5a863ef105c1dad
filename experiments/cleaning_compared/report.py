"""Tables and the figure: F1 and accuracies of every way, for each scenario and number of trusted digits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.cleaning_compared.experiment import BOUNDS, BUDGET, DH
from experiments.common.figures import add_grids, save_figure
from experiments.common.pool import Row
from experiments.common.results import write_text
from experiments.common.statistics import interval


def write(output: Path, rows: Sequence[Row]) -> str:
    """Writes tables and figure; returns the tables."""
    flagged = [row for row in rows if row["scenario"] != BUDGET]
    texts = [table(flagged, key) for key in ("f1", "accuracy")] if flagged else []
    if flagged:
        texts.append(differences(flagged))
        draw(flagged, output / "f1")
    if limited := [row for row in rows if row["scenario"] == BUDGET]:
        texts.append(budget_table(limited))
    text = "\n".join([*texts, seconds(rows)])
    write_text(output / "table.md", text)
    return text + f"\nWritten to {output}."


def table(rows: Sequence[Row], key: str) -> str:
    """The mean over the seeds of F1, or of the test accuracy in per cent; the best of each row, bounds aside, is bold."""
    methods = [m for m in dict.fromkeys(r["method"] for r in rows) if key != "f1" or m not in BOUNDS]
    lines = [f"| {'F1' if key == 'f1' else 'accuracy, %'}: scenario | trusted | {' | '.join(methods)} |"]
    lines.append("|---" * (2 + len(methods)) + "|")
    for scenario, trusted in dict.fromkeys((r["scenario"], r["trusted"]) for r in rows):
        means = {m: float(np.mean(_values(rows, scenario, trusted, m, key))) for m in methods}
        best = max(value for m, value in means.items() if m not in BOUNDS)
        shown = {m: f"{value:.3f}" if key == "f1" else f"{100 * value:.2f}" for m, value in means.items()}
        cells = [f"**{shown[m]}**" if means[m] == best else shown[m] for m in methods]
        lines.append(f"| {scenario} | {trusted:,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def differences(rows: Sequence[Row]) -> str:
    """Data hyper-cleaning minus every other way, paired over all seeds and numbers of trusted digits of a scenario."""
    methods = [m for m in dict.fromkeys(r["method"] for r in rows) if m not in BOUNDS and m != DH]
    lines = [f"| F1 of {DH} minus that of | {' | '.join(methods)} |", "|---" * (1 + len(methods)) + "|"]
    for scenario in dict.fromkeys(r["scenario"] for r in rows):
        sizes = dict.fromkeys(r["trusted"] for r in rows if r["scenario"] == scenario)
        cells = []
        for method in methods:
            # Seeds are independent; different numbers of trusted digits of one seed are not.
            pairs = [_values(rows, scenario, n, DH, "f1") - _values(rows, scenario, n, method, "f1") for n in sizes]
            found = interval(np.mean(pairs, axis=0))
            cells.append(f"{found.mean:+.3f}" + ("" if np.isnan(found.half) else f" ± {found.half:.3f}"))
        lines.append(f"| {scenario} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def budget_table(rows: Sequence[Row]) -> str:
    """Accuracies of models of what a budget allows, and how many of the kept labels are correct."""
    methods = list(dict.fromkeys(r["method"] for r in rows))
    lines = [f"| digits kept | {' | '.join(f'{m}: accuracy, % (correct labels)' for m in methods)} |"]
    lines.append("|---" * (1 + len(methods)) + "|")
    for budget in sorted({r["budget"] for r in rows}):
        own = {m: [r for r in rows if (r["budget"], r["method"]) == (budget, m)] for m in methods}
        cells = [
            f"{100 * np.mean([r['accuracy'] for r in found]):.2f} ({np.mean([r['correct'] for r in found]):.0%})"
            for found in own.values()
        ]
        lines.append(f"| {budget:,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def seconds(rows: Sequence[Row]) -> str:
    """Mean seconds of each way."""
    methods = [m for m in dict.fromkeys(r["method"] for r in rows) if m not in BOUNDS]
    means = {m: np.mean([r["seconds"] for r in rows if r["method"] == m]) for m in methods}
    return "Seconds, on average: " + "; ".join(f"{m} {value:.1f}" for m, value in means.items()) + ".\n"


def draw(rows: Sequence[Row], path: Path) -> None:
    """F1 against the number of trusted digits, a panel for each scenario."""
    scenarios = list(dict.fromkeys(r["scenario"] for r in rows))
    methods = [m for m in dict.fromkeys(r["method"] for r in rows) if m not in BOUNDS]
    figure, axes = plt.subplots(
        1, len(scenarios), figsize=(3.2 * len(scenarios), 3.8), sharey=True, layout="constrained", squeeze=False
    )
    add_grids(axes.flat)
    for axis, scenario in zip(axes.flat, scenarios, strict=True):
        sizes = sorted({r["trusted"] for r in rows if r["scenario"] == scenario})
        for number, method in enumerate(methods):
            means = [np.mean(_values(rows, scenario, n, method, "f1")) for n in sizes]
            style = {"color": "black", "linewidth": 2.5} if method == DH else {"color": f"C{number}", "linewidth": 1.2}
            axis.plot(sizes, means, marker="o", markersize=4, label=method, **style)
        axis.set(xscale="log", title=scenario, xlabel="trusted digits")
    axes[0, 0].set_ylabel("F1 of the labels suspected")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    save_figure(figure, path)


def _values(rows: Sequence[Row], scenario: str, trusted: int, method: str, key: str) -> np.ndarray:
    wanted = (scenario, trusted, method)
    own = [r for r in rows if (r["scenario"], r["trusted"], r["method"]) == wanted]
    return np.array([r[key] for r in sorted(own, key=lambda r: r["seed"])])

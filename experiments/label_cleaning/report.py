"""Tables of the comparison of ways to find wrong labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.pool import Row
from experiments.common.study import Caption, Study
from experiments.common.tables import Table, distinct, groups, mean, where
from experiments.label_cleaning.experiment import PRESETS, Config, compute, results, units


def tables(config: Config, rows: Sequence[Row], output: Path) -> dict[str, str]:
    """All tables in one file."""
    return {"table.md": f"{table(rows)}\n{means(rows)}\n{seconds(rows)}\n"}


def table(rows: Sequence[Row]) -> str:
    """F1 of each problem and method; the best of each row is bold."""
    methods = distinct(rows, "method")
    made = Table("data", "model", "noise", "trusted", *methods)
    for group in groups(rows, "data", "model", "noise", "share", "trusted"):
        scores = [mean(where(group, method=method), "f1") for method in methods]
        cells = [f"**{score:.3f}**" if score == max(scores) else f"{score:.3f}" for score in scores]
        first = group[0]
        made.add(first["data"], first["model"], f"{first['share']:.0%} {first['noise']}", first["trusted"], *cells)
    return str(made)


def means(rows: Sequence[Row]) -> str:
    """Mean F1 of each method over the problems with the same number of trusted examples."""
    methods = distinct(rows, "method")
    made = Table("trusted", *methods)
    for trusted in sorted(distinct(rows, "trusted")):
        scores = (mean(where(rows, trusted=trusted, method=method), "f1") for method in methods)
        made.add(f"{trusted:,}", *(f"{score:.3f}" for score in scores))
    return str(made)


def seconds(rows: Sequence[Row]) -> str:
    """Mean seconds of each method."""
    means = (f"{method} {mean(where(rows, method=method), 'seconds'):.1f}" for method in distinct(rows, "method"))
    return f"Seconds, on average: {'; '.join(means)}."


STUDY = Study(
    "label_cleaning",
    "Wrong labels, with few or many trusted ones",
    "Learned weights and refits find wrong labels, compared with what users do otherwise.",
    Config, PRESETS, units, compute, tables, lambda config, rows: {},
    {"table.md": Caption("F1 of the labels suspected, and means for each number of trusted examples")},
    results,
    preset_help="full: two data sets, two models each; quick: few examples of one data set.",
)  # fmt: skip

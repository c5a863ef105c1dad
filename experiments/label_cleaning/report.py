"""Tables of the comparison of ways to find wrong labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.common.results import write_text
from experiments.label_cleaning.experiment import Record


def write(output: Path, records: Sequence[Record]) -> str:
    """Writes the table; returns what to print."""
    text = f"{table(records)}\n{means(records)}\n{seconds(records)}\n"
    write_text(output / "table.md", text)
    return text


def table(records: Sequence[Record]) -> str:
    """F1 of each problem and method; the best of each row is bold."""
    methods = list(dict.fromkeys(r["method"] for r in records))
    lines = [f"| data | model | noise | trusted | {' | '.join(methods)} |", "|---" * (4 + len(methods)) + "|"]
    keys = ("data", "model", "noise", "share", "trusted")
    for key in dict.fromkeys(tuple(r[k] for k in keys) for r in records):
        own = [r for r in records if tuple(r[k] for k in keys) == key]
        scores = {m: float(np.mean([r["f1"] for r in own if r["method"] == m])) for m in methods}
        best = max(scores.values())
        cells = [f"**{score:.3f}**" if score == best else f"{score:.3f}" for score in scores.values()]
        data, model, noise, share, trusted = key
        lines.append(f"| {data} | {model} | {share:.0%} {noise} | {trusted} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def means(records: Sequence[Record]) -> str:
    """Mean F1 of each method over the problems with the same number of trusted examples."""
    methods = list(dict.fromkeys(r["method"] for r in records))
    lines = [f"| trusted | {' | '.join(methods)} |", "|---" * (1 + len(methods)) + "|"]
    for trusted in sorted({r["trusted"] for r in records}):
        own = [[r["f1"] for r in records if (r["trusted"], r["method"]) == (trusted, method)] for method in methods]
        lines.append(f"| {trusted:,} | {' | '.join(f'{np.mean(scores):.3f}' for scores in own)} |")
    return "\n".join(lines) + "\n"


def seconds(records: Sequence[Record]) -> str:
    """Mean seconds of each method."""
    methods = list(dict.fromkeys(r["method"] for r in records))
    means = {m: np.mean([r["seconds"] for r in records if r["method"] == m]) for m in methods}
    return "Seconds, on average: " + "; ".join(f"{m} {value:.1f}" for m, value in means.items()) + "."

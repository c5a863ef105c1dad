"""Tables and figures of real time on speech."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.common.figures import add_grids, save_figure
from experiments.common.pool import Row
from experiments.common.results import write_text
from experiments.common.statistics import difference
from experiments.speech_settings.experiment import CHOSEN, Outcome
from experiments.speech_settings.ways import DEFAULT, PAPER, PLAIN, RealTime

BASE = "Vanilla, no stopping"
NAMES = {False: "RTHO", True: "RTHO-NT"}


def write(output: Path, outcome: Outcome) -> str:
    """Writes what the parts allow; returns the tables."""
    texts = []
    if rows := outcome.rows.get("grid"):
        texts += [grid_table(rows, null) for null in NAMES]
        texts += [f"{CHOSEN[null]}: {settings}.\n" for null, settings in outcome.chosen.items()]
        draw_grid(rows, output / "grid")
    for part in ("sample", "sizes"):
        texts += [way_table(rows) for rows in by_corpus(outcome.rows.get(part, []))]
    if rows := outcome.rows.get("sizes"):
        draw_sizes(rows, output / "sizes")
    text = "\n".join(texts)
    write_text(output / "tables.md", text)
    return text + f"\nWritten to {output}."


def grid_table(rows: Sequence[Row], null: bool) -> str:
    """Validation accuracy of the best and of the last state, means over the folds."""
    own = [row for row in rows if row["settings"]["null_teacher"] == null]
    rates = sorted({row["settings"]["rate"] for row in own})
    titles = [f"{NAMES[null]}: validation accuracy %, best (last)", *(f"rate {rate:g}" for rate in rates)]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for delta, look in dict.fromkeys((row["settings"]["delta"], look_of(row)) for row in own):
        cells = []
        for rate in rates:
            found = [r for r in own if (r["settings"]["delta"], look_of(r), r["settings"]["rate"]) == (delta, look, rate)]
            best, last = (100 * np.mean([r[k] for r in found]) for k in ("validation_accuracy", "last_validation_accuracy"))
            cells.append(f"{best:.2f} ({last:.2f})")
        lines.append(f"| Delta {delta}, {look} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def look_of(row: Row) -> str:
    """How far back a hypergradient looks, in words."""
    carry, discount = row["settings"]["carry"], row["settings"]["discount"]
    return ("carry" if carry else "no carry") + (f", discount {discount:g}" if discount < 1 else "")


def by_corpus(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each corpus and budget."""
    keys = dict.fromkeys((corpus_of(row), row["budget"]) for row in rows)
    return [[row for row in rows if (corpus_of(row), row["budget"]) == key] for key in keys]


def corpus_of(row: Row) -> str:
    """The corpus of a row in words."""
    return "sample of TIMIT" if row["corpus"] else f"synthetic speech, {row['speakers']} speakers"


def way_table(rows: Sequence[Row]) -> str:
    """Accuracies of all ways, and what they have more than Vanilla without stopping; each fold counts once."""
    frames = np.mean([row["frames"] for row in rows])
    title = f"{corpus_of(rows[0])} (about {frames:,.0f} training frames), {rows[0]['budget']:,} steps"
    titles = [title, "test %, best state", "test %, last state", "validation %", "steps", "seconds"]
    titles += [f"best state minus {BASE}", "last state minus its best"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for way in dict.fromkeys(row["way"] for row in rows):
        own = [row for row in rows if row["way"] == way]
        means = [100 * np.mean([r[key] for r in own]) for key in ("accuracy", "last_accuracy", "validation_accuracy")]
        cells = [way, *(f"{mean:.2f}" for mean in means)]
        cells += [f"{np.mean([r['steps'] for r in own]):.0f}", f"{np.mean([r['seconds'] for r in own]):.0f}"]
        best, last, base = by_fold(own, "accuracy"), by_fold(own, "last_accuracy"), by_fold(_of(rows, BASE), "accuracy")
        cells += ["-" if way == BASE or not len(base) else str(difference(best, base)), str(difference(last, best))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def by_fold(rows: Sequence[Row], key: str) -> np.ndarray:
    """The mean over the seeds of each fold."""
    folds = sorted({row["fold"] for row in rows})
    return np.array([np.mean([row[key] for row in rows if row["fold"] == fold]) for fold in folds])


def _of(rows: Sequence[Row], way: str) -> list[Row]:
    return [row for row in rows if row["way"] == way]


def draw_grid(rows: Sequence[Row], path: Path) -> None:
    """Learning rates and validation accuracies along the trainings, with our settings and with the paper's."""
    shown = {"no carry, Delta 20": DEFAULT, "the paper's settings": PAPER, "carry, Delta 20": DEFAULT._replace(carry=True)}
    figure, axes = plt.subplots(2, 2, figsize=(11, 6.5), sharex=True, layout="constrained")
    add_grids(axes.flat)
    for column, null in enumerate(NAMES):
        for number, (label, settings) in enumerate(shown.items()):
            for row in (row for row in rows if RealTime(**row["settings"]) == settings._replace(null_teacher=null)):
                curve = row["curve"]
                name = label if row["fold"] == rows[0]["fold"] else None
                axes[0, column].plot(curve["steps"], curve["eta"], color=f"C{number}", label=name)
                accuracies = 100 * np.array(curve["validation accuracy"])
                axes[1, column].plot(curve["steps"], accuracies, color=f"C{number}", label=name)
        axes[0, column].set_title(NAMES[null])
        axes[1, column].set_xlabel("training steps")
    axes[0, 0].set_ylabel("learning rate")
    axes[1, 0].set_ylabel("validation accuracy, %")
    axes[0, 0].legend(fontsize="small")
    save_figure(figure, path)


def draw_sizes(rows: Sequence[Row], path: Path) -> None:
    """Test accuracies of all ways on each corpus and budget; dashed: without hypergradients."""
    figure, axis = plt.subplots(figsize=(9.5, 5.5), layout="constrained")
    add_grids([axis])
    groups = by_corpus(rows)
    for number, way in enumerate(dict.fromkeys(row["way"] for row in rows)):
        means = [100 * np.mean([row["accuracy"] for row in group if row["way"] == way]) for group in groups]
        style = "o--" if way in PLAIN else "o-"
        axis.plot(range(len(groups)), means, style, color=plt.get_cmap("tab20")(number), label=way)
    places = [f"{group[0]['speakers']} speakers\n{group[0]['budget']:,} steps" for group in groups]
    axis.set_xticks(range(len(groups)), places)
    axis.set(ylabel="test accuracy, %")
    axis.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)

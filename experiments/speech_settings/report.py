"""Tables and figures of real time on speech."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.common.figures import add_grids
from experiments.common.pool import Row
from experiments.common.statistics import difference
from experiments.common.study import Caption, Study
from experiments.common.tables import Table, distinct, groups, mean, where
from experiments.speech_settings.experiment import CHOSEN, PRESETS, Config, choose, compute, results, units
from experiments.speech_settings.ways import DEFAULT, PAPER, PLAIN, RealTime

BASE = "Vanilla, no stopping"
NAMES = {False: "RTHO", True: "RTHO-NT"}


def tables(config: Config, rows: Sequence[Row], output: Path) -> dict[str, str]:
    """What the parts allow, in one file."""
    texts = []
    if grid := where(rows, part="grid"):
        texts += [grid_table(grid, null) for null in NAMES]
        texts += [f"{CHOSEN[null]}: {settings}.\n" for null, settings in choose(grid).items()]
    for part in ("sample", "sizes"):
        texts += [way_table(of_corpus) for of_corpus in by_corpus(where(rows, part=part))]
    return {"tables.md": "\n".join(texts)}


def figures(config: Config, rows: Sequence[Row]) -> dict[str, plt.Figure]:
    """What the parts allow."""
    grid, sizes = where(rows, part="grid"), where(rows, part="sizes")
    return ({"grid": drawn_grid(grid)} if grid else {}) | ({"sizes": drawn_sizes(sizes)} if sizes else {})


def grid_table(rows: Sequence[Row], null: bool) -> str:
    """Validation accuracy of the best and of the last state, means over the folds."""
    settings = [{**row, **row["settings"], "look": look_of(row)} for row in rows if row["settings"]["null_teacher"] == null]
    rates = sorted(distinct(settings, "rate"))
    made = Table(f"{NAMES[null]}: validation accuracy %, best (last)", *(f"rate {rate:g}" for rate in rates))
    for delta, look in distinct(settings, "delta", "look"):
        each = [where(settings, delta=delta, look=look, rate=rate) for rate in rates]
        last = "last_validation_accuracy"
        cells = [f"{100 * mean(of, 'validation_accuracy'):.2f} ({100 * mean(of, last):.2f})" for of in each]
        made.add(f"Delta {delta}, {look}", *cells)
    return str(made)


def look_of(row: Row) -> str:
    """How far back a hypergradient looks, in words."""
    carry, discount = row["settings"]["carry"], row["settings"]["discount"]
    return ("carry" if carry else "no carry") + (f", discount {discount:g}" if discount < 1 else "")


def by_corpus(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each corpus and budget."""
    return groups([{**row, "of": corpus_of(row)} for row in rows], "of", "budget")


def corpus_of(row: Row) -> str:
    """The corpus of a row in words."""
    return "sample of TIMIT" if row["corpus"] else f"synthetic speech, {row['speakers']} speakers"


def way_table(rows: Sequence[Row]) -> str:
    """Accuracies of all ways, and what they have more than Vanilla without stopping; each fold counts once."""
    frames = np.mean([row["frames"] for row in rows])
    title = f"{corpus_of(rows[0])} (about {frames:,.0f} training frames), {rows[0]['budget']:,} steps"
    titles = ["test %, best state", "test %, last state", "validation %", "steps", "seconds"]
    made = Table(title, *titles, f"best state minus {BASE}", "last state minus its best")
    base = by_fold(where(rows, way=BASE), "accuracy")
    for way in distinct(rows, "way"):
        of_way = where(rows, way=way)
        means = [f"{100 * mean(of_way, key):.2f}" for key in ("accuracy", "last_accuracy", "validation_accuracy")]
        costs = [f"{mean(of_way, key):.0f}" for key in ("steps", "seconds")]
        best, last = by_fold(of_way, "accuracy"), by_fold(of_way, "last_accuracy")
        gain = "-" if way == BASE or not len(base) else str(difference(best, base))
        made.add(way, *means, *costs, gain, difference(last, best))
    return str(made)


def by_fold(rows: Sequence[Row], key: str) -> np.ndarray:
    """The mean over the seeds of each fold."""
    return np.array([mean(where(rows, fold=fold), key) for fold in sorted(distinct(rows, "fold"))])


def drawn_grid(rows: Sequence[Row]) -> plt.Figure:
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
    return figure


def drawn_sizes(rows: Sequence[Row]) -> plt.Figure:
    """Test accuracies of all ways on each corpus and budget; dashed: without hypergradients."""
    figure, axis = plt.subplots(figsize=(9.5, 5.5), layout="constrained")
    add_grids([axis])
    corpora = by_corpus(rows)
    for number, way in enumerate(distinct(rows, "way")):
        means = [100 * mean(where(of_corpus, way=way), "accuracy") for of_corpus in corpora]
        style = "o--" if way in PLAIN else "o-"
        axis.plot(range(len(corpora)), means, style, color=plt.get_cmap("tab20")(number), label=way)
    places = [f"{of_corpus[0]['speakers']} speakers\n{of_corpus[0]['budget']:,} steps" for of_corpus in corpora]
    axis.set_xticks(range(len(corpora)), places)
    axis.set(ylabel="test accuracy, %")
    axis.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


STUDY = Study(
    "speech_settings",
    "Real time on speech: settings and the amount of speech",
    "How phone classification in real time depends on its settings, beside other ways to train.",
    Config, PRESETS, units, compute, tables, figures,
    {
        "tables.md": Caption("Validation accuracies of the grid; test accuracies of all ways; each fold counts once"),
        "grid.png": Caption("Learning rates and validation accuracies with our settings and the paper's", always=False),
        "sizes.png": Caption("What each way gains over training with fixed hypers, against training frames", always=False),
    },
    results,
    preset_help="full: the tables; quick: four speakers and 40 steps.",
    workers=1,
)  # fmt: skip

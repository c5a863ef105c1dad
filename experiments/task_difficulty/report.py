"""Tables and the figure: accuracies, gains against difficulty and against the number of examples, and groups of classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from data.cifar_features import load
from experiments.common.figures import add_grids
from experiments.common.pool import Row
from experiments.common.statistics import Difference, difference
from experiments.common.study import Caption, Study
from experiments.common.tables import Table, column, distinct, where
from experiments.common.tables import groups as in_groups
from experiments.task_difficulty import groups
from experiments.task_difficulty.experiment import PAPER, PRESETS, Config, Level, calibrated, check, results, units
from experiments.task_difficulty.units import CHOSEN, Unit, compute, interactions

BASELINES = ("STL", "STL-1")
FITS = {"accuracy": "", "accuracy_refit": ", re-fit"}
LABELS = {
    "original": "original features",
    "components": "{:g} principal components",
    "projection": "{:g} random projections",
    "noise": "noise of {:g} sd",
}


def label(kind: str, strength: float) -> str:
    """The features of a row in words."""
    return LABELS[kind].format(strength)


def tables(config: Config, rows: Sequence[Row], output: Path) -> dict[str, str]:
    """Everything that the parts allow, in one file."""
    texts = [calibration_table(dataset, levels) for dataset, levels in calibrations(rows).items()]
    for part in ("matched", "sizes", "full", "cifar100"):
        texts += [method_table(of_setting) for of_setting in by_setting(where(rows, part=part))]
    if gains := where(rows, part="gains"):
        texts.append(gain_table(gains, calibrations(rows)["cifar10"]))
    for part in ("matched", "cifar100"):
        texts += [group_table(of_setting, output) for of_setting in by_setting(where(rows, part=part))]
    return {"tables.md": "\n".join(text for text in texts if text)}


def figures(config: Config, rows: Sequence[Row]) -> dict[str, plt.Figure]:
    """The gains against difficulty."""
    gains = where(rows, part="gains")
    return {"gains": drawn_gains(gains, calibrations(rows)["cifar10"])} if gains else {}


def calibrations(rows: Sequence[Row]) -> dict[str, list[Level]]:
    """The levels of difficulty by data set."""
    return {
        dataset: calibrated(where(rows, part=part))
        for part, dataset in distinct(rows, "part", "dataset")
        if part.startswith("calibration")
    }


def calibration_table(dataset: str, levels: Sequence[Level]) -> str:
    """STL's accuracy at every level."""
    made = Table(f"{dataset}: features", f"STL on calibration splits, % (paper {100 * PAPER[dataset]:.2f})")
    for kind, strength, accuracy in levels:
        made.add(label(kind, strength), f"{100 * accuracy:.2f}")
    return str(made)


def method_table(rows: Sequence[Row]) -> str:
    """Accuracies of all methods in one setting, mean ± standard deviation, and paired differences with 95 % intervals."""
    first, splits = rows[0], len(distinct(rows, "seed"))
    length = ", original settings" if first["full"] else ""
    features = label(first["kind"], first["strength"])
    title = f"{first['dataset']}, {features}, {first['per_class']} per class{length} ({splits} splits)"
    pairs = [(base, key) for base in BASELINES for key in FITS]
    titles = [*(f"accuracy %{fit}" for fit in FITS.values()), *(f"minus {base}{FITS[key]}" for base, key in pairs)]
    made = Table(title, *titles)
    for method in distinct(rows, "method"):
        cells = [_spread(100 * _values(rows, method, key)) for key in FITS]
        made.add(method, *cells, *("-" if method == base else _difference(rows, method, base, key) for base, key in pairs))
    chosen = [f"{row['R']:g}" for row in rows if row["method"] == CHOSEN]
    note = (
        f"\nChosen R: {', '.join(f'{r} in {chosen.count(r)}' for r in sorted(set(chosen), key=float))}.\n" if chosen else ""
    )
    return str(made) + note


def gain_table(rows: Sequence[Row], levels: Sequence[Level]) -> str:
    """Paired differences at every level of difficulty."""
    pairs = [(method, base, key) for method in ("HMTL", "HMTL-S") for base in BASELINES for key in FITS]
    titles = [f"{method} minus {base}{FITS[key]}" for method, base, key in pairs]
    made = Table("features", "STL on calibration splits, %", *titles)
    for level in sorted(levels, key=lambda level: level.accuracy):
        at_level = where(rows, kind=level.kind, strength=level.strength)
        made.add(label(*level[:2]), f"{100 * level.accuracy:.2f}", *(_difference(at_level, *pair) for pair in pairs))
    return str(made)


def drawn_gains(rows: Sequence[Row], levels: Sequence[Level]) -> plt.Figure:
    """The gain over STL and over STL-1 against STL's accuracy, one panel for each and for each fit."""
    figure, axes = plt.subplots(2, 2, figsize=(10, 7.5), sharex=True, sharey=True, layout="constrained")
    add_grids(axes.flat)
    colours = {"components": "tab:blue", "projection": "tab:green", "noise": "tab:red", "original": "black"}
    for axis, (base, key) in zip(axes.flat, [(base, key) for key in FITS for base in BASELINES], strict=True):
        for method, marker, fill in (("HMTL-S", "o", "full"), ("HMTL", "s", "none")):
            beside = -0.3 if method == "HMTL-S" else 0.3  # so that neither hides the other
            for level in levels:
                gain = _difference(where(rows, kind=level.kind, strength=level.strength), method, base, key)
                axis.errorbar(
                    100 * level.accuracy + beside,
                    gain.mean,
                    gain.half,
                    fmt=marker,
                    fillstyle=fill,
                    color=colours[level.kind],
                    capsize=2,
                )
        axis.axhline(0, color="0.3", linewidth=1)
        axis.axvline(100 * PAPER["cifar10"], color="0.6", linestyle=":")
        axis.set_title(f"minus {base}{FITS[key]}")
    for kind in dict.fromkeys(level.kind for level in levels):
        axes[0, 0].errorbar([], [], fmt="o", color=colours[kind], label=kind)
    for method, marker, fill in (("HMTL-S", "o", "full"), ("HMTL", "s", "none")):
        axes[0, 0].plot([], [], marker, fillstyle=fill, color="0.4", label=method)
    axes[0, 0].legend(fontsize="small")
    figure.supxlabel("accuracy of STL on calibration splits, % (dotted: the paper's)")
    figure.supylabel("gain in accuracy, points, with 95 % interval")
    return figure


def group_table(rows: Sequence[Row], output: Path) -> str:
    """Whether the mean C of a method is stronger inside known groups of classes."""
    dataset = rows[0]["dataset"]
    names = load().class_names if dataset == "cifar10" else ()
    known = (
        {name: groups.members(names, parts) for name, parts in groups.CIFAR10.items()}
        if dataset == "cifar10"
        else {"superclasses": groups.superclasses()}
    )
    title = f"{dataset}, {label(rows[0]['kind'], rows[0]['strength'])}: mean C of"
    made = Table(title, "groups", "inside", "across", "p", "splits where inside exceeds across")
    empty = str(made)
    for method in distinct(rows, "method"):
        files = [interactions(output, _unit(row)) for row in where(rows, method=method)]
        learned = [np.load(file) for file in files if file.exists()]
        for name, group in known.items() if learned else ():
            result = groups.permutation_test(np.mean(learned, axis=0), group)
            higher = sum(np.greater(*groups.means(c, group)) for c in learned)
            cells = f"{result.inside:.3g}", f"{result.across:.3g}", f"{result.p:.4f}", f"{higher} of {len(learned)}"
            made.add(method, name, *cells)
    return "" if str(made) == empty else str(made)


def _unit(row: Row) -> Unit:
    return Unit(**{field: row[field] for field in Unit._fields})


def by_setting(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each setting that has a table of its own."""
    return in_groups(rows, "dataset", "kind", "strength", "per_class", "full")


def _difference(rows: Sequence[Row], method: str, base: str, key: str) -> Difference:
    return difference(_values(rows, method, key), _values(rows, base, key))


def _values(rows: Sequence[Row], method: str, key: str) -> np.ndarray:
    return column(where(rows, method=method), key, order="seed")


def _spread(values: np.ndarray) -> str:
    return f"{values.mean():.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")


STUDY = Study(
    "task_difficulty",
    "Task interactions at the paper's level of difficulty",
    "Weaker features, other numbers of examples, and whether the learned interactions agree with known groups.",
    Config, PRESETS, units, compute, tables, figures,
    {
        "tables.md": Caption("Accuracies, paired differences ± half a 95 % interval, and groups of classes"),
        "gains.png": Caption("What learning interactions gains, against the accuracy of STL", always=False),
    },
    results,
    preset_help="paper: everything; quick: two splits, ten hyper-iterations.",
    workers=os.cpu_count() or 1,
    check=check,
)  # fmt: skip

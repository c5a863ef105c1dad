"""Tables and the figure: accuracies, gains against difficulty and against the number of examples, and groups of classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from data.cifar_features import load
from experiments.common.figures import add_grids, save_figure
from experiments.common.pool import Row
from experiments.common.results import write_text
from experiments.common.statistics import Difference, difference
from experiments.task_difficulty import groups
from experiments.task_difficulty.experiment import PAPER, Level, Outcome
from experiments.task_difficulty.units import CHOSEN, Unit, interactions

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


def write(output: Path, outcome: Outcome) -> str:
    """Writes everything that the parts allow; returns the tables."""
    texts = [calibration_table(dataset, found) for dataset, found in outcome.levels.items()]
    for part in ("matched", "sizes", "full", "cifar100"):
        for rows in _by_setting(outcome.rows.get(part, [])):
            texts.append(method_table(rows))
    if "gains" in outcome.rows:
        texts.append(gain_table(outcome.rows["gains"], outcome.levels["cifar10"]))
        draw_gains(outcome.rows["gains"], outcome.levels["cifar10"], output / "gains")
    for part in ("matched", "cifar100"):
        for rows in _by_setting(outcome.rows.get(part, [])):
            texts.append(group_table(rows, output))
    text = "\n".join(text for text in texts if text)
    write_text(output / "tables.md", text)
    return text + f"\nWritten to {output}."


def calibration_table(dataset: str, found: Sequence[Level]) -> str:
    """STL's accuracy at every level."""
    lines = [f"| {dataset}: features | STL on calibration splits, % (paper {100 * PAPER[dataset]:.2f}) |", "|---|---|"]
    return "\n".join([*lines, *(f"| {label(*level[:2])} | {100 * level.accuracy:.2f} |" for level in found)]) + "\n"


def method_table(rows: Sequence[Row]) -> str:
    """Accuracies of all methods in one setting, mean ± standard deviation, and paired differences with 95 % intervals."""
    first, methods = rows[0], dict.fromkeys(row["method"] for row in rows)
    splits = len({row["seed"] for row in rows})
    length = ", original settings" if first["full"] else ""
    features = label(first["kind"], first["strength"])
    title = f"{first['dataset']}, {features}, {first['per_class']} per class{length} ({splits} splits)"
    titles = [title, *(f"accuracy %{fit}" for fit in FITS.values())]
    titles += [f"minus {base}{fit}" for base in BASELINES for fit in FITS.values()]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for method in methods:
        cells = [_spread(100 * _values(rows, method, key)) for key in FITS]
        for base in BASELINES:
            for key in FITS:
                pair = _values(rows, method, key), _values(rows, base, key)
                cells.append("-" if method == base else str(difference(*pair)))
        lines.append(f"| {' | '.join([method, *cells])} |")
    chosen = [f"{row['R']:g}" for row in rows if row["method"] == CHOSEN]
    note = (
        f"\nChosen R: {', '.join(f'{r} in {chosen.count(r)}' for r in sorted(set(chosen), key=float))}.\n" if chosen else ""
    )
    return "\n".join(lines) + "\n" + note


def gain_table(rows: Sequence[Row], found: Sequence[Level]) -> str:
    """Paired differences at every level of difficulty."""
    titles = ["features", "STL on calibration splits, %"]
    pairs = [(method, base) for method in ("HMTL", "HMTL-S") for base in BASELINES]
    titles += [f"{method} minus {base}{fit}" for method, base in pairs for fit in FITS.values()]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for level in sorted(found, key=lambda level: level.accuracy):
        own = [row for row in rows if (row["kind"], row["strength"]) == level[:2]]
        cells = [str(_difference(own, method, base, key)) for method, base in pairs for key in FITS]
        lines.append(f"| {' | '.join([label(*level[:2]), f'{100 * level.accuracy:.2f}', *cells])} |")
    return "\n".join(lines) + "\n"


def draw_gains(rows: Sequence[Row], found: Sequence[Level], path: Path) -> None:
    """The gain over STL and over STL-1 against STL's accuracy, one panel for each and for each fit."""
    figure, axes = plt.subplots(2, 2, figsize=(10, 7.5), sharex=True, sharey=True, layout="constrained")
    add_grids(axes.flat)
    colours = {"components": "tab:blue", "projection": "tab:green", "noise": "tab:red", "original": "black"}
    for axis, (base, key) in zip(axes.flat, [(base, key) for key in FITS for base in BASELINES], strict=True):
        for method, marker, fill in (("HMTL-S", "o", "full"), ("HMTL", "s", "none")):
            beside = -0.3 if method == "HMTL-S" else 0.3  # so that neither hides the other
            for level in found:
                own = [row for row in rows if (row["kind"], row["strength"]) == level[:2]]
                gain = _difference(own, method, base, key)
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
    for kind in dict.fromkeys(level.kind for level in found):
        axes[0, 0].errorbar([], [], fmt="o", color=colours[kind], label=kind)
    for method, marker, fill in (("HMTL-S", "o", "full"), ("HMTL", "s", "none")):
        axes[0, 0].plot([], [], marker, fillstyle=fill, color="0.4", label=method)
    axes[0, 0].legend(fontsize="small")
    figure.supxlabel("accuracy of STL on calibration splits, % (dotted: the paper's)")
    figure.supylabel("gain in accuracy, points, with 95 % interval")
    save_figure(figure, path)


def group_table(rows: Sequence[Row], output: Path) -> str:
    """Whether the mean C of a method is stronger inside known groups of classes."""
    dataset = rows[0]["dataset"]
    names = load().class_names if dataset == "cifar10" else ()
    known = (
        {name: groups.members(names, parts) for name, parts in groups.CIFAR10.items()}
        if dataset == "cifar10"
        else {"superclasses": groups.superclasses()}
    )
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        files = [interactions(output, _unit(row)) for row in rows if row["method"] == method]
        found = [np.load(file) for file in files if file.exists()]
        if found:
            mean = np.mean(found, axis=0)
            for name, group in known.items():
                result = groups.permutation_test(mean, group)
                higher = sum(np.greater(*groups.means(c, group)) for c in found)
                cells = f"{result.inside:.3g} | {result.across:.3g} | {result.p:.4f} | {higher} of {len(found)}"
                lines.append(f"| {method} | {name} | {cells} |")
    if not lines:
        return ""
    title = f"{dataset}, {label(rows[0]['kind'], rows[0]['strength'])}: mean C of"
    head = [f"| {title} | groups | inside | across | p | splits where inside exceeds across |", "|---" * 6 + "|"]
    return "\n".join([*head, *lines]) + "\n"


def _unit(row: Row) -> Unit:
    return Unit(**{field: row[field] for field in Unit._fields})


def _by_setting(rows: Sequence[Row]) -> list[list[Row]]:
    fields = ("dataset", "kind", "strength", "per_class", "full")
    keys = dict.fromkeys(tuple(row[field] for field in fields) for row in rows)
    return [[row for row in rows if tuple(row[field] for field in fields) == key] for key in keys]


def _difference(rows: Sequence[Row], method: str, base: str, key: str) -> Difference:
    return difference(_values(rows, method, key), _values(rows, base, key))


def _values(rows: Sequence[Row], method: str, key: str) -> np.ndarray:
    return np.array([row[key] for row in sorted(rows, key=lambda row: row["seed"]) if row["method"] == method])


def _spread(values: np.ndarray) -> str:
    return f"{values.mean():.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")

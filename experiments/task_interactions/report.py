"""Tables and figures of the task-interaction experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from data.cifar_features import VEHICLES
from experiments.common.figures import save_figure, slug
from experiments.common.results import write_text
from experiments.common.statistics import Difference
from experiments.common.statistics import difference as paired_difference
from experiments.task_interactions.experiment import COMPARED, Row

PAPER = {
    "cifar10, 5 per class": {
        "STL": "67.47 ± 2.78", "NMTL": "69.41 ± 1.90", "HMTL": "70.85 ± 1.87", "HMTL-S": "71.62 ± 1.34",
        "Dinuzzo": "69.96 ± 1.85", "Jawanpuria p=2": "70.30 ± 1.05", "Jawanpuria p=4/3": "70.96 ± 1.04",
    },
    "cifar100, 3 per class": {
        "STL": "18.99 ± 1.12", "NMTL": "19.19 ± 0.75", "HMTL": "21.15 ± 0.36", "HMTL-S": "22.09 ± 0.29",
    },
}  # fmt: skip
COLOURS = {"animals": "tab:orange", "vehicles": "tab:blue", "across": "0.45"}

Interactions = dict[tuple[str, int], np.ndarray]


class Edges(NamedTuple):
    """Means of the off-diagonal entries of C: between two animals, between two vehicles, and between one of each."""

    animals: float
    vehicles: float
    across: float


def write(output: Path, results: list[Row], interactions: Interactions, names: Sequence[str]) -> str:
    """Writes tables and figures for one data set; returns what to print."""
    methods = dict.fromkeys(row["method"] for row in results)
    tuned = [method for method in methods if method not in COMPARED]
    texts = {"table_2.md": table(results, tuned)}
    if len(tuned) < len(methods):
        texts["table_4.md"] = table(results, [method for method in (*COMPARED, "HMTL-S") if method in methods])
    for method, mean in _means(interactions).items():
        np.save(output / f"C_{slug(method)}.npy", mean)
        heat_map(mean, names, f"Mean C of {method}", output / f"heat_map_{slug(method)}")
        if method in tuned and set(VEHICLES) <= set(names):
            texts[f"edges_{slug(method)}.md"] = edge_table(method, interactions, names)
            figure = "figure_3" if method == "HMTL-S" else f"graph_{slug(method)}"
            graph(mean, names, f"Interactions learned by {method}", output / figure)
    for name, text in texts.items():
        write_text(output / name, text)
    return "\n".join(texts.values()) + f"\nWritten to {output}."


def table(results: list[Row], methods: Sequence[str]) -> str:
    """Accuracies, mean ± standard deviation over the splits; paired differences from STL and STL-1 with 95 % intervals."""
    data = results[0]["data"]
    splits = len({row["seed"] for row in results})
    baselines = [m for m in ("STL", "STL-1") if any(row["method"] == m for row in results)]
    keys = {"accuracy": "", "accuracy_refit": ", re-fit"}
    titles = [f"{data} ({splits} splits)", *(f"accuracy %{fit}" for fit in keys.values())]
    titles += [f"minus {baseline}{fit}" for baseline in baselines for fit in keys.values()]
    titles += ["paper: accuracy %"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for method in methods:
        cells = [_spread(_values(results, method, key)) for key in keys]
        pairs = [(baseline, key) for baseline in baselines for key in keys]
        cells += ["-" if method == base else str(difference(results, method, base, key)) for base, key in pairs]
        lines.append(f"| {' | '.join([method, *cells, PAPER.get(data, {}).get(method, '-')])} |")
    return "\n".join(lines) + "\n"


def difference(results: list[Row], method: str, baseline: str, key: str) -> Difference:
    """The accuracy of a method minus that of a baseline, over the splits."""
    return paired_difference(_values(results, method, key), _values(results, baseline, key))


def _values(results: list[Row], method: str, key: str) -> np.ndarray:
    return np.array([row[key] for row in sorted(results, key=lambda row: row["seed"]) if row["method"] == method])


def _spread(values: np.ndarray) -> str:
    mean = f"{100 * values.mean():.2f}"
    return mean if len(values) == 1 else f"{mean} ± {100 * values.std(ddof=1):.2f}"


def edges(c: np.ndarray, names: Sequence[str]) -> Edges:
    """The mean entries of one C."""
    vehicle = np.isin(names, VEHICLES)
    off = ~np.eye(len(names), dtype=bool)
    inside = [c[np.outer(group, group) & off].mean() for group in (~vehicle, vehicle)]
    return Edges(float(inside[0]), float(inside[1]), float(c[np.outer(vehicle, ~vehicle)].mean()))


def edge_table(method: str, interactions: Interactions, names: Sequence[str]) -> str:
    """The mean edges of a method over the splits, and in how many splits those inside a group exceed those across."""
    means = np.array([edges(c, names) for (m, _), c in interactions.items() if m == method])
    stronger = np.sum(means[:, :2] > means[:, 2:], axis=0)
    lines = [f"| {method}: mean C_jk | mean over splits | splits where it exceeds across |", "|---|---|---|"]
    for i, name in enumerate(("inside animals", "inside vehicles", "across")):
        lines.append(f"| {name} | {means[:, i].mean():.3g} | {f'{stronger[i]} of {len(means)}' if i < 2 else '-'} |")
    return "\n".join(lines) + "\n"


def _means(interactions: Interactions) -> dict[str, np.ndarray]:
    methods = dict.fromkeys(m for m, _ in interactions)
    return {method: np.mean([c for (m, _), c in interactions.items() if m == method], axis=0) for method in methods}


def speed(pace: dict[str, float]) -> str:
    """Seconds per hyper-iteration of each method, the mean over the splits."""
    by_method: dict[str, list[float]] = {}
    for title, seconds in pace.items():
        by_method.setdefault(title.rsplit(" seed ", 1)[0], []).append(seconds)
    return "Seconds per hyper-iteration: " + ", ".join(f"{name} {np.mean(s):.3f}" for name, s in by_method.items()) + "."


def heat_map(c: np.ndarray, names: Sequence[str], title: str, path: Path) -> None:
    """C as an image; animals and vehicles are grouped if the classes have these names."""
    order = _by_group(names)
    figure, axis = plt.subplots(figsize=(6.2, 5.2), layout="constrained")
    image = axis.imshow(c[np.ix_(order, order)], cmap="viridis", vmin=min(0.0, float(c.min())))
    figure.colorbar(image, ax=axis, label="$C_{jk}$")
    if len(names) <= 20:
        axis.set_xticks(range(len(names)), [names[i] for i in order], rotation=60, ha="right")
        axis.set_yticks(range(len(names)), [names[i] for i in order])
    else:
        axis.set(xlabel="class", ylabel="class")
    axis.set_title(title)
    save_figure(figure, path)


def graph(c: np.ndarray, names: Sequence[str], title: str, path: Path) -> None:
    """The classes on a circle, with edges as wide as C_jk; colour and place tell animals from vehicles."""
    order = _by_group(names)
    angles = 2 * np.pi * np.arange(len(order)) / len(order)
    places = {i: (np.cos(a), np.sin(a)) for i, a in zip(order, angles, strict=True)}
    figure, axis = plt.subplots(figsize=(6.2, 5.8), layout="constrained")
    largest = max(float(np.max(c - np.diag(np.diag(c)))), np.finfo(float).tiny)
    groups = ["vehicles" if name in VEHICLES else "animals" for name in names]
    _draw_edges(axis, c / largest, groups, places)
    for i in order:
        x, y = places[i]
        axis.scatter([x], [y], s=160, color=COLOURS[groups[i]], zorder=3)
        axis.annotate(
            names[i], (1.13 * x, 1.13 * y), ha="center" if abs(x) < 0.5 else "left" if x > 0 else "right", va="center"
        )
    for label, colour in COLOURS.items():
        axis.plot([], [], color=colour, linewidth=3, label=label)
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, -0.08), ncols=3, frameon=False)
    axis.set(xlim=(-1.65, 1.65), ylim=(-1.3, 1.3), aspect="equal")
    axis.axis("off")
    axis.set_title(f"{title}\nwidest edge: $C_{{jk}}$ = {largest:.2g}")
    save_figure(figure, path)


def _draw_edges(
    axis: plt.Axes, strengths: np.ndarray, groups: Sequence[str], places: dict[int, tuple[float, float]]
) -> None:
    for j in range(len(groups)):
        for k in range(j):
            strength = strengths[j, k]
            (xj, yj), (xk, yk) = places[j], places[k]
            colour = COLOURS[groups[j] if groups[j] == groups[k] else "across"]
            axis.plot([xj, xk], [yj, yk], color=colour, linewidth=7 * strength, alpha=0.25 + 0.6 * strength)


def _by_group(names: Sequence[str]) -> list[int]:
    return sorted(range(len(names)), key=lambda i: (names[i] in VEHICLES, i))

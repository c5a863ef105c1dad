"""Tables and figures of the task-interaction experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from data.cifar_features import VEHICLES
from experiments.common import binary as common

PAPER = {
    "cifar10, 5 per class": {
        "STL": "67.47 ± 2.78", "NMTL": "69.41 ± 1.90", "HMTL": "70.85 ± 1.87", "HMTL-S": "71.62 ± 1.34",
        "Dinuzzo": "69.96 ± 1.85", "Jawanpuria p=2": "70.30 ± 1.05", "Jawanpuria p=4/3": "70.96 ± 1.04",
    },
    "cifar100, 3 per class": {
        "STL": "18.99 ± 1.12", "NMTL": "19.19 ± 0.75", "HMTL": "21.15 ± 0.36", "HMTL-S": "22.09 ± 0.29",
    },
}  # fmt: skip
COMPARED = ("Dinuzzo", "Jawanpuria p=2", "Jawanpuria p=4/3", "HMTL-S")  # Table 4

Row = dict[str, Any]
Interactions = dict[tuple[str, int], np.ndarray]


class Edges(NamedTuple):
    """The mean entry of C, off the diagonal, between two of one group, by group; and between the groups."""

    animals: float
    vehicles: float
    across: float


def write(output: Path, results: list[Row], interactions: Interactions, names: Sequence[str]) -> str:
    """Writes tables and figures for one data set; returns what to print."""
    own = [row["method"] for row in results if row["method"] not in COMPARED[:-1]]
    texts = {"table_2.md": table(results, own)}
    if len(own) < len(results):
        texts["table_4.md"] = table(results, [m for m in COMPARED if any(row["method"] == m for row in results)])
    for method, mean in _means(interactions).items():
        np.save(output / f"C_{common.slug(method)}.npy", mean)
        heat_map(mean, names, f"Mean C of {method}", output / f"heat_map_{common.slug(method)}")
        if method in own and set(VEHICLES) <= set(names):
            texts[f"edges_{common.slug(method)}.md"] = edge_table(method, interactions, names)
            figure = "figure_3" if method == "HMTL-S" else f"graph_{common.slug(method)}"
            graph(mean, names, f"Interactions learned by {method}", output / figure)
    for name, text in texts.items():
        common.write_text(output / name, text)
    return "\n".join(texts.values()) + f"\nWritten to {output}."


def table(results: list[Row], methods: Sequence[str]) -> str:
    """Accuracies, mean ± standard deviation over the splits; paired differences to STL and STL-1 with 95 % intervals."""
    data = results[0]["data"]
    splits = len({row["seed"] for row in results})
    others = [m for m in ("STL", "STL-1") if any(row["method"] == m for row in results)]
    keys = {"accuracy": "", "accuracy_refit": ", re-fit"}
    titles = [f"{data} ({splits} splits)", *(f"accuracy %{fit}" for fit in keys.values())]
    titles += [f"minus {other}{fit}" for other in others for fit in keys.values()]
    titles += ["paper: accuracy %"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for method in dict.fromkeys(methods):
        cells = [_spread(_values(results, method, key)) for key in keys]
        pairs = [(other, key) for other in others for key in keys]
        cells += ["-" if method == other else str(difference(results, method, other, key)) for other, key in pairs]
        lines.append(f"| {' | '.join([method, *cells, PAPER.get(data, {}).get(method, '-')])} |")
    return "\n".join(lines) + "\n"


def difference(results: list[Row], method: str, other: str, key: str) -> common.Difference:
    """The method's accuracy minus the other's, over the splits."""
    return common.difference(_values(results, method, key), _values(results, other, key))


def _values(results: list[Row], method: str, key: str) -> np.ndarray:
    return np.array([row[key] for row in sorted(results, key=lambda row: row["seed"]) if row["method"] == method])


def _spread(values: np.ndarray) -> str:
    mean = f"{100 * values.mean():.2f}"
    return mean if len(values) == 1 else f"{mean} ± {100 * values.std(ddof=1):.2f}"


def edges(c: np.ndarray, names: Sequence[str]) -> Edges:
    """Mean entries of C inside {animals}, inside {vehicles} and across."""
    vehicle = np.isin(names, VEHICLES)
    off = ~np.eye(len(names), dtype=bool)
    inside = [c[np.outer(group, group) & off].mean() for group in (~vehicle, vehicle)]
    return Edges(float(inside[0]), float(inside[1]), float(c[np.outer(vehicle, ~vehicle)].mean()))


def edge_table(method: str, interactions: Interactions, names: Sequence[str]) -> str:
    """The mean edges of a method, averaged over the splits, and in how many splits the inside exceeds the across."""
    found = np.array([edges(c, names) for (m, _), c in interactions.items() if m == method])
    more = np.sum(found[:, :2] > found[:, 2:], axis=0)
    lines = [f"| {method}: mean C_jk | mean over splits | splits where it exceeds across |", "|---|---|---|"]
    for i, name in enumerate(("inside animals", "inside vehicles", "across")):
        lines.append(f"| {name} | {found[:, i].mean():.3g} | {f'{more[i]} of {len(found)}' if i < 2 else '-'} |")
    return "\n".join(lines) + "\n"


def _means(interactions: Interactions) -> dict[str, np.ndarray]:
    methods = dict.fromkeys(m for m, _ in interactions)
    return {method: np.mean([c for (m, _), c in interactions.items() if m == method], axis=0) for method in methods}


def speed(pace: dict[str, float]) -> str:
    """Seconds of a hyper-iteration of each method, the mean over the splits."""
    each: dict[str, list[float]] = {}
    for name, seconds in pace.items():
        each.setdefault(name.rsplit(" seed ", 1)[0], []).append(seconds)
    return "Seconds per hyper-iteration: " + ", ".join(f"{name} {np.mean(s):.3f}" for name, s in each.items()) + "."


def heat_map(c: np.ndarray, names: Sequence[str], title: str, path: Path) -> None:
    """C as a picture, the classes in groups where these are known."""
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
    common.save_figure(figure, path)


def graph(c: np.ndarray, names: Sequence[str], title: str, path: Path) -> None:
    """Classes on a circle, edges as wide as C_jk; animals and vehicles told apart by colour and place."""
    order = _by_group(names)
    angle = 2 * np.pi * np.arange(len(order)) / len(order)
    place = {i: (np.cos(a), np.sin(a)) for i, a in zip(order, angle, strict=True)}
    colour = {i: "tab:blue" if names[i] in VEHICLES else "tab:orange" for i in order}
    figure, axis = plt.subplots(figsize=(6.2, 5.8), layout="constrained")
    largest = max(float(np.max(c - np.diag(np.diag(c)))), np.finfo(float).tiny)
    for j in range(len(names)):
        for k in range(j):
            strength = c[j, k] / largest
            same = colour[j] == colour[k]
            (xj, yj), (xk, yk) = place[j], place[k]
            axis.plot(
                [xj, xk], [yj, yk], color=colour[j] if same else "0.45", linewidth=7 * strength, alpha=0.25 + 0.6 * strength
            )
    for i in order:
        x, y = place[i]
        axis.scatter([x], [y], s=160, color=colour[i], zorder=3)
        axis.annotate(
            names[i], (1.13 * x, 1.13 * y), ha="center" if abs(x) < 0.5 else "left" if x > 0 else "right", va="center"
        )
    for label, shown in (("animals", "tab:orange"), ("vehicles", "tab:blue"), ("across", "0.45")):
        axis.plot([], [], color=shown, linewidth=3, label=label)
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, -0.08), ncols=3, frameon=False)
    axis.set(xlim=(-1.65, 1.65), ylim=(-1.3, 1.3), aspect="equal")
    axis.axis("off")
    axis.set_title(f"{title}\nwidest edge: $C_{{jk}}$ = {largest:.2g}")
    common.save_figure(figure, path)


def _by_group(names: Sequence[str]) -> list[int]:
    return sorted(range(len(names)), key=lambda i: (names[i] in VEHICLES, i))

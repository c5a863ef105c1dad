"""Figures: of a run, with the objective, the hypers and their hypergradients; and of training examples that are images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rfho2.core.types import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GRADIENT = "hypergradient/"
MOST_COLUMNS, MOST_IMAGES = 3, 8  # panels side by side, and images
CHANNELS = (1, 3, 4)
MOST_DECADES = 3  # on each side of 0 of a symmetric logarithmic axis: more would not leave room for their labels
DECADES = 10  # a ratio of largest to smallest from which an axis is logarithmic

Draw = Callable[["Axes"], None]


class _Run(NamedTuple):
    """What to draw: values by name, one for each update of the hypers, and the final values of hypers that are arrays."""

    columns: dict[str, np.ndarray]
    hypers: list[str]
    arrays: dict[str, np.ndarray]
    unit: str


def plot(result: Result | Any) -> Figure:
    """Draws the objective, each hyper, and the hypergradients against the hyper-iterations.

    Vectors of up to ten entries are drawn entry by entry. A larger array is drawn as it is at the end: its entries, or an
    image of a matrix.

    Args:
      result: what `HyperOptimizer.run` or `rf.tune` returned, or the history that `RealTimeTuner.fit` returned.

    Returns:
      A matplotlib figure; `figure.savefig("run.png")` writes it.
    """
    panels = _panels(_run_of(result))
    figure, axes = _grid("rf.plot needs", len(panels), MOST_COLUMNS, 4.2, 3.2)
    for axis, (title, draw) in zip(axes.flat, panels, strict=False):
        axis.set_title(title)
        draw(axis)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    return figure


def draw_examples(images: np.ndarray, titles: Sequence[str]) -> Figure:
    """Draws images side by side, each under its title, on any scale: the darkest value is black, and the lightest white.

    Their shape is (number, height, width) or (number, height, width, channels).
    """
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[-1] not in CHANNELS):
        raise ValueError(
            f"the examples have shape {[None, *images.shape[1:]]}, and only images can be drawn, of shape (height, width) "
            f"or (height, width, channels) with {', '.join(map(str, CHANNELS))} channels; reshape them."
        )
    low, high = float(np.min(images)), float(np.max(images))
    shades = (images.astype(np.float64) - low) / max(high - low, 1e-12)
    figure, axes = _grid("plots need", len(images), MOST_IMAGES, 1.3, 1.6)
    for axis, shade, title in zip(list(axes.flat)[: len(images)], shades, titles, strict=True):
        axis.imshow(shade[..., 0] if shade.ndim == 3 and shade.shape[-1] == 1 else shade, cmap="gray", vmin=0, vmax=1)
        axis.set_title(title, fontsize="small")
    for axis in axes.flat:
        axis.axis("off")
    return figure


def _grid(needs: str, number: int, most: int, width: float, height: float) -> tuple[Figure, Any]:
    """A figure with a number of axes of this size, at most `most` in a row."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f"{needs} matplotlib; install it with: pip install 'rfho2[plot]'.") from error
    columns = min(most, number)
    rows = -(-number // columns)
    return plt.subplots(rows, columns, figsize=(width * columns, height * rows), layout="constrained", squeeze=False)


def _run_of(result: Any) -> _Run:
    result = result.result if isinstance(getattr(result, "result", None), Result) else result
    if isinstance(result, Result):
        always = [name for name in (result.history or [{}])[0] if all(name in row for row in result.history)]
        columns = {name: np.array([row[name] for row in result.history]) for name in always}
        hypers = [c for c in columns if c.partition("/")[0] in result.hypers]  # also the entries that a tuner names
        named = {name.partition("/")[0] for name in hypers}
        arrays = {name: np.asarray(value) for name, value in result.hypers.items() if np.ndim(value) and name not in named}
        run = _Run(columns, hypers, arrays, "hyper-iteration")
    elif hasattr(result, "trajectories"):
        run = _Run(dict(result.trajectories), list(result.hyper_names), {}, "hyper-batch")
    else:
        raise TypeError(
            f"result is of type {type(result).__name__}; pass the result of HyperOptimizer.run, or the history of "
            f"RealTimeTuner.fit."
        )
    if not len(next(iter(run.columns.values()), ())):
        raise ValueError("result has an empty history: there is nothing to draw. Run at least one hyper-iteration.")
    return run


def _panels(run: _Run) -> list[tuple[str, Draw]]:
    values = {name: v for name, v in run.columns.items() if name == "value" or name.startswith("value/")}
    panels = [("objective", _curves(values, run.unit))]
    for group in dict.fromkeys(name.partition("/")[0] for name in run.hypers):  # one panel for the entries of a hyper
        curves = {name: run.columns[name] for name in run.hypers if name.partition("/")[0] == group}
        panels.append((group, _curves(curves, run.unit)))
    panels += [(f"{name}, at the end", _entries(value)) for name, value in run.arrays.items()]
    gradients = {name.replace(GRADIENT, ""): v for name, v in run.columns.items() if GRADIENT in name}
    return panels + ([("hypergradients", _curves(gradients, run.unit))] if gradients else [])


def _curves(curves: Mapping[str, np.ndarray], unit: str) -> Draw:
    def draw(axis: Axes) -> None:
        for name, values in curves.items():
            axis.plot(np.arange(len(values)), values, label=name, marker="." if len(values) < 30 else None)
        _set_scale(axis, np.concatenate(list(curves.values())))
        axis.set_xlabel(unit)
        axis.locator_params("x", integer=True)
        axis.grid(alpha=0.3)
        if len(curves) > 1:
            axis.legend(fontsize="small")

    return draw


def _set_scale(axis: Axes, values: np.ndarray) -> None:
    scale = _scale(values)
    if scale != "symlog":
        axis.set_yscale(scale)
        return
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    axis.set_yscale("symlog", linthresh=max(float(np.min(sizes)), float(np.max(sizes)) / 10**MOST_DECADES))
    axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")


def _scale(values: np.ndarray) -> str:
    """Logarithmic for values that span decades; symmetric if their signs differ."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    if not len(sizes) or np.max(sizes) < DECADES * np.min(sizes):
        return "linear"
    return "log" if np.all(values[np.isfinite(values)] > 0) else "symlog"


def _entries(value: np.ndarray) -> Draw:
    def draw(axis: Axes) -> None:
        if value.ndim == 2 and min(value.shape) > 1:
            axis.figure.colorbar(axis.imshow(value, aspect="auto"), ax=axis)
        else:
            axis.plot(np.ravel(value), ".", markersize=4)
            axis.set_xlabel("entry")
            axis.grid(alpha=0.3)

    return draw

"""A picture of training examples that are images, each with its label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IN_A_ROW = 8
CHANNELS = (1, 3, 4)


def draw_examples(images: np.ndarray, titles: Sequence[str]) -> Figure:
    """Draws images side by side, each under its title.

    Args:
      images: of shape (number, height, width) or (number, height, width, channels), on any scale: the darkest value of all
        is black, and the lightest white.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib; install it with: pip install 'rfho2[plot]'.") from error
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[-1] not in CHANNELS):
        raise ValueError(
            f"the examples have shape {[None, *images.shape[1:]]}, and only images can be drawn, of shape (height, width) "
            f"or (height, width, channels) with {', '.join(map(str, CHANNELS))} channels; reshape them."
        )
    low, high = float(np.min(images)), float(np.max(images))
    shades = (images.astype(np.float64) - low) / max(high - low, 1e-12)
    columns = min(IN_A_ROW, len(images))
    rows = -(-len(images) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(1.3 * columns, 1.6 * rows), layout="constrained", squeeze=False)
    for axis, shade, title in zip(list(axes.flat)[: len(images)], shades, titles, strict=True):
        axis.imshow(shade[..., 0] if shade.ndim == 3 and shade.shape[-1] == 1 else shade, cmap="gray", vmin=0, vmax=1)
        axis.set_title(title, fontsize="small")
    for axis in axes.flat:
        axis.axis("off")
    return figure

"""What is wrong with the values of examples: text as labels, numbers that are not finite, examples that never come again."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Nest
from rfho2.core.warn import warn

Examples = tuple[Nest, ...]
"""(x, y), or (x, y, weights) with a factor for the loss of each example."""


def check_values(examples: Examples, argument: str) -> None:
    """Refuses labels that are text, and numbers that are not finite, which would turn up as wrong derivatives."""
    for part, nested in zip(("x", "y", "sample_weight"), examples, strict=False):
        for path, leaf in nest.leaves_with_path(nested):
            array, name = np.asarray(leaf), part if path == "." else f"{part} '{path}'"
            if part == "y" and array.dtype.kind in "USO":
                raise ValueError(
                    f"{argument}: {name} has labels such as {str(array.ravel()[0])!r}; pass numbers, for instance "
                    f"np.unique(y, return_inverse=True)[1], applied to all labels together."
                )
            if array.dtype.kind != "f" or np.isfinite(array).all():
                continue
            rows = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(1))
            kind = "NaN" if np.isnan(array[rows[0]]).any() else "infinity"
            raise ValueError(
                f"{argument}: {name} has {kind} in row {rows[0]} ({len(rows)} of {len(array)} rows are not finite); leave "
                f"these rows out, or fill in numbers."
            )


def warn_unless_repeatable(dataset: tf.data.Dataset, examples: Examples, argument: str) -> None:
    """Warns if a second pass over a dataset, which has been read into memory, has other examples; another order is fine."""
    first = next(iter(dataset.take(1).as_numpy_iterator()))
    leading = nest.map(lambda leaf, like: like[: len(leaf)], first, examples)
    if all(np.array_equal(a, b) for a, b in zip(nest.flatten(first), nest.flatten(leading), strict=True)):
        return
    again = nest.map(lambda *leaves: np.concatenate(leaves), *dataset.as_numpy_iterator())
    if _fingerprints(again[0]) != _fingerprints(examples[0]):
        warn(
            f"{argument} is a dataset whose examples differ from one pass to the next (random augmentation?), but it has "
            f"been read into memory once, so that every training sees the same ones. Put random layers into the model "
            f"instead, or ignore this if it is intended."
        )


def _fingerprints(x: Any) -> list[int]:
    """A number for each example, in an order that does not depend on that of the examples."""
    arrays = [np.asarray(leaf) for leaf in nest.flatten(x)]
    leaves = [np.ascontiguousarray(array.astype("S") if array.dtype.kind == "O" else array) for array in arrays]
    return sorted(hash(tuple(leaf[i].tobytes() for leaf in leaves)) for i in range(len(leaves[0])))

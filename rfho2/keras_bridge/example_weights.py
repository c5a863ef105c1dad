"""The weight of each example by its class."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rfho2.core import nest
from rfho2.core.types import Nest

Examples = tuple[Nest, ...]
"""(x, y), or (x, y, weights) with a factor for the loss of each example."""


def with_class_weights(examples: Examples, class_weight: Mapping[int, float] | None) -> Examples:
    """The examples with the weights of their classes."""
    if class_weight is None:
        return examples
    if len(examples) == 3:
        raise ValueError("class_weight and sample_weight are both given; multiply them, and pass one sample_weight.")
    return (*examples, weights_of_classes(examples[1], class_weight))


def weights_of_classes(y: Nest, class_weight: Mapping[int, float]) -> np.ndarray:
    """The weight of each example by its class; a class that is not named has weight 1."""
    leaves = nest.flatten(y)
    if len(leaves) != 1:
        raise ValueError(f"class_weight is given, but the model has {len(leaves)} outputs; pass sample_weight instead.")
    labels = np.asarray(leaves[0])
    if labels.ndim > 1:
        labels = labels[..., 0] if labels.shape[-1] == 1 else labels.argmax(-1)
    if labels.ndim != 1:
        raise ValueError(f"class_weight needs one class for each example, but the labels have shape {labels.shape}.")
    labels = labels.astype(np.int64)
    table = np.ones(int(max([labels.max(initial=0), *class_weight])) + 1, np.float32)
    for label, weight in class_weight.items():
        table[int(label)] = weight
    return table[labels]

"""Warns of a hypergradient that is not finite."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from rfho2.core.types import HyperGradient
from rfho2.core.warn import warn


def warn_unless_finite(hypergradient: HyperGradient) -> HyperGradient:
    """The hypergradient, with a warning unless it is finite; `rf.HyperOptimizer`, which calls `advance`, raises an error."""
    if tf.executing_eagerly():
        value = hypergradient.value if isinstance(hypergradient.value, dict) else {"": hypergradient.value}
        named = {f"the value {name}".strip(): v for name, v in value.items()}
        named |= {f"the hypergradient of '{name}'": grad for name, grad in hypergradient.grads.items()}
        bad = [name for name, number in named.items() if not np.all(np.isfinite(number))]
        if bad:
            warn(
                f"not finite: {', '.join(bad)}. Try a smaller learning rate, fewer steps or float64; look for log(0), 0/0 "
                f"and sqrt at 0 in the loss, for NaN in data and hypers, and for labels out of range."
            )
    return hypergradient

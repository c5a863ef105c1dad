"""How the hypers of a Keras model move: projected Adam, with a momentum that does not change how far the weights go."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rfho2.core.types import Hypers, Nest
from rfho2.driver.projected_adam import HyperUpdate, projected_adam
from rfho2.keras_bridge.tunables import Knobs

PAIR = ("learning_rate", "momentum")


def moves(knobs: Knobs, rate: float, **settings: Any) -> HyperUpdate:
    """Projected Adam on what is optimised; learning rate and momentum, if both are there, in other coordinates.

    Weights that are pulled one way move by lr / (1 - momentum) a step, so that on the scales u = log lr and
    v = -log(1 - momentum) both hypergradients first of all ask for more or less of u + v: one would be moved twice, and the
    other against it. So Adam moves u + v and v:

    E(u, v) = F(u + v, v),  dF/d(u + v) = dE/du,  dF/dv = dE/dv - dE/du

    Args:
      knobs: the hypers, with their ranges.
      rate: see `Knobs.rates`.
      settings: Adam's.
    """
    sets, rates = knobs.constraints(), knobs.rates(rate)
    if not set(PAIR) <= set(sets):
        return projected_adam(rates, sets, **settings)
    free = {name: box for name, box in sets.items() if name != "learning_rate"}
    adam = projected_adam(rates, free, **settings)

    def together(hypers: Hypers) -> dict[str, tf.Tensor]:
        return {**hypers, "learning_rate": hypers["learning_rate"] + hypers["momentum"]}

    def update(grads: Hypers, state: Nest, hypers: Hypers) -> tuple[dict[str, tf.Tensor], Nest]:
        along = grads["momentum"] - tf.reduce_sum(grads["learning_rate"])  # a sum, for learning rates of layers
        moved, state = adam.update({**grads, "momentum": along}, state, together(hypers))
        apart = moved["learning_rate"] - moved["momentum"]
        return {**moved, "learning_rate": sets["learning_rate"].project(apart)}, state

    described = {**adam.settings, "ranges": str(sets), "coordinates": "learning_rate + momentum"}
    return HyperUpdate(lambda hypers: adam.init(together(hypers)), update, described)

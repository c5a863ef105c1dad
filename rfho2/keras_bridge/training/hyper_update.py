"""The update of the hypers of a Keras model: projected Adam, in which momentum does not change the step length."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rfho2.core.types import Hypers, Nest
from rfho2.driver.projected_adam import HyperUpdate, projected_adam
from rfho2.keras_bridge.training.tunables import Tunables

PAIR = ("learning_rate", "momentum")
EPSILON = 1e-15  # for Adam: a rate that is far too small has a tiny hypergradient, but still has to rise
NEGLIGIBLE = 0.01  # relative change of the validation loss that an e-fold change of the learning rate makes


def bold_update(tunables: Tunables, rate: float, **settings: Any) -> HyperUpdate:
    """`hyper_update` for real time, where the learning rate falls only where it affects the validation loss.

    A hypergradient in real time looks back a few steps. While the training makes no progress, on a plateau or with steps
    that are too small, the validation loss hardly depends on the learning rate over so few steps, and the remaining noise is
    biased towards lowering the rate. Adam, which ignores the size of a gradient, would take the rate to its floor. So a fall
    of the rate is multiplied by g / (g + NEGLIGIBLE), where g is the size of the relative change of the validation loss when
    the rate (of all layers) changes e-fold. If momentum is tuned too, the rate is lr / (1 - momentum), as in `hyper_update`.
    """
    box = tunables.constraints().get("learning_rate")
    if box is None:
        return hyper_update(tunables, rate, **settings)
    inner = hyper_update(tunables, rate, **{"epsilon": EPSILON, **settings})

    def rest(hypers: Hypers) -> tf.Tensor | float:
        return hypers["momentum"] if set(PAIR) <= set(hypers) else 0.0

    def update(grads: Hypers, state: Nest, hypers: Hypers) -> tuple[dict[str, tf.Tensor], Nest]:
        moved, state = inner.update(grads, state, hypers)
        before, after = hypers["learning_rate"] + rest(hypers), moved["learning_rate"] + rest(moved)
        step, size = after - before, tf.reduce_sum(tf.abs(grads["learning_rate"]))
        step = tf.where(step < 0, size / (size + NEGLIGIBLE), 1) * step
        return {**moved, "learning_rate": box.project(before + step - rest(moved))}, state

    return HyperUpdate(inner.init, update, {**inner.settings, "negligible": NEGLIGIBLE}, relative=True)


def hyper_update(tunables: Tunables, rate: float, **settings: Any) -> HyperUpdate:
    """Projected Adam on the internal scale; learning rate and momentum, if both are tuned, in other coordinates.

    Under a constant gradient the weights move by lr / (1 - momentum) per step. On the internal scales u = log lr and
    v = -log(1 - momentum), both hypergradients therefore mostly call for a change of u + v: updating both would make
    this change twice, and the next update would undo part of it. So Adam moves u + v and v:

    E(u, v) = F(u + v, v),  dF/d(u + v) = dE/du,  dF/dv = dE/dv - dE/du

    A momentum that is a vector, with a value for each knot, is updated by itself.

    `rate` is the hyper-rate of the learning rate; see `Tunables.rates`. The settings are those of `projected_adam`.
    """
    sets, rates = tunables.constraints(), tunables.rates(rate)
    if not set(PAIR) <= set(sets) or tunables.start["momentum"].ndim:
        return projected_adam(rates, sets, **settings)
    sets_during_step = {name: box for name, box in sets.items() if name != "learning_rate"}
    adam = projected_adam(rates, sets_during_step, **settings)

    def to_sum(hypers: Hypers) -> dict[str, tf.Tensor]:
        return {**hypers, "learning_rate": hypers["learning_rate"] + hypers["momentum"]}

    def update(grads: Hypers, state: Nest, hypers: Hypers) -> tuple[dict[str, tf.Tensor], Nest]:
        at_fixed_sum = grads["momentum"] - tf.reduce_sum(grads["learning_rate"])  # a sum over the layers' learning rates
        moved, state = adam.update({**grads, "momentum": at_fixed_sum}, state, to_sum(hypers))
        log_rate = moved["learning_rate"] - moved["momentum"]
        return {**moved, "learning_rate": sets["learning_rate"].project(log_rate)}, state

    description = {**adam.settings, "ranges": str(sets), "coordinates": "learning_rate + momentum"}
    return HyperUpdate(lambda hypers: adam.init(to_sum(hypers)), update, description)

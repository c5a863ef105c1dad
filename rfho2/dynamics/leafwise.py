"""Optimisers that treat each leaf of the params by itself: a rule for one leaf becomes a `Dynamics`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Dynamics, Loss, Setting, check_settings, gradient, resolve, with_gradient

Slots = dict[str, tf.Tensor]
"""What an optimiser remembers of one leaf, by name."""

Values = Mapping[str, tf.Tensor]
"""The settings of one leaf at one time, by name."""

Rule = Callable[[tf.Tensor, tf.Tensor, Slots, Values, tf.Tensor], tuple[tf.Tensor, Slots]]
"""(w, g, slots, settings, n) -> (w, slots): the step number n = t + 1 of one leaf."""


class LeafwiseState(NamedTuple):
    """s_t: the params, and for each slot a nest like the params."""

    params: Nest
    slots: dict[str, Nest]


def leafwise(
    loss: Loss, rule: Rule, slots: Callable[[tf.Tensor], Slots], weight_decay: Setting = 0.0, **settings: Setting
) -> Dynamics:
    """The optimiser with the given rule for each leaf.

    Args:
      loss: (params, hypers, batch) -> scalar.
      rule: one step of one leaf.
      slots: leaf -> what is remembered of it at the beginning.
      weight_decay: decoupled: the rule begins from w - eta * weight_decay * w, as in Keras.
      settings: learning_rate and others.
    """
    check_settings(loss, weight_decay=weight_decay, **settings)
    decays = not (isinstance(weight_decay, int | float) and weight_decay == 0)

    def init(params: Nest, hypers: Hypers) -> LeafwiseState:
        first = [slots(leaf) for leaf in nest.flatten(params)]
        return LeafwiseState(params, {name: nest.pack(params, [one[name] for one in first]) for name in first[0]})

    def step(state: LeafwiseState, hypers: Hypers, batch: Nest, t: tf.Tensor) -> LeafwiseState:
        w = state.params
        g = nest.flatten(gradient(loss, w, hypers, batch, t))
        values = _by_leaf({name: resolve(name, value, w, hypers, t) for name, value in settings.items()}, len(g))
        before = nest.flatten(w)
        if decays:
            rates = nest.flatten(resolve("weight_decay", weight_decay, w, hypers, t))
            before = [w - v["learning_rate"] * decay * w for w, v, decay in zip(before, values, rates, strict=True)]
        n = tf.cast(t + 1, before[0].dtype)
        leaves = zip(before, g, _by_leaf(state.slots, len(g)), values, strict=True)
        after = [rule(*leaf, n) for leaf in leaves]
        kept = {name: nest.pack(w, [slots[name] for _, slots in after]) for name in state.slots}
        return LeafwiseState(nest.pack(w, [leaf for leaf, _ in after]), kept)

    return Dynamics(init, step if decays else with_gradient(step, loss), lambda state: state.params)


def _by_leaf(nests: Mapping[str, Nest], leaves: int) -> list[dict[str, tf.Tensor]]:
    """{name: nest} -> for each leaf, {name: leaf}."""
    flat = {name: nest.flatten(nested) for name, nested in nests.items()}
    return [{name: flat[name][i] for name in flat} for i in range(leaves)]


def zeros(*names: str) -> Callable[[tf.Tensor], Slots]:
    """Slots of zeros, of the shape of the leaf."""
    return lambda w: {name: tf.zeros_like(w) for name in names}


def blend(old: tf.Tensor, new: tf.Tensor, decay: tf.Tensor) -> tf.Tensor:
    """decay old + (1 - decay) new: a running mean."""
    return decay * old + (1 - decay) * new

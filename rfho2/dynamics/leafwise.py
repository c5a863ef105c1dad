"""Optimisers that treat each leaf of the params by itself: a rule for one leaf becomes a `Dynamics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.dtensors import sharded
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Dynamics, Loss, Setting, check_settings, gradient, is_zero, resolve, with_gradient

Slots = dict[str, tf.Tensor]
"""What an optimiser remembers of one leaf, by name."""

Values = Mapping[str, tf.Tensor]
"""The settings of one leaf at one time, by name."""

Rule = Callable[[tf.Tensor, tf.Tensor, Slots, Values, tf.Tensor], tuple[tf.Tensor, Slots]]
"""(w, g, slots, settings, n) -> (w, slots): the step number n = t + 1 of one leaf."""

SMALL = 2**15  # entries: larger leaves are not joined, because copying them takes longer than their operations
WORTH_JOINING = 4  # leaves


class LeafwiseState(NamedTuple):
    """s_t: the params, and for each slot a nest like the params."""

    params: Nest
    slots: dict[str, Nest]


def leafwise(
    loss: Loss,
    rule: Rule,
    slots: Callable[[tf.Tensor], Slots],
    settings: Mapping[str, Setting],
    weight_decay: Setting = 0.0,
    entrywise: bool = True,
) -> Dynamics:
    """The optimiser with the given rule for each leaf.

    Args:
      loss: (params, hypers, batch) -> scalar.
      rule: one step of one leaf.
      slots: leaf -> what is remembered of it at the beginning.
      settings: learning_rate and others.
      weight_decay: decoupled: the rule begins from w - eta * weight_decay * w, as in Keras.
      entrywise: whether the rule treats each entry by itself, so that leaves may be joined; see `updated`.
    """
    check_settings(loss, **{"weight_decay": weight_decay, **settings})
    decays = not is_zero(weight_decay)
    if decays:
        rule, settings = decayed(rule), {**settings, "weight_decay": weight_decay}

    def init(params: Nest, hypers: Hypers) -> LeafwiseState:
        first = [slots(leaf) for leaf in nest.flatten(params)]
        return LeafwiseState(params, {name: nest.pack(params, [one[name] for one in first]) for name in first[0]})

    def step(state: LeafwiseState, hypers: Hypers, batch: Nest, t: tf.Tensor) -> LeafwiseState:
        g = gradient(loss, state.params, hypers, batch, t)
        values = {name: resolve(name, value, state.params, hypers, t) for name, value in settings.items()}
        return LeafwiseState(*updated(rule, state.params, g, state.slots, values, t, entrywise))

    return Dynamics(init, step if decays else with_gradient(step, loss), lambda state: state.params)


def decayed(rule: Rule) -> Rule:
    """The rule, which begins from w - eta * weight_decay * w."""

    def decaying(w: tf.Tensor, g: tf.Tensor, slots: Slots, values: Values, n: tf.Tensor) -> tuple[tf.Tensor, Slots]:
        return rule(w - values["learning_rate"] * values["weight_decay"] * w, g, slots, values, n)

    return decaying


def updated(
    rule: Rule, w: Nest, g: Nest, slots: Mapping[str, Nest], settings: Mapping[str, Nest], t: tf.Tensor, entrywise: bool
) -> tuple[Nest, dict[str, Nest]]:
    """The params and slots after one step.

    If the rule is entrywise, small leaves with the same settings are joined into one vector: a network has hundreds of them,
    and a second derivative has some hundred operations for each, which take TensorFlow seconds to trace.
    """
    n = tf.cast(t + 1, nest.flatten(w)[0].dtype)
    leaves = [
        Leaf(*leaf) for leaf in zip(nest.flatten(w), nest.flatten(g), _by_leaf(slots, w), _by_leaf(settings, w), strict=True)
    ]
    after: dict[int, tuple[tf.Tensor, Slots]] = {}
    for group in _groups(leaves) if entrywise else _alone(range(len(leaves))):
        parts = [leaves[i] for i in group]
        whole = parts[0] if len(parts) == 1 else _joined(parts)
        new, kept = rule(*whole, n)
        if len(parts) == 1:
            after[group[0]] = new, kept
            continue
        apart = {name: _apart(slot, parts) for name, slot in kept.items()}
        for position, (i, part) in enumerate(zip(group, _apart(new, parts), strict=True)):
            after[i] = part, {name: slot[position] for name, slot in apart.items()}
    ordered = [after[i] for i in range(len(leaves))]
    return nest.pack(w, [new for new, _ in ordered]), {
        name: nest.pack(w, [kept[name] for _, kept in ordered]) for name in slots
    }


class Leaf(NamedTuple):
    """One leaf of the params, or several that are joined."""

    w: tf.Tensor
    g: tf.Tensor
    slots: Slots
    settings: Values


def _groups(leaves: Sequence[Leaf]) -> list[list[int]]:
    """The numbers of leaves to be joined: small ones with the same settings, all of them scalars."""
    groups: dict[Any, list[int]] = {}
    for i, leaf in enumerate(leaves):
        small = leaf.w.shape.is_fully_defined() and leaf.w.shape.num_elements() < SMALL and not sharded()
        scalar = all(value.shape.rank == 0 for value in leaf.settings.values())
        alike = all(slot.shape == leaf.w.shape for slot in leaf.slots.values())
        key = tuple(id(value) for value in leaf.settings.values()) if small and scalar and alike else i
        groups.setdefault(key, []).append(i)
    return [part for group in groups.values() for part in (_alone(group) if len(group) < WORTH_JOINING else [group])]


def _alone(numbers: Iterable[int]) -> list[list[int]]:
    return [[i] for i in numbers]


def _joined(leaves: Sequence[Leaf]) -> Leaf:
    def join(parts: Sequence[tf.Tensor]) -> tf.Tensor:
        return tf.concat([tf.reshape(part, [-1]) for part in parts], 0)

    slots = {name: join([leaf.slots[name] for leaf in leaves]) for name in leaves[0].slots}
    return Leaf(join([leaf.w for leaf in leaves]), join([leaf.g for leaf in leaves]), slots, leaves[0].settings)


def _apart(vector: tf.Tensor, leaves: Sequence[Leaf]) -> list[tf.Tensor]:
    parts = tf.split(vector, [leaf.w.shape.num_elements() for leaf in leaves])
    return [tf.reshape(part, leaf.w.shape) for part, leaf in zip(parts, leaves, strict=True)]


def _by_leaf(nests: Mapping[str, Nest], like: Nest) -> list[dict[str, tf.Tensor]]:
    """{name: nest} -> for each leaf, {name: leaf}."""
    flat = {name: nest.flatten(nested) for name, nested in nests.items()}
    return [{name: flat[name][i] for name in flat} for i in range(len(nest.flatten(like)))]


def zeros(*names: str) -> Callable[[tf.Tensor], Slots]:
    """Slots of zeros, of the shape of the leaf."""
    return lambda w: {name: tf.zeros_like(w) for name in names}


def blend(old: tf.Tensor, new: tf.Tensor, decay: tf.Tensor) -> tf.Tensor:
    """decay old + (1 - decay) new: a running mean."""
    return decay * old + (1 - decay) * new

"""Projected Adam: moves the hypers inside their constraint sets (`dynamics/adam` trains the params)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rfho2.constraints.sets import Box, Constraint
from rfho2.core.compiled import graph_function
from rfho2.core.errors import unknown_hyper
from rfho2.core.types import Hypers, Nest
from rfho2.driver.checkpoint_store import digest_arrays


class HyperUpdate(NamedTuple):
    """An update rule for the hypers: two pure functions, and the settings by which checkpoints are compared.

    Attributes:
      init: hypers -> opt_state; rejects hypers that it cannot start from.
      update: (grads, opt_state, hypers) -> (hypers, opt_state). It is traced once where TensorFlow can trace it, so draw
        random numbers with stateless ops, and keep everything that changes in opt_state.
      settings: plain values that describe it.
      relative: whether the grads are first divided by the size of the objective, so that they are relative changes.
    """

    init: Callable[[Hypers], Nest]
    update: Callable[[Hypers, Nest, Hypers], tuple[dict[str, tf.Tensor], Nest]]
    settings: Mapping[str, Any] = {}
    relative: bool = False


class ProjectedAdamState(NamedTuple):
    """The number of updates, Adam's moments, and the learning rates, which a driver may scale."""

    count: tf.Tensor
    first_moment: dict[str, tf.Tensor]
    second_moment: dict[str, tf.Tensor]
    learning_rate: dict[str, tf.Tensor]


def projected_adam(
    learning_rate: float | Mapping[str, float],
    constraints: Mapping[str, Constraint] | None = None,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    log_scale: Sequence[str] = (),
) -> HyperUpdate:
    """Adam on the hypers, each then projected onto its constraint set.

    m_k = b1 m_{k-1} + (1 - b1) g_k,  v_k = b2 v_{k-1} + (1 - b2) g_k^2
    hyper_k = project(hyper_{k-1} - rate sqrt(1 - b2^k) / (1 - b1^k) m_k / (sqrt(v_k) + epsilon))

    On the log scale Adam moves u = log(hyper): g is then dE/du = hyper dE/dhyper, and the hyper is multiplied by the
    exponential of the step instead of moved by it.

    Args:
      learning_rate: one rate, or one per hyper by name; approximately how far an entry moves in one update. On the log scale
        an entry changes by a factor: 0.1 is about 10 %.
      constraints: constraint sets by the name of the hyper; the other hypers are free.
      beta_1, beta_2, epsilon: as in Keras's Adam.
      log_scale: names of hypers that move by factors, such as learning rates and regularisation strengths, whose order of
        magnitude is not known. Each entry starts above 0 and stays there; such a hyper is free, or in a `Box`.

    >>> import rfho2 as rf
    >>> optimizer = projected_adam(0.5, {"lr": rf.Box(0.0, 1.0)})
    >>> hypers = {"lr": tf.constant(0.25)}
    >>> hypers, _ = optimizer.update({"lr": tf.constant(3.0)}, optimizer.init(hypers), hypers)
    >>> hypers["lr"].numpy().item()
    0.0
    """
    constraints = _checked_sets(constraints)
    _check_log_scale(log_scale, constraints)
    _check_rates(learning_rate)
    rates = dict(learning_rate) if isinstance(learning_rate, Mapping) else learning_rate

    def init(hypers: Hypers) -> ProjectedAdamState:
        _check_names("constraints", constraints, hypers)
        for name, constraint in constraints.items():
            if not bool(constraint.contains(hypers[name])):
                raise _infeasible(name, constraint, hypers[name])
        _check_positive(log_scale, hypers)
        if isinstance(rates, Mapping):
            _check_names("learning_rate", rates, hypers)
            without = sorted(set(hypers) - set(rates))
            if without:
                raise ValueError(f"learning_rate lacks the hypers {without}; give each hyper a rate, 0.0 to hold it.")
        rate = {
            name: tf.constant(rates[name] if isinstance(rates, Mapping) else rates, hyper.dtype)
            for name, hyper in hypers.items()
        }
        zeros = {name: tf.zeros_like(hyper) for name, hyper in hypers.items()}
        return ProjectedAdamState(tf.constant(0), zeros, zeros, rate)

    described = {name: _described(constraint) for name, constraint in sorted(constraints.items())}
    settings = {
        "method": "projected_adam",
        "learning_rate": rates,
        "constraints": described,
        "beta_1": beta_1,
        "beta_2": beta_2,
        "epsilon": epsilon,
        "log_scale": sorted(log_scale),
    }
    arguments = (tuple(constraints.items()), beta_1, beta_2, epsilon, tuple(log_scale))
    try:
        update = _shared_update(*arguments)
    except TypeError:  # a constraint with arrays, which cannot be hashed
        update = _update(*arguments)
    return HyperUpdate(init, update, settings)


def _update(
    sets: tuple[tuple[str, Constraint], ...], beta_1: float, beta_2: float, epsilon: float, log_scale: tuple[str, ...]
) -> Callable[[Hypers, Nest, Hypers], tuple[dict[str, tf.Tensor], Nest]]:
    """The update, whose learning rates are part of the state."""
    constraints = dict(sets)

    def update(grads: Hypers, state: ProjectedAdamState, hypers: Hypers) -> tuple[dict[str, tf.Tensor], ProjectedAdamState]:
        count = state.count + 1
        grads = {n: g * hypers[n] if n in log_scale else g for n, g in grads.items()}
        m = {n: beta_1 * state.first_moment[n] + (1 - beta_1) * g for n, g in grads.items()}
        v = {n: beta_2 * state.second_moment[n] + (1 - beta_2) * tf.square(g) for n, g in grads.items()}
        new = {}
        for name, hyper in hypers.items():
            k = tf.cast(count, hyper.dtype)
            rate = state.learning_rate[name] * tf.sqrt(1 - tf.constant(beta_2, hyper.dtype) ** k)
            rate /= 1 - tf.constant(beta_1, hyper.dtype) ** k
            step = -rate * m[name] / (tf.sqrt(v[name]) + epsilon)
            moved = _multiplied(hyper, step) if name in log_scale else hyper + step
            new[name] = constraints[name].project(moved) if name in constraints else moved
        return new, ProjectedAdamState(count, m, v, state.learning_rate)

    # One graph, because a projection is some fifty small ops, whose overhead dominates when they run eagerly.
    return graph_function(update)


_shared_update = functools.lru_cache(64)(_update)
"""The same function for optimisers that differ only in their rates, so that code compiled for one serves all."""


def with_rate_scaled(opt_state: Nest, factor: float) -> Nest | None:
    """The optimiser's state with scaled learning rates; None if the state, of a custom optimiser, holds no rates."""
    rates = getattr(opt_state, "learning_rate", None)
    return rates and opt_state._replace(learning_rate={name: rate * factor for name, rate in rates.items()})


def _checked_sets(constraints: Any) -> dict[str, Constraint]:
    """The sets by name."""
    try:
        sets = dict(constraints or {})
    except (TypeError, ValueError):
        raise TypeError(
            f"constraints is {constraints!r:.80}; pass a dict from names of hypers to sets, such as "
            f"{{'lr': rf.Box(1e-4, 0.1)}}, after the learning rate."
        ) from None
    for name, constraint in sets.items():
        forgotten = isinstance(constraint, type) and constraint.__module__ == Box.__module__  # the parentheses
        if forgotten or not isinstance(constraint, Constraint):
            raise TypeError(
                f"constraints has {constraint!r:.80} for '{name}'; pass a set, such as rf.NonNegative() or "
                f"rf.Box(1e-4, 0.1), or an object with the methods project and contains."
            )
    return sets


def _check_rates(rates: Any) -> None:
    """Requires numbers that are not negative."""
    for name, rate in rates.items() if isinstance(rates, Mapping) else [("", rates)]:
        where = f"learning_rate of '{name}'" if name else "learning_rate"
        try:
            negative = not np.all(np.asarray(rate, np.float64) >= 0)
        except (TypeError, ValueError):
            raise TypeError(f"{where} is {rate!r:.80}; pass a number, or a dict from names of hypers to numbers.") from None
        if negative:
            raise ValueError(
                f"{where} is {rate!r:.80}; it has to be positive (0 holds a hyper): updates minimise the objective."
            )


def _check_log_scale(names: Sequence[str], constraints: Mapping[str, Constraint]) -> None:
    """Requires a list of names, and sets whose projection keeps positive entries positive."""
    if isinstance(names, str):
        raise TypeError(f"log_scale is the string '{names}'; pass a list of names, such as ['{names}'].")
    if not isinstance(names, Iterable):
        raise TypeError(f"log_scale is {names!r:.80}; pass a list of names, such as ['learning_rate'].")
    for name in names:
        if name in constraints and not isinstance(constraints[name], Box):
            raise ValueError(
                f"log_scale has '{name}', whose constraint is {constraints[name]}: a projection onto it can give 0, from "
                f"which a factor cannot recover. Use rf.Box(low, high), leave '{name}' free, or leave it out of log_scale."
            )


def _check_positive(names: Sequence[str], hypers: Hypers) -> None:
    """Requires positive entries of the hypers that move by factors."""
    _check_names("log_scale", names, hypers)
    for name in names:
        if not np.all(np.asarray(hypers[name]) > 0):
            raise ValueError(
                f"log_scale has '{name}', which starts at {np.min(hypers[name]):.6g}; on the log scale a hyper has to start "
                f"above 0. Start it at a small positive number, or leave '{name}' out of log_scale."
            )


def _multiplied(hyper: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """hyper exp(step), kept from underflowing to 0, from which a factor cannot recover."""
    return tf.maximum(hyper * tf.exp(step), np.finfo(hyper.dtype.as_numpy_dtype).tiny)


def _described(constraint: Constraint) -> str:
    """A text that is the same in every process: no memory addresses, and a hash of arrays, which repr abbreviates."""
    fields = getattr(constraint, "__dict__", {})
    bare = type(constraint).__repr__ is object.__repr__
    text = f"{type(constraint).__qualname__}({fields})" if bare else repr(constraint)
    arrays = [value for value in fields.values() if np.ndim(value)]
    return f"{text} #{digest_arrays(arrays)}" if arrays else text


def _check_names(argument: str, names: Iterable[str], hypers: Hypers) -> None:
    """Requires that every name is the name of a hyper."""
    for name in names:
        if name not in hypers:
            raise unknown_hyper(argument, name, hypers)


def _infeasible(name: str, constraint: Any, value: tf.Tensor) -> ValueError:
    """The error for a starting point outside its constraint set."""
    if not np.size(value):
        return ValueError(f"hyper '{name}' has no entries, for which its constraint {constraint} is empty. Leave it out.")
    return ValueError(
        f"hyper '{name}' starts outside its constraint {constraint}: {np.asarray(value).ravel()[:5]}... (min "
        f"{np.min(value):.6g}, max {np.max(value):.6g}, sum |.| {np.sum(np.abs(value)):.6g}). Start from "
        f"constraint.project(value)."
    )

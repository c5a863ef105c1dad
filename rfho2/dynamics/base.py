"""What a dynamics is, and the two things every optimiser needs: a gradient and its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.core import errors, nest
from rfho2.core.types import Hypers, Nest

Loss = Callable[[Nest, Hypers, Nest], tf.Tensor]
"""(params, hypers, batch) -> scalar."""

Setting = float | str | Callable[[Hypers, tf.Tensor], Nest]
"""A number, the name of a hyper, or (hypers, t) -> tensor or prefix nest of the params."""


class Dynamics(NamedTuple):
    """One way to train: s_0 = init(params, hypers), s_t = step(s_{t-1}, hypers, batch, t).

    Any differentiable step will do. The state is a nest of floating tensors that keeps its structure and shapes.

    Attributes:
      init: (params, hypers) -> state; may depend on the hypers, to learn the initialisation.
      step: (state, hypers, batch, t) -> state, a pure function; t = 0, 1, ... is an int32 scalar.
      params: state -> params, what the objective sees.

    >>> halve = Dynamics(lambda w, h: w, lambda w, h, batch, t: w - h["rate"] * w, lambda w: w)
    >>> halve.step(tf.constant(4.0), {"rate": tf.constant(0.5)}, None, tf.constant(0)).numpy().item()
    2.0
    """

    init: Callable[[Nest, Hypers], Nest]
    step: Callable[[Nest, Hypers, Nest, tf.Tensor], Nest]
    params: Callable[[Nest], Nest]


Again = Callable[[Nest, Hypers, Nest, tf.Tensor, Nest], Nest]
"""(state, hypers, batch, t, new) -> state: a step whose result, `new`, is known: its derivatives alone are wanted."""


def known_again(step: Callable[..., Nest], again: Again) -> Callable[..., Nest]:
    """The step, which says with `step.again` how reverse mode may go through it with less work.

    `again` puts parts of `new` in the place of what it computes (`assume`), so that the compiler drops what only the values
    of these needed. It is the step's own attribute: who replaces the step replaces both.
    """
    step.again = again  # type: ignore[attr-defined]
    return step


@tf.custom_gradient
def assume(known: tf.Tensor, computed: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[None, tf.Tensor]]]:
    """The value of `known` with the derivative of `computed`, which is equal to it."""
    return tf.identity(known), lambda upstream: (None, upstream)


def gradient(loss: Loss, params: Nest, hypers: Hypers, batch: Nest) -> Nest:
    """grad J_t(w), by a tape that outer tapes and accumulators differentiate again."""
    with tf.GradientTape() as tape:
        tape.watch(params)
        value = loss(params, hypers, batch)
    errors.check_scalar("loss", value, nest.flatten(params)[0].dtype)
    return nest.dense(tape.gradient(value, params, unconnected_gradients=tf.UnconnectedGradients.ZERO))


def resolve(argument: str, setting: Setting, params: Nest, hypers: Hypers, t: tf.Tensor) -> Nest:
    """The value of one setting at time t, for every leaf of the params."""
    value: Any
    if isinstance(setting, str):
        if setting not in hypers:
            raise errors.unknown_hyper(f"{argument}='{setting}'", setting, hypers)
        value = hypers[setting]
    elif callable(setting):
        value = setting(hypers, t)
    else:
        value = setting
    dtype = nest.flatten(params)[0].dtype
    try:
        value = nest.map(lambda leaf: tf.convert_to_tensor(leaf, dtype), value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{argument} has to come as {dtype.name}, like the params; use tf.cast. ({error})") from None
    try:
        return nest.broadcast_prefix(value, params)
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{argument}: the callable returned {[path for path, _ in nest.leaves_with_path(value)]}, which does not fit "
            f"the params {[path for path, _ in nest.leaves_with_path(params)]}; return one tensor or a prefix of them."
        ) from None


def check_settings(loss: Loss, **settings: Setting) -> None:
    """Refuses what can be neither a loss nor a setting, before anything is traced."""
    errors.check_callable("loss", loss, "(params, hypers, batch) -> scalar")
    for argument, setting in settings.items():
        if not (isinstance(setting, str | int | float) or callable(setting) or hasattr(setting, "dtype")):
            raise TypeError(
                f"{argument} is {type(setting).__name__} {setting!r:.80}; pass a number, the name of a hyper, or a "
                f"function (hypers, t) -> tensor."
            )


def safe_sqrt(x: tf.Tensor) -> tf.Tensor:
    """sqrt(x) with derivative 0 at x = 0, where the plain root gives inf * 0 = NaN.

    The inner `where` keeps the root away from 0, the outer one puts the 0 back, so that values do not change.
    """
    positive = x > 0
    return tf.where(positive, tf.sqrt(tf.where(positive, x, tf.ones_like(x))), tf.zeros_like(x))

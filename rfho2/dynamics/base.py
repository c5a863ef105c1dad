"""The `Dynamics` type, and what every optimiser needs: the gradient of the loss and the values of its settings."""

from __future__ import annotations

import dataclasses
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

    Any differentiable step can be used. The state is a nest of floating tensors whose structure and shapes never change.

    Attributes:
      init: (params, hypers) -> state; it may depend on the hypers, so that an initialisation can be learned.
      step: (state, hypers, batch, t) -> state, a pure function; t = 0, 1, ... is an int32 scalar.
      params: state -> params, the part that the objective is evaluated on.

    The steps of the library's optimisers have two further attributes: `step.replay` makes reverse mode cheaper, and
    `step.gradient` gives `rf.implicit` the stationarity condition: (params, hypers, batch, t) -> the gradient that is zero
    at the solution. A step that wraps another one has neither unless you attach them again. Everything then still works, but
    reverse mode is slower, and the condition of `rf.implicit` is that a step leaves the state unchanged. Attach
    `step.gradient` to a custom step that is not differentiable at its fixed point, such as a step of conjugate gradients or
    L-BFGS.

    >>> halve = Dynamics(lambda w, h: w, lambda w, h, batch, t: w - h["rate"] * w, lambda w: w)
    >>> halve.step(tf.constant(4.0), {"rate": tf.constant(0.5)}, None, tf.constant(0)).numpy().item()
    2.0
    """

    init: Callable[[Nest, Hypers], Nest]
    step: Callable[[Nest, Hypers, Nest, tf.Tensor], Nest]
    params: Callable[[Nest], Nest]


Replay = Callable[[Nest, Hypers, Nest, tf.Tensor, Nest], Nest]
"""(state, hypers, batch, t, new_state) -> new_state: replays a step whose result is known; only its derivatives are used."""


def with_replay(step: Callable[..., Nest], replay: Replay) -> Callable[..., Nest]:
    """Attaches to a step the cheaper version that reverse mode replays, as `step.replay`.

    The replay substitutes parts of the known result for what it computes (`substitute_value`), so that the compiler drops
    the operations that only those values needed. Because it is an attribute of the step, no stale
    replay can remain when the step is replaced.
    """
    step.replay = replay  # type: ignore[attr-defined]
    return step


def replay_of(dynamics: Dynamics) -> Replay | None:
    """The replay attached to the step of a dynamics, or None."""
    return getattr(dynamics.step, "replay", None)


Gradient = Callable[[Nest, Hypers, Nest, tf.Tensor], Nest]
"""(params, hypers, batch, t) -> the gradient of the training loss, which is zero where the training converges."""


@dataclasses.dataclass(frozen=True)
class OwnGradient:
    """A loss whose training follows another gradient than that of its value, such as a clipped one."""

    loss: Loss
    gradient: Gradient

    def __call__(self, params: Nest, hypers: Hypers, batch: Nest) -> tf.Tensor:
        """The value of the loss."""
        return self.loss(params, hypers, batch)


def with_gradient(step: Callable[..., Nest], loss: Loss) -> Callable[..., Nest]:
    """Attaches to a step the gradient of its loss, as `step.gradient`: it is zero where the training has converged."""
    step.gradient = lambda params, hypers, batch, t: gradient(loss, params, hypers, batch, t)  # type: ignore[attr-defined]
    return step


def gradient_of(dynamics: Dynamics) -> Gradient | None:
    """The gradient attached to the step of a dynamics, or None."""
    return getattr(dynamics.step, "gradient", None)


@tf.custom_gradient
def substitute_value(
    known: tf.Tensor, computed: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[None, tf.Tensor]]]:
    """The value of `known` with the derivative of `computed`; the two are equal."""
    return tf.identity(known), lambda upstream: (None, upstream)


def gradient(loss: Loss, params: Nest, hypers: Hypers, batch: Nest, t: tf.Tensor) -> Nest:
    """grad J_t(w), by a tape that outer tapes and accumulators can differentiate."""
    if isinstance(loss, OwnGradient):
        return loss.gradient(params, hypers, batch, t)
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
        value = _tensors(value, dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{argument} has to be {dtype.name}, like the params; use tf.cast. ({error})") from None
    try:
        return nest.broadcast_prefix(value, params)
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{argument}: the callable returned {[path for path, _ in nest.leaves_with_path(value)]}, which does not fit "
            f"the params {[path for path, _ in nest.leaves_with_path(params)]}; return one tensor or a prefix of them."
        ) from None


def _tensors(value: Any, dtype: tf.DType) -> Any:
    """The leaves as tensors; equal numbers become the same one, by which `leafwise.updated` recognises them."""
    numbers: dict[float, tf.Tensor] = {}

    def tensor(leaf: Any) -> tf.Tensor:
        if not isinstance(leaf, int | float):
            return tf.convert_to_tensor(leaf, dtype)
        if leaf not in numbers:
            numbers[leaf] = tf.convert_to_tensor(leaf, dtype)
        return numbers[leaf]

    return nest.map(tensor, value)


def is_zero(setting: Setting) -> bool:
    """Whether a setting is the number 0, so that what it scales can be left out."""
    return isinstance(setting, int | float) and setting == 0


def check_settings(loss: Loss, **settings: Setting) -> None:
    """Rejects anything that cannot be a loss or a setting, before tracing."""
    errors.check_callable("loss", loss, "(params, hypers, batch) -> scalar")
    for argument, setting in settings.items():
        check_setting(argument, setting)


def check_setting(argument: str, setting: Setting) -> None:
    """Rejects anything that cannot be a setting."""
    if not (isinstance(setting, str | int | float) or callable(setting) or hasattr(setting, "dtype")):
        raise TypeError(
            f"{argument} is {type(setting).__name__} {setting!r:.80}; pass a number, the name of a hyper, or a "
            f"function (hypers, t) -> tensor."
        )

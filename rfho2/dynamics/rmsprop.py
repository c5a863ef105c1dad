"""RMSProp."""

from __future__ import annotations

import tensorflow as tf

from rfho2.core.ops import inert_at_zero
from rfho2.dynamics.base import Dynamics, Loss, Setting, is_zero
from rfho2.dynamics.leafwise import Slots, Values, blend, leafwise, zeros


def rmsprop(
    loss: Loss,
    learning_rate: Setting,
    rho: Setting = 0.9,
    epsilon: Setting = 1e-7,
    momentum: Setting = 0.0,
    centered: bool = False,
    weight_decay: Setting = 0.0,
) -> Dynamics:
    """RMSProp, in Keras's form: epsilon is added inside the root.

    v_t = rho v_{t-1} + (1 - rho) g_t^2
    x_t = mu x_{t-1} + eta g_t / sqrt(v_t + epsilon),  w_t = w_{t-1} - x_t

    If centered, a_t^2 is subtracted from v_t under the root, where a_t = rho a_{t-1} + (1 - rho) g_t: the variance of the
    gradient takes the place of its mean square.

    Where a gradient has always been 0, the derivative of the step is taken to be 0, as in `rf.adam`.

    Args:
      loss: (params, hypers, batch) -> scalar, J_t; g_t is its gradient.
      learning_rate: eta.
      rho: decay rate of the means.
      epsilon: keeps the root away from 0.
      momentum: mu. The state has no x if it is the number 0.
      centered: see above.
      weight_decay: decoupled, as in `rf.adamw`.

    >>> dynamics = rmsprop(lambda w, hypers, batch: w**2, learning_rate=0.1, rho=0.0)
    >>> round(dynamics.step(dynamics.init(tf.constant(1.0), {}), {}, None, tf.constant(0)).params.numpy().item(), 4)
    0.9
    """
    settings: dict[str, Setting] = {"learning_rate": learning_rate, "rho": rho, "epsilon": epsilon}
    slots = ["mean_square"]
    if centered:
        slots.append("mean")
    if not is_zero(momentum):
        slots.append("velocity")
        settings["momentum"] = momentum
    return leafwise(loss, _rule, zeros(*slots), settings, weight_decay)


def _rule(w: tf.Tensor, g: tf.Tensor, slots: Slots, values: Values, n: tf.Tensor) -> tuple[tf.Tensor, Slots]:
    rho, new = values["rho"], dict[str, tf.Tensor]()
    new["mean_square"] = v = blend(slots["mean_square"], tf.square(g), rho)
    pull = inert_at_zero(g, v)
    if "mean" in slots:
        new["mean"] = blend(slots["mean"], g, rho)
        v -= tf.square(new["mean"])
    x = values["learning_rate"] * pull / tf.sqrt(v + values["epsilon"])
    if "velocity" in slots:
        new["velocity"] = x = values["momentum"] * slots["velocity"] + x
    return w - x, new

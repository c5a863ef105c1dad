"""The network and its two trainings: a few steps of gradient descent on one task, and Adam on all tasks jointly."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.common import networks
from experiments.learning_to_learn.tasks import Family, Points
from rfho2.core.types import Hypers, Nest

Params = networks.Params


def outputs(p: Params, x: tf.Tensor) -> tf.Tensor:
    """The network: ReLU layers and a linear output."""
    last = len(p) // 2 - 1
    for i in range(last):
        x = tf.nn.relu(x @ p[f"w{i}"] + p[f"b{i}"])
    return x @ p[f"w{last}"] + p[f"b{last}"]


def error(p: Params, hypers: Hypers, points: Points) -> tf.Tensor:
    """The mean squared error: what a task minimises, and what is reported."""
    x, y = points
    return tf.reduce_mean(tf.square(outputs(p, x) - y))


def random_weights(hidden: int, seed: int) -> Params:
    """Normal weights of variance 1 / inputs, and zero biases, for 1-hidden-hidden-1."""
    return networks.layers((1, hidden, hidden, 1), np.random.default_rng(seed))


def layer_rates(params: Params, rate: float) -> dict[str, tf.Tensor]:
    """The same learning rate for each layer, as hypers "rate 0", "rate 1", ..."""
    return {f"rate {i}": tf.constant(rate, params["w0"].dtype) for i in range(len(params) // 2)}


def descent() -> rf.Dynamics:
    """Gradient descent on a task: w_t = w_{t-1} - rate_layer grad J(w_{t-1}), with the hypers "rate 0", "rate 1", ..."""

    def rates(hypers: Hypers, t: tf.Tensor) -> Nest:
        layers = [name.removeprefix("rate ") for name in hypers if name.startswith("rate ")]
        return {f"{kind}{layer}": hypers[f"rate {layer}"] for layer in layers for kind in "wb"}

    return rf.gradient_descent(error, rates)


def from_hypers(params: Params, hypers: Hypers) -> Params:
    """w_0 where each array of the network is a hyper; the params give only its structure."""
    return {name: hypers[name] for name in params}


def adaptation(family: Family, steps: int, learned_initialisation: bool) -> rf.Problem:
    """`steps` steps of gradient descent on the points of task k; the objective is the error on its queries.

    Args:
      family: the tasks; hyper-iteration k is task k.
      steps: gradient steps.
      learned_initialisation: whether w_0 is a hyper, rather than the params.
    """
    dynamics = descent()._replace(init=from_hypers) if learned_initialisation else descent()
    return rf.Problem(
        dynamics,
        error,
        steps,
        batches=lambda t, k: family.task(k).support,
        validation=lambda k: family.task(k).queries,
    )


def joint_training(family: Family, tasks: int) -> rf.Problem:
    """Adam on `tasks` tasks at a time, all of their points in one batch; its learning rate is the hyper "rate"."""
    return rf.Problem(
        rf.adam(error, "rate"),
        error,
        steps=None,
        batches=lambda t: family.joint(t, tasks),
        validation=lambda k: family.joint(k, tasks),
    )

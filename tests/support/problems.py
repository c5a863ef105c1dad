"""The table of problems, and an independent way to compute a hypergradient: differences of a plain Python loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf

STEPS = 7


class Case(NamedTuple):
    """A loss and an objective with everything they need, all in one dtype."""

    loss: Callable[..., tf.Tensor]
    objective: Callable[..., tf.Tensor]
    params: Any
    hypers: dict[str, Any]
    batches: Any
    validation: Any


def quadratic(dtype: tf.DType = tf.float64) -> Case:
    """1/2 sum a_i (w_i - c_i)^2 with a as a hyper: gradient descent has a closed form."""
    c = tf.constant([1.0, -2.0, 0.5], dtype)

    def loss(w, hypers, batch):
        return 0.5 * tf.reduce_sum(hypers["curvature"] * (w - c) ** 2)

    def objective(w, hypers, batch):
        return 0.5 * tf.reduce_sum((w - 0.3) ** 2)

    return Case(loss, objective, tf.constant([2.0, 1.0, -1.0], dtype), {"curvature": [0.5, 1.0, 1.7]}, None, None)


def softmax_regression(dtype: tf.DType = tf.float64) -> Case:
    """Softmax regression with a weight for each example, full batch."""
    rng = np.random.default_rng(1)
    x, y = tf.constant(rng.normal(size=(12, 4)), dtype), tf.constant(rng.integers(0, 3, 12))
    xv, yv = tf.constant(rng.normal(size=(9, 4)), dtype), tf.constant(rng.integers(0, 3, 9))

    def errors(params, x, y):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ params["w"] + params["b"])

    def loss(params, hypers, batch):
        return tf.reduce_mean(hypers["weights"] * errors(params, *batch))

    def objective(params, hypers, batch):
        return tf.reduce_mean(errors(params, *batch))

    params = {"w": tf.constant(rng.normal(size=(4, 3)), dtype), "b": tf.constant(rng.normal(size=3), dtype)}
    full = rf.batches.full
    return Case(loss, objective, params, {"weights": rng.uniform(0.2, 1.0, 12)}, full((x, y)), full((xv, yv)))


def cosh_valley(dtype: tf.DType = tf.float64) -> Case:
    """sum cosh(w - batch) + l2 |w|^2, with a batch that differs at every t: the smallest problem that is not quadratic."""

    def loss(w, hypers, batch):
        return tf.reduce_sum(tf.cosh(w - batch)) + hypers["l2"] * tf.reduce_sum(w**2)

    def objective(w, hypers, batch):
        return tf.reduce_sum(tf.cosh(w - batch))

    params = tf.constant([0.9, -0.4], dtype)
    return Case(loss, objective, params, {"l2": 0.02}, lambda t: 0.1 * tf.cast(t, dtype), rf.batches.full(params / 2))


def tanh_network(dtype: tf.DType = tf.float64) -> Case:
    """A tanh network with L2 decay, on minibatches that rotate through the examples: cheap to trace, new at every t."""
    return _network(
        dtype, lambda data: lambda t: tf.nest.map_structure(lambda x: tf.gather(x, (4 * t + tf.range(4)) % 13), data)
    )


def shuffled_network(dtype: tf.DType = tf.float64) -> Case:
    """The same network on minibatches that are reshuffled in each epoch of 3 batches; 13 examples need cycle walking."""
    return _network(dtype, lambda data: rf.batches.shuffled(data, batch_size=4, seed=3))


def _network(dtype: tf.DType, batches: Callable[[Any], Any]) -> Case:
    rng = np.random.default_rng(2)
    x, y = tf.constant(rng.normal(size=(13, 3)), dtype), tf.constant(rng.integers(0, 2, 13))

    def error(params, x, y):
        hidden = tf.tanh(x @ params[0]["w"] + params[0]["b"])
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, hidden @ params[1]["w"] + params[1]["b"]))

    def loss(params, hypers, batch):
        return error(params, *batch) + hypers["l2"] * sum(tf.reduce_sum(layer["w"] ** 2) for layer in params)

    def objective(params, hypers, batch):
        return error(params, *batch)

    def layer(m, n):
        return {"w": tf.constant(rng.normal(size=(m, n)), dtype), "b": tf.constant(rng.normal(size=n), dtype)}

    params = [layer(3, 4), layer(4, 2)]
    return Case(loss, objective, params, {"l2": 0.02}, batches((x, y)), rf.batches.full((x, y)))


PROBLEMS = {f.__name__: f for f in (quadratic, softmax_regression, tanh_network, shuffled_network)}

QUICK = ("momentum", "adam")
"""The optimisers of tests that take seconds each; the other optimisers are marked slow and run by `make check-all`."""

OPTIMISERS: dict[str, tuple[Callable[..., rf.Dynamics], dict[str, float]]] = {
    "gradient_descent": (rf.gradient_descent, {"learning_rate": 0.2}),
    "momentum": (rf.momentum, {"learning_rate": 0.1, "momentum": 0.7}),
    "nesterov": (rf.nesterov, {"learning_rate": 0.1, "momentum": 0.7}),
    "rmsprop": (rf.rmsprop, {"learning_rate": 0.05, "rho": 0.8, "epsilon": 1e-2}),
    "adagrad": (rf.adagrad, {"learning_rate": 0.2, "initial_accumulator_value": 0.1, "epsilon": 1e-2}),
    "adam": (rf.adam, {"learning_rate": 0.05, "beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-2}),
    "adamw": (rf.adamw, {"learning_rate": 0.05, "weight_decay": 0.1, "beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-2}),
}


def optimisers(*quick: str) -> list[Any]:
    """All optimisers as parameters of a test, those not in `quick` (by default QUICK) marked slow."""
    return [n if n in (quick or QUICK) else pytest.param(n, marks=pytest.mark.slow) for n in OPTIMISERS]


def build(
    problem: str, optimiser: str, steps: int = STEPS, dtype: tf.DType = tf.float64
) -> tuple[rf.Problem, Any, dict[str, Any]]:
    """(problem, params, hypers) with *every* setting of the optimiser a hyper of the same name."""
    case = PROBLEMS[problem](dtype)
    make, settings = OPTIMISERS[optimiser]
    dynamics = make(case.loss, **{name: name for name in settings})
    hypers = tf.nest.map_structure(
        lambda x: tf.constant(x, dtype), {**settings, **{n: np.array(v) for n, v in case.hypers.items()}}
    )
    return rf.Problem(dynamics, case.objective, steps, case.batches, case.validation), case.params, hypers


def response(problem: rf.Problem, params: Any, hypers: dict[str, tf.Tensor]) -> tf.Tensor:
    """E(s_T), by a plain Python loop."""
    state = problem.dynamics.init(params, hypers)
    for t in map(tf.constant, range(problem.steps)):
        batch = None if problem.batches is None else problem.batches(t)
        state = problem.dynamics.step(state, hypers, batch, t)
    batch = None if problem.validation is None else problem.validation(tf.constant(0))
    return problem.objective(problem.dynamics.params(state), hypers, batch)


def differences(
    f: Callable[[dict[str, tf.Tensor]], Any], hypers: dict[str, tf.Tensor], h: float = 1e-5
) -> dict[str, np.ndarray]:
    """Central differences of f with respect to every entry of every hyper.

    f is traced once, as the unrolled graph of what it does: run eagerly, its many small ops would take most of the time.
    """
    f = tf.function(f, autograph=False)
    quotients = {}
    for name, hyper in hypers.items():
        entries = []
        for unit in np.eye(int(np.prod(hyper.shape))):
            shift = h * unit.reshape(hyper.shape)
            entries.append((f({**hypers, name: hyper + shift}) - f({**hypers, name: hyper - shift})) / (2 * h))
        quotients[name] = np.reshape(entries, hyper.shape)
    return quotients


def relative(a: Any, b: Any) -> float:
    """||a - b|| / max(||a||, ||b||) over all hypers' entries."""
    flat = [np.concatenate([np.ravel(x[name]) for name in sorted(x)]) for x in (a, b)]
    return float(np.linalg.norm(flat[0] - flat[1]) / (max(map(np.linalg.norm, flat)) or 1.0))


def assert_agree(a: dict[str, Any], b: dict[str, Any], rtol: float) -> None:
    """Each hyper's derivative agrees, relative to its own norm."""
    assert a.keys() == b.keys()
    for name in a:
        assert np.shape(a[name]) == np.shape(b[name]), name
        assert relative({name: a[name]}, {name: b[name]}) <= rtol, (name, np.asarray(a[name]), np.asarray(b[name]))

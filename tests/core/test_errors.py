"""Each mistake gets a message that names the argument, shows its value and says what to do."""

import random
import re

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.core import errors

W = tf.constant([1.0, 2.0])
COUNTER = tf.Variable(0.0)


def loss(w, hypers, batch):
    return tf.reduce_sum(w**2) * hypers.get("scale", 1.0)


def cut(w, hypers, batch):
    return tf.reduce_sum(w**2) * tf.stop_gradient(hypers["scale"])


def fourth(w, hypers, batch):
    return tf.reduce_sum(w**4)


def first(p, hypers, batch):
    return tf.reduce_sum(p["a"])


DESCENT = rf.gradient_descent(loss, "lr")
PROBLEM, ENDLESS = (rf.Problem(DESCENT, loss, steps) for steps in (2, None))
STREAM = rf.batches.stream(tf.data.Dataset.range(3).repeat())


def run(params=W, hypers=None, dynamics=DESCENT, objective=loss, **kwargs):
    problem = rf.Problem(dynamics, objective, 2, **kwargs)
    return rf.reverse(problem, jit_compile=False)(params, {"lr": 0.1} if hypers is None else hypers)


def objectives(**names):
    """By their names, the names of the hypers that they tune."""
    return {name: rf.Objective(loss, hypers) for name, hypers in names.items()}


def tuned(constraints=None, hypers=None, problem=PROBLEM):
    """A run of the driver."""
    engine = rf.reverse(problem, jit_compile=False)
    return rf.HyperOptimizer(engine, rf.projected_adam(0.1, constraints)).run(W, hypers or {"lr": 0.1}, 1)


MISTAKES = {
    # params
    "an integer leaf of params": (
        lambda: run(params={"layer": [W, tf.constant([1, 2])]}),
        TypeError, "params leaf 'layer/1'", "int32", "float32 or float64",
    ),
    "bfloat16": (lambda: run(params=tf.cast(W, tf.bfloat16)), TypeError, "params leaf", "bfloat16", "keep it in float32"),
    "mixed dtypes": (
        lambda: run(params={"a": W, "b": tf.constant(1.0, tf.float64)}),
        TypeError, "'a' is float32", "'b' is float64", "Cast",
    ),
    "no params": (lambda: run(params={}), ValueError, "params is", "nothing to train"),
    "an empty list of params": (lambda: run(params=[]), ValueError, "params is", "nothing to train"),
    # hypers
    "an integer hyper": (lambda: run(hypers={"lr": 1}), TypeError, "hyper 'lr'", "int", "1.0 instead of 1"),
    "a hyper that is no number": (lambda: run(hypers={"lr": "fast"}), TypeError, "hyper 'lr'", "string"),
    "no hypers": (lambda: run(hypers={}), ValueError, "hypers is empty", "{'lr': 0.1}"),
    "hypers that are no dict": (lambda: run(hypers=[0.1]), TypeError, "hypers is", "flat dict"),
    "nested hypers": (lambda: run(hypers={"a": {"b": 1.0}}), TypeError, "hyper 'a'", "flat", "['b']"),
    "an unknown name in a setting": (
        lambda: run(dynamics=rf.gradient_descent(loss, "rate")),
        ValueError, "learning_rate='rate'", "'rate'", "['lr']", "Add it",
    ),
    "a hyper that the loss asks for": (
        lambda: run(objective=lambda w, hypers, batch: hypers["l2"] * tf.reduce_sum(w)),
        ValueError, "asks for 'l2'", "hypers ['lr']", "Add it",
    ),
    "data of another dtype than the params": (
        lambda: run(objective=lambda w, hypers, batch: tf.reduce_sum(w * tf.ones(w.shape, tf.float64))),
        TypeError, "params are float32", "float64", "Cast the data",
    ),
    "integer data": (
        lambda: run(objective=lambda w, hypers, batch: tf.reduce_sum(w * tf.ones(w.shape, tf.int64))),
        TypeError, "params are float32", "int64", "Cast the data",
    ),
    "hypers of another length than the data": (
        lambda: run(
            hypers={"lr": 0.1, "each": [0.5, 0.5, 0.5]},
            objective=lambda w, hypers, batch: tf.reduce_sum(w) * tf.reduce_sum(hypers["each"] * tf.ones(5)),
        ),
        ValueError, "3 and 5", "{'each': [3]}", "tf.gather",
    ),
    "hypers of another length than the params": (
        lambda: run(
            hypers={"lr": 0.1, "each": [0.5, 0.5, 0.5]},
            objective=lambda w, hypers, batch: tf.reduce_sum(w * hypers["each"]),
        ),
        ValueError, "{'each': [3]}, params {'.': [2]}", "needs the shape of the params",
    ),
    "a matrix times a vector": (
        lambda: run(objective=lambda w, hypers, batch: tf.reduce_sum(tf.ones([2, 3]) @ w)),
        ValueError, "a product of matrices received a vector", "tf.linalg.matvec",
    ),
    "arguments of an objective in another order": (
        lambda: run(objective=lambda hypers, w, batch: hypers["lr"] * tf.reduce_sum(w)),
        TypeError, "cannot use its arguments", "(params, hypers, batch), in this order",
    ),
    "an index that is a vector": (
        lambda: run(objective=lambda w, hypers, batch: tf.reduce_sum(w) * w[tf.constant([0, 1])][0]),
        TypeError, "tf.gather(hyper, index)",
    ),
    "an objective of too few arguments": (
        lambda: run(objective=lambda w, batch: tf.reduce_sum(w)),
        TypeError, "2 positional arguments", "(params, hypers, batch)",
    ),
    "a batch of another length": (
        lambda: run(objective=lambda w, hypers, batch: sum(a for a, _, _ in [batch]), validation=rf.batches.full((W, W))),
        ValueError, "cannot unpack", "expected 3, got 2", "what validation(k) returns",
    ),
    "a schedule of t alone": (
        lambda: run(dynamics=rf.gradient_descent(loss, lambda t: 0.1)),
        TypeError, "1 positional argument", "Schedules receive",
    ),
    "no validation data": (
        lambda: run(objective=lambda w, hypers, batch: tf.reduce_sum(w * batch[0]), batches=rf.batches.full(W)),
        TypeError, "None as its batch", "no validation (", "Pass validation=rf.batches.full",
    ),
    "a step that returns nothing": (
        lambda: run(dynamics=DESCENT._replace(step=lambda state, hypers, batch, t: None)),
        ValueError, "dynamics.step", "None", "Return the state with the same structure",
    ),
    "an objective that returns nothing": (
        lambda: run(objective=lambda w, hypers, batch: None), TypeError, "objective returned NoneType",
    ),
    "random numbers without a seed": (
        lambda: run(objective=lambda w, hypers, batch: tf.reduce_sum(w) * tf.random.normal([])),
        ValueError, "RandomStandardNormal", "no seed", "rf.batches.seeded",
    ),
    "NumPy's random numbers": (
        lambda: run(objective=lambda w, hypers, batch: tf.reduce_sum(w) * np.random.normal()),
        ValueError, "draws random numbers with numpy.random",
    ),
    "Python's random numbers": (
        lambda: run(objective=lambda w, hypers, batch: tf.reduce_sum(w) * random.random()),
        ValueError, "draws random numbers with random,",
    ),
    "an assignment": (
        lambda: run(objective=lambda w, hypers, batch: tf.reduce_sum(w) * COUNTER.assign_add(1.0)),
        ValueError, "assigns to a variable (AssignAddVariableOp)", "part of the state",
    ),
    "a hyper that reaches nothing": (
        lambda: run(hypers={"lr": 0.1, "lost": 1.0}),
        ValueError, "hyper 'lost' has no effect", "dynamics.init", "dynamics.step", "remove it",
    ),
    "a hyper behind stop_gradient": (
        lambda: run(dynamics=rf.gradient_descent(cut, "lr"), hypers={"lr": 0.1, "scale": 1.0}, objective=cut),
        ValueError, "'scale' has no effect",
    ),
    # objectives
    "a hyper under no objective": (
        lambda: run(hypers={"lr": 0.1, "direct": 1.0}, objective=objectives(a=["lr"])),
        ValueError, "'direct'", "under none",
    ),
    "a hyper that another objective tunes": (
        lambda: run(
            hypers={"lr": 0.1, "other": 1.0, "direct": 1.0},
            objective={
                "a": rf.Objective(loss, ["lr", "direct"]),
                "b": rf.Objective(lambda w, h, b: tf.reduce_sum(w) * h["direct"], ["other"]),
            },
        ),
        ValueError, "'direct' has no effect", "objective 'a'",
    ),
    "an objective of another dtype": (
        lambda: run(objective=lambda w, hypers, batch: tf.cast(tf.reduce_sum(w), tf.float64)),
        TypeError, "objective returned float64", "params are float32", "tf.cast",
    ),
    "a hyper under two objectives": (
        lambda: run(objective=objectives(a=["lr"], b=["lr"])), ValueError, "['lr']", "several objectives", "exactly one",
    ),
    "an objective that names an unknown hyper": (
        lambda: run(objective=objectives(a=["lr", "mu"])), ValueError, "objective 'a'", "'mu'", "['lr']",
    ),
    "a dict of plain functions": (lambda: run(objective={"a": loss}), TypeError, "rf.Objective"),
    "a string of hypers": (
        lambda: run(objective=objectives(a="lr")), TypeError, "objective 'a'", "string 'lr'", "list of names",
    ),
    "batches of an objective that are no function": (
        lambda: run(objective={"a": rf.Objective(loss, ["lr"], batches=W)}),
        TypeError, "batches of objective a", "k -> batch",
    ),
    "an objective that is a vector": (
        lambda: run(objective=lambda w, h, b: w * h["lr"]), ValueError, "objective returned", "(2,)", "scalar",
    ),
    "an objective that is no tensor": (
        lambda: run(objective=lambda w, h, b: 1.0), TypeError, "objective returned", "float 1.0", "scalar",
    ),
    "a loss that is a vector": (
        lambda: run(dynamics=rf.gradient_descent(lambda w, h, b: w, "lr")),
        ValueError, "loss returned", "(2,)", "tf.reduce_mean",
    ),
    # dynamics
    "a step that changes the structure": (
        lambda: run(dynamics=rf.Dynamics(lambda w, h: (w, w), lambda s, h, b, t: [s[0] * h["lr"]], lambda s: s[0])),
        ValueError, "dynamics.step changed the structure", "['0', '1']", "['0']",
    ),
    "a step that changes a shape": (
        lambda: run(
            dynamics=rf.Dynamics(lambda w, h: {"w": w}, lambda s, h, b, t: {"w": s["w"][:1] * h["lr"]}, lambda s: s["w"])
        ),
        ValueError, "state leaf 'w'", "float32[2]", "float32[1]",
    ),
    "a step that changes a dtype": (
        lambda: run(dynamics=rf.Dynamics(lambda w, h: w, lambda s, h, b, t: tf.cast(s * h["lr"], tf.float64), lambda s: s)),
        ValueError, "dynamics.step changed", "float32[2]", "float64[2]",
    ),
    "an integer leaf of the state": (
        lambda: run(
            dynamics=rf.Dynamics(
                lambda w, h: (w, tf.constant(0)), lambda s, h, b, t: (s[0] * h["lr"], s[1] + 1), lambda s: s[0]
            )
        ),
        TypeError, "state leaf '1'", "int32", "step receives t",
    ),
    "a state that is not of tensors": (
        lambda: run(dynamics=rf.Dynamics(lambda w, h: {"v": 0.0, "w": w}, lambda s, h, b, t: s, lambda s: s["w"])),
        TypeError, "state leaf 'v' as float", "tf.constant(x, tf.float32)",
    ),
    "a state of another dtype": (
        lambda: run(
            dynamics=rf.Dynamics(
                lambda w, h: {"a": tf.zeros(2, tf.float64), "w": w}, lambda s, h, b, t: s, lambda s: s["w"]
            )
        ),
        TypeError, "state leaf 'a' of dtype float64", "has to be float32",
    ),
    "a schedule of another dtype": (
        lambda: run(
            dynamics=rf.gradient_descent(loss, lambda hypers, t: 0.1 / (1 + tf.cast(t, tf.float64))), hypers={"scale": 1.0}
        ),
        TypeError, "learning_rate has to be float32", "tf.cast",
    ),
    "a prefix that does not fit the params": (
        lambda: run(
            params={"a": W, "b": W},
            dynamics=rf.gradient_descent(first, lambda hypers, t: {"x": hypers["lr"]}),
            objective=first,
        ),
        ValueError, "learning_rate", "['x']", "['a', 'b']", "prefix",
    ),
    # counts
    "no steps in reverse": (lambda: rf.reverse(ENDLESS), ValueError, "steps is None", "rf.real_time"),
    "no steps in forward mode": (lambda: rf.forward(ENDLESS), ValueError, "steps is None", "rf.real_time"),
    "truncation to nothing": (lambda: rf.reverse(PROBLEM, truncate=0), ValueError, "truncate is 0"),
    "truncation to more than all": (lambda: rf.reverse(PROBLEM, truncate=3), ValueError, "truncate is 3"),
    "an empty hyper-batch": (lambda: rf.real_time(ENDLESS, hyper_batch=0), ValueError, "hyper_batch is 0"),
    # streams
    "a stream for validation": (lambda: run(validation=STREAM), TypeError, "validation is a stream", "rf.batches.shuffled"),
    "a seeded stream": (lambda: rf.batches.seeded(STREAM, 0), TypeError, "batches is a stream", "seed"),
    "a stream with a partial batch": (
        lambda: rf.batches.stream(tf.data.Dataset.range(5).batch(3).repeat()).take(2),
        ValueError, "differ in shape", "drop_remainder=True",
    ),
    # things in the wrong place
    "a problem for an engine": (
        lambda: rf.HyperOptimizer(PROBLEM, rf.projected_adam(0.1)), TypeError, "engine is Problem", "rf.reverse(problem)",
    ),
    "a function for an optimizer": (
        lambda: rf.HyperOptimizer(rf.reverse(PROBLEM), rf.projected_adam),
        TypeError, "optimizer is function", "rf.projected_adam",
    ),
    "one callback": (
        lambda: rf.HyperOptimizer(rf.reverse(PROBLEM), rf.projected_adam(0.1), rf.ProgressBar()),
        TypeError, "callbacks is ProgressBar", "[rf.ProgressBar()]",
    ),
    "a loss that is no function": (
        lambda: rf.gradient_descent(W, "lr"), TypeError, "loss is", "(params, hypers, batch)",
    ),
    "dynamics that are a function": (
        lambda: rf.Problem(loss, loss, 2), TypeError, "dynamics is", "rf.Dynamics(init, step, params)",
    ),
    "batches that are a tensor": (
        lambda: rf.Problem(DESCENT, loss, 2, batches=W), TypeError, "batches is", "rf.batches.full",
    ),
    "momentum that is nothing": (lambda: rf.momentum(loss, "lr", None), TypeError, "momentum is", "name of a hyper"),
    # the driver
    "a constraint for nothing": (
        lambda: tuned({"mu": rf.NonNegative()}), ValueError, "constraints", "'mu'", "['lr']",
    ),
    "a training that diverges": (
        lambda: tuned(hypers={"lr": 10.0}, problem=rf.Problem(rf.gradient_descent(fourth, "lr"), loss, 30)),
        rf.DivergenceError, "hyper-iteration 0", "not finite", "Norms", "smaller inner learning rate",
    ),
    "a constraint that is no set": (lambda: tuned({"lr": (0.0, 1.0)}), TypeError, "(0.0, 1.0) for 'lr'", "rf.Box("),
    "the class of a constraint": (lambda: tuned({"lr": rf.NonNegative}), TypeError, "constraints has", "rf.NonNegative()"),
    "constraints and rate in another order": (
        lambda: rf.projected_adam({"lr": rf.Box(0.0, 1.0)}, 0.1), TypeError, "constraints is 0.1", "after the learning rate",
    ),
    "a rate that is no number": (lambda: rf.projected_adam({"lr": "fast"}), TypeError, "learning_rate of 'lr' is 'fast'"),
    "a negative rate": (lambda: rf.projected_adam(-0.1), ValueError, "learning_rate is -0.1", "positive"),
    "a log scale without names": (lambda: rf.projected_adam(0.1, log_scale=True), TypeError, "log_scale is True", "a list"),
    "params and hypers in another order": (
        lambda: rf.HyperOptimizer(rf.reverse(PROBLEM), rf.projected_adam(0.1)).run({"lr": 0.1}, W, 1),
        TypeError, "hypers is", "after the params",
    ),
    "lists as data": (
        lambda: rf.batches.shuffled(([[1.0, 2.0]] * 100, [0.0] * 100), 10, seed=0),
        ValueError, "the leaves have shapes {'0/0/0'", "pass np.asarray(list)",
    ),
    "an infeasible start": (
        lambda: tuned({"lr": rf.NonNegative()}, {"lr": -0.1}), ValueError, "hyper 'lr'", "NonNegative()", "project",
    ),
}  # fmt: skip
MISTAKES |= {
    f"{steps!r} steps": (
        lambda steps=steps: rf.Problem(DESCENT, loss, steps),
        ValueError,
        f"steps is {steps!r}",
        "at least 1",
    )
    for steps in (0, -1, 2.5, "3", True)
}
MISTAKES |= {
    f"a running cost every {every} steps": (
        lambda every=every: rf.Problem(DESCENT, rf.RunningCost(loss, every=every), 3), ValueError, f"every is {every}",
    )
    for every in (-1, 0, 4)
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_with_what_to_do(mistake):
    make, error, *parts = MISTAKES[mistake]
    with pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, parts))):
        make()


def test_python_floats_become_hypers_without_rounding():
    hypers = errors.checked_hypers({"lr": 0.1, "decays": [0.1, 0.2]}, tf.zeros(2, tf.float64))
    assert hypers["lr"].numpy() == 0.1
    assert hypers["decays"].numpy().tolist() == [0.1, 0.2]


def test_an_objective_without_a_derivative_is_reported():
    with pytest.warns(
        UserWarning,
        match="the objective has no derivative with respect to params and hypers, so that its hypergradients are 0",
    ):
        grads = run(objective=lambda w, hypers, batch: tf.reduce_mean(tf.cast(w > 0, tf.float32))).grads
    assert grads["lr"] == 0.0


def test_params_may_hold_more_than_tensors_and_an_objective_may_only_be_watched(recwarn):
    view = DESCENT._replace(params=lambda state: {"w": DESCENT.params(state), "scale": 2.0, "none": None})
    objective = lambda p, hypers, batch: p["scale"] * tf.reduce_sum(p["w"])  # noqa: E731
    watched = rf.Objective(lambda p, hypers, batch: tf.reduce_mean(tf.cast(p["w"] > 0, tf.float32)), [])
    result = run(dynamics=view, objective={"loss": rf.Objective(objective, ["lr"]), "accuracy": watched})
    assert result.grads["lr"] != 0.0
    assert not recwarn.list


def test_a_zero_derivative_is_not_an_error_and_a_hyper_may_reach_the_objective_alone():
    direct = lambda w, hypers, batch: tf.reduce_sum(w) * hypers["only"]  # noqa: E731
    grads = run(hypers={"lr": 0.0, "scale": 0.0, "only": 2.0}, objective=direct).grads
    assert grads["scale"] == 0.0
    np.testing.assert_allclose(grads["only"], 3.0)

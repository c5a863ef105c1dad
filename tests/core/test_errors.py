"""Each mistake gets a message that names the argument, shows its value and says what to do."""

import re

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.core import errors

W = tf.constant([1.0, 2.0])


def loss(w, hypers, batch):
    return tf.reduce_sum(w**2) * hypers.get("scale", 1.0)


def run(params=W, hypers=None, dynamics=None, objective=loss, **kwargs):
    problem = rf.Problem(dynamics or rf.gradient_descent(loss, "lr"), objective, 2, **kwargs)
    return rf.reverse(problem, jit_compile=False)(params, {"lr": 0.1} if hypers is None else hypers)


def refuses(error, *parts):
    """The message has these parts, in this order."""
    return pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, parts)))


def test_an_integer_leaf_of_params():
    with refuses(TypeError, "params leaf 'layer/1'", "int32", "float32 or float64"):
        run(params={"layer": [W, tf.constant([1, 2])]})


def test_an_integer_hyper():
    with refuses(TypeError, "hyper 'lr'", "int", "1.0 instead of 1"):
        run(hypers={"lr": 1})


def test_python_floats_become_hypers_without_rounding():
    hypers = errors.checked_hypers({"lr": 0.1, "decays": [0.1, 0.2]}, tf.zeros(2, tf.float64))
    assert hypers["lr"].numpy() == 0.1
    assert hypers["decays"].numpy().tolist() == [0.1, 0.2]


def test_a_hyper_that_is_no_number():
    with refuses(TypeError, "hyper 'lr'", "string"):
        run(hypers={"lr": "fast"})


def test_bfloat16_params():
    with refuses(TypeError, "params leaf", "bfloat16", "keep it in float32"):
        run(params=tf.cast(W, tf.bfloat16))


def test_mixed_dtypes_of_params():
    with refuses(TypeError, "'a' is float32", "'b' is float64", "Cast"):
        run(params={"a": W, "b": tf.constant(1.0, tf.float64)})


@pytest.mark.parametrize("params", [{}, []])
def test_no_params(params):
    with refuses(ValueError, "params is", "nothing to train"):
        run(params=params)


def test_no_hypers():
    with refuses(ValueError, "hypers is empty", "{'lr': 0.1}"):
        run(hypers={})


def test_hypers_that_are_no_dict():
    with refuses(TypeError, "hypers is", "flat dict"):
        run(hypers=[0.1])


def test_nested_hypers():
    with refuses(TypeError, "hyper 'a'", "flat", "['b']"):
        run(hypers={"a": {"b": 1.0}})


def test_an_unknown_hyper_name_in_a_setting():
    with refuses(ValueError, "learning_rate='rate'", "'rate'", "['lr']", "Add it"):
        run(dynamics=rf.gradient_descent(loss, "rate"))


@pytest.mark.parametrize("method", [rf.reverse, rf.forward, lambda p, **kw: rf.real_time(p, 2, **kw)])
def test_a_hyper_that_reaches_nothing(method):
    problem = rf.Problem(rf.gradient_descent(loss, "lr"), loss, 2)
    with refuses(ValueError, "hyper 'lost' has no effect", "dynamics.init", "dynamics.step", "remove it"):
        method(problem, jit_compile=False)(W, {"lr": 0.1, "lost": 1.0})


def test_a_hyper_behind_stop_gradient_reaches_nothing():
    cut = lambda w, hypers, batch: tf.reduce_sum(w**2) * tf.stop_gradient(hypers["scale"])  # noqa: E731
    with refuses(ValueError, "'scale' has no effect"):
        run(dynamics=rf.gradient_descent(cut, "lr"), hypers={"lr": 0.1, "scale": 1.0}, objective=cut)


def test_a_zero_derivative_is_not_an_error():
    end = lambda w, hypers, batch: tf.reduce_sum(w)  # noqa: E731
    assert run(hypers={"lr": 0.0, "scale": 0.0}, objective=end).grads["scale"] == 0.0


def test_a_hyper_may_reach_the_objective_alone():
    direct = lambda w, hypers, batch: hypers["only"] * tf.reduce_sum(w)  # noqa: E731
    np.testing.assert_allclose(run(hypers={"lr": 0.0, "only": 2.0}, objective=direct).grads["only"], 3.0)


def test_a_hyper_must_reach_the_objective_that_tunes_it():
    objectives = {
        "a": rf.Objective(loss, ["lr"]),
        "b": rf.Objective(lambda w, h, b: tf.reduce_sum(w) * h["direct"], ["other"]),
    }
    with refuses(ValueError, "'direct'", "under none"):
        run(hypers={"lr": 0.1, "other": 1.0, "direct": 1.0}, objective=objectives)
    with refuses(ValueError, "'direct' has no effect", "objective 'a'"):
        objectives["a"] = rf.Objective(loss, ["lr", "direct"])
        run(hypers={"lr": 0.1, "other": 1.0, "direct": 1.0}, objective=objectives)


def test_an_objective_of_another_dtype():
    with refuses(TypeError, "objective returned float64", "params are float32", "tf.cast"):
        run(objective=lambda w, hypers, batch: tf.cast(tf.reduce_sum(w), tf.float64))


def test_a_hyper_under_two_objectives():
    objectives = {name: rf.Objective(loss, ["lr"]) for name in "ab"}
    with refuses(ValueError, "['lr']", "several objectives", "exactly one"):
        run(objective=objectives)


def test_an_objective_that_names_an_unknown_hyper():
    with refuses(ValueError, "objective 'a'", "'mu'", "['lr']"):
        run(objective={"a": rf.Objective(loss, ["lr", "mu"])})


def test_a_dict_of_plain_functions():
    with refuses(TypeError, "rf.Objective"):
        run(objective={"a": loss})


def test_a_step_that_changes_the_structure():
    dynamics = rf.Dynamics(lambda w, h: (w, w), lambda s, h, b, t: [s[0] * h["lr"]], lambda s: s[0])
    with refuses(ValueError, "dynamics.step changed the structure", "['0', '1']", "['0']"):
        run(dynamics=dynamics)


def test_a_step_that_changes_a_shape():
    dynamics = rf.Dynamics(lambda w, h: {"w": w}, lambda s, h, b, t: {"w": s["w"][:1] * h["lr"]}, lambda s: s["w"])
    with refuses(ValueError, "state leaf 'w'", "float32[2]", "float32[1]"):
        run(dynamics=dynamics)


def test_a_step_that_changes_a_dtype():
    dynamics = rf.Dynamics(lambda w, h: w, lambda s, h, b, t: tf.cast(s * h["lr"], tf.float64), lambda s: s)
    with refuses(ValueError, "dynamics.step changed", "float32[2]", "float64[2]"):
        run(dynamics=dynamics)


def test_an_integer_leaf_of_the_state():
    dynamics = rf.Dynamics(lambda w, h: (w, tf.constant(0)), lambda s, h, b, t: (s[0] * h["lr"], s[1] + 1), lambda s: s[0])
    with refuses(TypeError, "state leaf '1'", "int32", "step receives t"):
        run(dynamics=dynamics)


@pytest.mark.parametrize(("objective", "shown"), [(lambda w, h, b: w * h["lr"], "(2,)"), (lambda w, h, b: 1.0, "float 1.0")])
def test_an_objective_that_is_not_a_scalar(objective, shown):
    with refuses((TypeError, ValueError), "objective returned", shown, "scalar"):
        run(objective=objective)


def test_a_loss_that_is_not_a_scalar():
    with refuses(ValueError, "loss returned", "(2,)", "tf.reduce_mean"):
        run(dynamics=rf.gradient_descent(lambda w, h, b: w, "lr"))


@pytest.mark.parametrize("steps", [0, -1, 2.5, "3", True])
def test_steps_below_one(steps):
    with refuses(ValueError, f"steps is {steps!r}", "at least 1"):
        rf.Problem(rf.gradient_descent(loss, "lr"), loss, steps)


@pytest.mark.parametrize("method", [rf.reverse, rf.forward])
def test_no_steps_outside_real_time(method):
    with refuses(ValueError, "steps is None", "rf.real_time"):
        method(rf.Problem(rf.gradient_descent(loss, "lr"), loss, None))


@pytest.mark.parametrize("truncate", [0, 3])
def test_truncate_out_of_range(truncate):
    with refuses(ValueError, f"truncate is {truncate}"):
        rf.reverse(rf.Problem(rf.gradient_descent(loss, "lr"), loss, 2), truncate=truncate)


def test_hyper_batch_below_one():
    with refuses(ValueError, "hyper_batch is 0"):
        rf.real_time(rf.Problem(rf.gradient_descent(loss, "lr"), loss, None), hyper_batch=0)


@pytest.mark.parametrize("every", [-1, 0, 4])
def test_running_cost_that_is_never_due(every):
    with refuses(ValueError, f"every is {every}"):
        rf.Problem(rf.gradient_descent(loss, "lr"), rf.RunningCost(loss, every=every), 3)


def test_a_state_that_is_not_of_tensors():
    dynamics = rf.Dynamics(lambda w, h: {"v": 0.0, "w": w}, lambda s, h, b, t: s, lambda s: s["w"])
    with refuses(TypeError, "state leaf 'v' as float", "tf.constant(x, tf.float32)"):
        run(dynamics=dynamics)


def test_a_state_of_another_dtype():
    init = lambda w, h: {"a": tf.zeros(2, tf.float64), "w": w}  # noqa: E731
    with refuses(TypeError, "state leaf 'a' of dtype float64", "has to be float32"):
        run(dynamics=rf.Dynamics(init, lambda s, h, b, t: s, lambda s: s["w"]))


def test_a_schedule_of_another_dtype():
    schedule = lambda hypers, t: 0.1 / (1 + tf.cast(t, tf.float64))  # noqa: E731
    with refuses(TypeError, "learning_rate has to be float32", "tf.cast"):
        run(dynamics=rf.gradient_descent(loss, schedule), hypers={"scale": 1.0})


def test_objectives_with_odd_fields():
    with refuses(TypeError, "objective 'a'", "string 'lr'", "list of names"):
        run(objective={"a": rf.Objective(loss, "lr")})
    with refuses(TypeError, "batches of objective a", "k -> batch"):
        run(objective={"a": rf.Objective(loss, ["lr"], batches=W)})


def test_a_stream_where_an_index_is_needed():
    stream = rf.batches.stream(tf.data.Dataset.range(3).repeat())
    with refuses(TypeError, "validation is a stream", "rf.batches.shuffled"):
        run(validation=stream)
    with refuses(TypeError, "batches is a stream", "seed"):
        rf.batches.seeded(stream, 0)


def test_a_stream_with_a_partial_batch():
    stream = rf.batches.stream(tf.data.Dataset.range(5).batch(3).repeat())
    with refuses(ValueError, "differ in shape", "drop_remainder=True"):
        stream.take(2)


def test_a_driver_of_the_wrong_things():
    problem = rf.Problem(rf.gradient_descent(loss, "lr"), loss, 2)
    engine, optimizer = rf.reverse(problem), rf.projected_adam(0.1)
    with refuses(TypeError, "engine is Problem", "rf.reverse(problem)"):
        rf.HyperOptimizer(problem, optimizer)
    with refuses(TypeError, "optimizer is function", "rf.projected_adam"):
        rf.HyperOptimizer(engine, rf.projected_adam)
    with refuses(TypeError, "callbacks is ProgressBar", "[rf.ProgressBar()]"):
        rf.HyperOptimizer(engine, optimizer, rf.ProgressBar())


def test_things_that_are_no_functions():
    with refuses(TypeError, "loss is", "(params, hypers, batch)"):
        rf.gradient_descent(W, "lr")
    with refuses(TypeError, "dynamics is", "rf.Dynamics(init, step, params)"):
        rf.Problem(loss, loss, 2)
    with refuses(TypeError, "batches is", "rf.batches.full"):
        rf.Problem(rf.gradient_descent(loss, "lr"), loss, 2, batches=W)
    with refuses(TypeError, "momentum is", "name of a hyper"):
        rf.momentum(loss, "lr", None)


def test_a_prefix_that_does_not_fit_the_params():
    rates = lambda hypers, t: {"x": hypers["lr"]}  # noqa: E731
    sums = lambda p, hypers, batch: tf.reduce_sum(p["a"])  # noqa: E731
    with refuses(ValueError, "learning_rate", "['x']", "['a', 'b']", "prefix"):
        run(params={"a": W, "b": W}, dynamics=rf.gradient_descent(sums, rates), objective=sums)


def test_nan_raises_divergence_in_the_driver():
    blow_up = rf.gradient_descent(lambda w, h, b: tf.reduce_sum(w**4), "lr")
    engine = rf.reverse(rf.Problem(blow_up, loss, 30), jit_compile=False)
    with refuses(rf.DivergenceError, "hyper-iteration 0", "not finite", "Norms", "smaller inner learning rate"):
        rf.HyperOptimizer(engine, rf.projected_adam(0.1)).run(W, {"lr": 10.0}, iterations=3)


def test_constraint_for_a_hyper_that_does_not_exist():
    engine = rf.reverse(rf.Problem(rf.gradient_descent(loss, "lr"), loss, 2), jit_compile=False)
    with refuses(ValueError, "constraints", "'mu'", "['lr']"):
        rf.HyperOptimizer(engine, rf.projected_adam(0.1, {"mu": rf.NonNegative()})).run(W, {"lr": 0.1}, 1)


def test_infeasible_start():
    engine = rf.reverse(rf.Problem(rf.gradient_descent(loss, "lr"), loss, 2), jit_compile=False)
    with refuses(ValueError, "hyper 'lr'", "NonNegative()", "project"):
        rf.HyperOptimizer(engine, rf.projected_adam(0.1, {"lr": rf.NonNegative()})).run(W, {"lr": -0.1}, 1)

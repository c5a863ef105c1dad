"""What a new user meets: results that can be read, mistakes that are named, and an interrupted run that is not lost."""

import os
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf


def loss(w, hypers, batch):
    return tf.reduce_sum(hypers["weights"] * (w - 1.0) ** 2)


def objective(w, hypers, batch):
    return tf.reduce_sum((w + 1.0) ** 2)


@pytest.fixture(scope="module")
def engine():
    return rf.reverse(rf.Problem(rf.gradient_descent(loss, "lr"), objective, 3), jit_compile=False)


HYPERS = {"lr": 0.01, "weights": [1.0, 2.0, 3.0]}


class Interrupt(rf.Callback):
    """Presses Ctrl-C in hyper-iteration 2."""

    def on_hyper_iteration(self, k, hypers, hypergradient, extra):
        if k == 2:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def interrupted(engine):
    tuner = rf.HyperOptimizer(engine, rf.projected_adam(0.02), [Interrupt()])
    with (
        pytest.warns(UserWarning, match="negative") as warned,
        pytest.raises(KeyboardInterrupt, match=r"after 3 of 9.*\.result") as stopped,
    ):
        tuner.run(tf.zeros(3), HYPERS, 9)
    return stopped.value.result, [str(warning.message) for warning in warned]


def test_an_interrupted_run_leaves_its_result_in_the_exception(interrupted):
    result, _ = interrupted
    assert [row["iteration"] for row in result.history] == [0, 1, 2]
    assert result.best is not None


def test_a_positive_hyper_that_becomes_negative_is_reported_once(interrupted):
    (message,) = (message for message in interrupted[1] if "negative" in message)
    assert message.startswith("hyper 'lr' started at 0.01, and has become negative (-0.0099")
    assert "constraints={'lr': rf.NonNegative()}" in message


def test_a_hyper_whose_constraint_allows_it_becomes_negative_without_a_warning(engine, recwarn):
    result = rf.HyperOptimizer(engine, rf.projected_adam(0.02, {"lr": rf.Box(-1.0, 1.0)})).run(tf.zeros(3), HYPERS, 2)
    assert result.hypers["lr"] < 0
    assert not [warning for warning in recwarn.list if "negative" in str(warning.message)]


def test_the_entries_of_a_small_vector_are_columns_and_curves(interrupted):
    result, _ = interrupted
    entries = [[row[f"weights/{i}"] for i in range(3)] for row in result.history]
    np.testing.assert_allclose(entries[0], HYPERS["weights"])
    assert "norm of weights" in result.history[0]
    panels = {axis.get_title(): axis for axis in rf.plot(result).axes}
    assert [line.get_label() for line in panels["weights"].lines] == ["weights/0", "weights/1", "weights/2"]


def test_a_result_an_engine_and_the_package_describe_themselves(interrupted, engine):
    result, _ = interrupted
    first, *rest = repr(result).splitlines()
    assert first.startswith("Result of 3 hyper-iterations: value ")
    assert rest == repr(result.best).splitlines(), "those with which a training was run"
    best, lr, weights = rest
    assert best == f"Best: {result.best.value:.6g} at hyper-iteration {result.best.iteration}"
    assert lr == f"  lr: {float(result.best.hypers['lr']):.4g}"
    assert weights.startswith("  weights: [")
    many = result._replace(hypers={"w": tf.range(20.0)}, history=[], best=None)
    assert repr(many) == "Result of 0 hyper-iterations\n  w: float32[20] from 0 to 19, mean 9.5"
    assert repr(engine) == "rf.reverse(steps=3, jit_compile=False)"
    assert {"RealTimeTuner", "tune", "reverse", "__version__"} <= set(dir(rf))


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (keras.callbacks.EarlyStopping(), "EarlyStopping, a Keras callback, which is for RealTimeTuner.fit"),
        (rf.ProgressBar, r"the class ProgressBar; pass an object, ProgressBar\(\.\.\.\)"),
        (object(), "has none of the methods on_start"),
    ],
)
def test_callbacks_of_another_kind_are_refused(engine, callback, message):
    with pytest.raises(TypeError, match=message):
        rf.HyperOptimizer(engine, rf.projected_adam(0.02), [callback])

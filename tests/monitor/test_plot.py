"""rf.plot: one figure of a run, by its panels, curves and scales."""

import keras
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.monitor.plot import _entries

mpl.use("Agg")


@pytest.fixture
def result():
    def loss(w, hypers, batch):
        return tf.reduce_sum(hypers["weights"] * tf.linalg.matvec(hypers["matrix"], w - 1) ** 2)

    problem = rf.Problem(rf.gradient_descent(loss, "lr"), lambda w, hypers, batch: tf.reduce_sum((w - 2) ** 2), 3)
    hypers = {"lr": tf.constant(0.1), "weights": tf.ones(3), "matrix": tf.eye(3)}
    return rf.HyperOptimizer(rf.reverse(problem, jit_compile=False), rf.projected_adam(0.01)).run(tf.zeros(3), hypers, 4)


def curves(axis):
    return {line.get_label(): line.get_ydata() for line in axis.lines}


def test_a_result_has_a_panel_for_the_objective_each_hyper_and_the_hypergradients(result):
    panels = {axis.get_title(): axis for axis in rf.plot(result).axes if axis.get_title()}
    assert list(panels) == ["objective", "lr", "weights", "matrix, at the end", "hypergradients"]
    np.testing.assert_array_equal(panels["lr"].lines[0].get_ydata(), [row["lr"] for row in result.history])
    assert set(curves(panels["weights"])) == {"weights/0", "weights/1", "weights/2"}
    (_, many, *_) = rf.plot(result._replace(hypers={"many": tf.range(11.0)})).axes
    assert many.get_title() == "many, at the end"
    np.testing.assert_array_equal(many.lines[0].get_ydata(), range(11))
    np.testing.assert_array_equal(panels["matrix, at the end"].images[0].get_array(), result.hypers["matrix"])
    assert set(curves(panels["hypergradients"])) == {"lr", "norm of weights", "norm of matrix"}


def test_a_history_of_the_tuner_has_a_panel_for_each_hyper():
    history = keras.callbacks.History()  # with what `RealTimeTuner.fit` adds
    history.hyper_names = ["learning_rate/first", "learning_rate/last", "momentum"]
    history.trajectories = {name: np.linspace(0.1, 0.2, 4) for name in ("value", "loss", *history.hyper_names)}
    panels = {axis.get_title(): axis for axis in rf.plot(history).axes}
    assert list(panels) == ["objective", "learning_rate", "momentum"]
    assert set(curves(panels["learning_rate"])) == {"learning_rate/first", "learning_rate/last"}
    np.testing.assert_array_equal(panels["objective"].lines[0].get_ydata(), history.trajectories["value"])


@pytest.mark.parametrize(
    ("values", "scale"), [([1.0, 2.0, 3.0], "linear"), ([1e-3, 1.0, np.nan], "log"), ([-1.0, 0.0, 100.0], "symlog")]
)
def test_values_over_decades_have_a_logarithmic_axis(result, values, scale):
    rows = [{"value": value} for value in values]
    axis = rf.plot(result._replace(history=rows, hypers={})).axes[0]
    assert axis.get_yscale() == scale
    axis.figure.canvas.draw()
    assert scale != "symlog" or {"-1", "0", "100"} <= {label.get_text() for label in axis.get_yticklabels()}


def test_what_cannot_be_drawn_is_refused(result):
    with pytest.raises(TypeError, match="of type dict"):
        rf.plot({"value": [1.0]})
    with pytest.raises(ValueError, match="empty history"):
        rf.plot(result._replace(history=[]))


@pytest.mark.parametrize(("shape", "images"), [((2, 2), 1), ((2, 3), 1), ((1, 3), 0), ((3, 1), 0), ((4,), 0)])
def test_a_matrix_is_drawn_as_an_image_and_anything_else_entry_by_entry(shape, images):
    axis = plt.figure().subplots()
    _entries(np.arange(np.prod(shape)).reshape(shape))(axis)
    assert (len(axis.images), len(axis.lines)) == (images, 1 - images)

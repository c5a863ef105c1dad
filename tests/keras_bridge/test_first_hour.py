"""The first hour with a Keras model: mistakes are named, and `rf.tune` takes what the compiled model has."""

import json
import os
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.keras_bridge.training.keras_training import losses_of
from rfho2.keras_bridge.tuners import checks
from tests.support.keras_models import SPARSE, TRAIN, VALID, fit, network, tuner

X, Y = TRAIN
WITH_NAN = np.where(np.arange(len(X))[:, None] == 17, np.nan, X).astype("float32")
INFINITE = np.where(np.arange(len(X)) == 3, np.inf, X[:, 0])


def regression(x=X, y=X[:, :1], **options):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    return rf.tune(model, "mse", (x, y), (X, X[:, :1]), **{"steps": 2, "iterations": 1, **options})


MISTAKES = {
    "NaN in x": (lambda: fit(tuner(), WITH_NAN, Y), "x and y: x has NaN in row 17 \\(1 of 240 rows"),
    "infinity in y": (lambda: regression(y=INFINITE), "train: y has infinity in row 3"),
    "NaN in the validation data": (
        lambda: fit(tuner(), validation_data=(WITH_NAN, Y)),
        "validation_data: x has NaN in row 17",
    ),
    "NaN in a dataset": (
        lambda: fit(tuner(), tf.data.Dataset.from_tensor_slices((WITH_NAN, Y)).batch(20)),
        "the first batch of x: x has NaN in row 17",
    ),
    "no validation data": (lambda: rf.tune(network(), SPARSE, TRAIN), "validation is None; pass arrays"),
    "no training data": (lambda: rf.tune(network(), SPARSE, validation=VALID), "train is None; pass arrays"),
    "a batch of more examples than there are": (
        lambda: tuner().fit(*TRAIN, VALID, batch_size=10_000),
        f"batch_size is 10000, but there are only {len(TRAIN[0])} training examples",
    ),
    "labels that are text": (lambda: fit(tuner(), X, np.array(["cat", "dog"] * 120)), "labels such as .*'cat'.*np.unique"),
    "labels of another width": (lambda: regression(y=X[:, :2]), r"a label has shape \[2\] and an output \[1\]"),
    "labels from 1 on": (
        lambda: rf.tune(network(), SPARSE, (X, Y + 1), VALID, refit=False),
        "train: the labels range from 1 to 3, but the model has 3 outputs",
    ),
    "more knots than steps": (
        lambda: regression(schedule={"learning_rate": 3}),
        r"schedule\['learning_rate'\] is 3; .* at most 2",
    ),
    "knots of a name that is no hyper": (lambda: regression(schedule={"lr": 2}), "'lr', which Keras cannot change"),
    "momentum of an optimizer without it": (
        lambda: regression(hypers=["momentum"], optimizer="sgd"),
        r"has 'momentum'; with the optimizer 'sgd' .*SGD\(momentum=0.9\)",
    ),
    "a loss too many": (
        lambda: rf.tune(network(), [SPARSE, SPARSE], TRAIN, VALID),
        "1 output, .*2 losses; pass the same number",
    ),
    "a model of another library": (
        lambda: rf.per_example_weights(np, SPARSE, TRAIN, VALID),
        "model is module .*; pass a keras.Model",
    ),
    "nothing to regularise": (lambda: fit(tuner(hypers=["regularization"])), "'regularization' multiplies .* has none"),
    "values by layer for one number": (
        lambda: tuner(hypers={"learning_rate": {"hidden": 0.1, "last": 0.2}}),
        r"is a dict, .*per_layer=\['learning_rate'\]",
    ),
    "values for some of the layers": (
        lambda: tuner(hypers={"learning_rate": {"hidden": 0.1}}, per_layer=True),
        r"values for \['hidden'\]; pass one for each of \['network/hidden', 'network/last'\]",
    ),
    "a callback of rfho2": (lambda: fit(tuner(), callbacks=[rf.TensorBoard("x")]), "use keras.callbacks.TensorBoard"),
    "a callback of Keras": (lambda: regression(callbacks=[keras.callbacks.CSVLogger("x")]), "a Keras callback"),
    "an unknown metric to choose by": (lambda: regression(best_by="val_auc"), r"'val_auc'; choose 'val_loss' or .*\[\]"),
    "an unknown direction": (lambda: regression(best_mode="up"), "best_mode is 'up'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake):
    make, message = MISTAKES[mistake]
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_logits_where_the_loss_expects_probabilities_are_noticed():
    with pytest.warns(UserWarning, match=r"expects probabilities, but the model's outputs range from -.*from_logits=True"):
        rf.tune(
            network(), "sparse_categorical_crossentropy", TRAIN, VALID, method="reverse", steps=1, iterations=1, verbose=0
        )


def test_outputs_that_keras_divides_by_their_sum_are_no_logits(recwarn):
    checks._check_probabilities(losses_of(network(), "categorical_crossentropy"), tf.constant([[2.0, 0.5, 3.0]]))
    assert not recwarn.list


def test_values_by_layer_are_taken_in_the_order_of_the_layers():
    by_layer = tuner(hypers={"learning_rate": {"last": 0.2, "network/hidden": 0.1}}, per_layer=True)
    assert by_layer.hypers["learning_rate"].tolist() == [0.1, 0.2]


def test_tune_takes_loss_and_metrics_of_a_compiled_model_and_leaves_it_compiled(capsys):
    model = network()
    model.compile(keras.optimizers.Adam(1e-3), SPARSE, metrics=["accuracy"])
    options = {"steps": 20, "iterations": 4, "batch_size": 12, "jit_compile": False}
    tuned = rf.tune(model, train=TRAIN, validation=VALID, method="reverse", best_by="val_accuracy", refit=False, **options)
    assert "hyper-iterations" in capsys.readouterr().err
    assert repr(tuned).endswith(f"at hyper-iteration {tuned.result.best.iteration} of 0 to 3")
    accuracies = [row["val_accuracy"] for row in tuned.result.history]
    assert tuned.result.best.iteration == int(np.argmax(accuracies))
    assert model.evaluate(*VALID, verbose=0)[1] == pytest.approx(max(accuracies))
    assert json.loads(json.dumps(tuned.hypers))["learning_rate"] > 1e-3
    assert float(model.optimizer.learning_rate) == pytest.approx(tuned.hypers["learning_rate"])
    assert f"val_accuracy {max(accuracies):.6g}" in repr(tuned)


def test_what_was_found_before_ctrl_c_is_in_the_exception():
    class Interrupt(rf.Callback):
        def on_hyper_iteration(self, k, hypers, hypergradient, extra):
            if k == 1:
                os.kill(os.getpid(), signal.SIGINT)

    model = network()
    options = {"method": "reverse", "steps": 5, "iterations": 9, "jit_compile": False, "check": False, "verbose": 0}
    with pytest.raises(KeyboardInterrupt) as stopped:
        rf.tune(model, SPARSE, TRAIN, VALID, callbacks=[Interrupt()], **options)
    found = stopped.value.result
    assert found.hypers["learning_rate"] == pytest.approx(found.result.history[found.result.best.iteration]["learning_rate"])
    assert float(SPARSE(VALID[1], model(VALID[0]))) == pytest.approx(found.result.best.value, rel=1e-5)
    assert rf.plot(found).axes[0].get_title() == "objective"


def test_the_settings_of_the_compiled_optimizer_are_kept_when_it_is_named():
    model = network()
    model.compile(keras.optimizers.AdamW(3e-4, weight_decay=0.02), SPARSE)
    inherited = rf.RealTimeTuner(model, hypers=["learning_rate", "weight_decay"], optimizer="adamw").hypers
    assert (inherited["learning_rate"], inherited["weight_decay"]) == pytest.approx((3e-4, 0.02))
    assert rf.RealTimeTuner(model, optimizer="momentum").hypers["learning_rate"] == pytest.approx(0.01)


def test_a_dataset_that_changes_from_pass_to_pass_is_reported_unless_only_its_order_does():
    data = tf.data.Dataset.from_tensor_slices((X, X[:, :1]))
    options = {"method": "reverse", "steps": 1, "iterations": 1, "jit_compile": False, "verbose": 0, "check": False}
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    noisy = data.map(lambda x, y: (x + tf.random.normal([4]), y)).batch(20)
    with pytest.warns(UserWarning, match="validation is a dataset whose examples differ from one pass") as caught:
        rf.tune(model, "mse", data.shuffle(240).batch(20), noisy, **options)
    assert not any("train is" in str(warning.message) for warning in caught)

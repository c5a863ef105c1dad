"""Offline tuning of Keras models."""

import keras
import numpy as np
import pytest

import rfho2 as rf
from tests.support.keras_models import SPARSE, TRAIN, VALID, network


def tune(method, hypers=None, **options):
    """Tunes a fresh network for the blobs."""
    hypers = hypers or {"learning_rate": 1e-3, "momentum": 0.5}
    options = {"steps": 30, "iterations": 6, "batch_size": 12, "hyper_rate": 0.5, "jit_compile": False, **options}
    return rf.tune(network(), SPARSE, TRAIN, VALID, hypers, method, **options)


@pytest.fixture(scope="module")
def tuned():
    """Results by method; the reverse one is not refitted."""
    return {"reverse": tune("reverse", refit=False), "forward": tune("forward")}


def validation_loss(model):
    return float(keras.ops.mean(SPARSE(VALID[1], model(VALID[0]))))


def check_progress(result):
    values = [row["value"] for row in result.result.history]
    assert values[-1] < 0.9 * values[0]
    assert float(result.hypers["learning_rate"]) > 2e-3
    assert result.result.history[0]["learning_rate"] == pytest.approx(1e-3)


@pytest.mark.parametrize("method", ["reverse", "forward"])
def test_the_validation_loss_falls(method, tuned):
    check_progress(tuned[method])


@pytest.mark.slow
def test_the_validation_loss_falls_with_the_method_chosen_automatically():
    check_progress(tune("auto"))


def test_reverse_and_forward_find_the_same_hypers(tuned):
    for name in ("learning_rate", "momentum"):
        np.testing.assert_allclose(*(result.hypers[name] for result in tuned.values()), rtol=1e-4)


def test_refit_trains_the_model_on_all_examples(tuned):
    losses = {method: validation_loss(result.model) for method, result in tuned.items()}
    assert all(loss < 1.0 for loss in losses.values())
    assert losses["forward"] < losses["reverse"]  # of these, only the refitted one saw the validation examples


def test_without_refit_the_model_has_the_best_weights(tuned):
    result = tuned["reverse"]
    assert validation_loss(result.model) == pytest.approx(result.result.best.value, rel=1e-5)


@pytest.mark.slow
def test_each_layer_can_have_a_decoupled_weight_decay():
    options = {"per_layer": True, "optimizer": "adamw", "iterations": 2, "refit": False}
    decays = tune("reverse", ("weight_decay",), **options).hypers["weight_decay"]
    assert len(decays) == 2
    assert len({round(float(v), 12) for v in decays}) == 2


def test_layers_can_have_decays_of_their_own_beside_one_learning_rate():
    chosen = {"learning_rate": 0.01, "weight_decay": [1e-3, 1e-2]}
    hypers = tune("reverse", chosen, per_layer=["weight_decay"], optimizer="sgd", iterations=2, refit=False).hypers
    assert isinstance(hypers["learning_rate"], float)
    assert len(hypers["weight_decay"]) == 2
    assert hypers["weight_decay"][1] > 2 * hypers["weight_decay"][0]
    with pytest.raises(ValueError, match=r"pass one number, or per_layer=\['weight_decay'\]"):
        tune("reverse", chosen)
    with pytest.raises(ValueError, match="per_layer has 'momentum', but it can only name hypers that are tuned"):
        tune("reverse", chosen, per_layer="momentum")
    with pytest.raises(ValueError, match=r"pass one number, or 2 numbers, for network/hidden, network/last"):
        tune("reverse", {"weight_decay": [1e-3, 1e-3, 1e-3]}, per_layer=True)


@pytest.mark.slow
def test_a_decay_of_one_layer_shrinks_that_layer_only():
    def norms(decays):
        hypers = {"learning_rate": 0.01, "weight_decay": decays}
        options = {"per_layer": ["weight_decay"], "optimizer": "sgd", "iterations": 1, "refit": False}
        model = tune("reverse", hypers, **options).model
        return [float(np.linalg.norm(layer.kernel)) for layer in model.layers if layer.weights]

    plain, first = norms([1e-8, 1e-8]), norms([1.0, 1e-8])
    assert first[0] < 0.9 * plain[0]
    assert first[1] > 0.9 * plain[1]


@pytest.mark.slow
def test_layers_of_a_submodel_are_in_the_order_of_their_weights():
    inner = keras.Sequential([keras.Input([4]), keras.layers.Dense(3, name="a"), keras.layers.Dense(3, name="b")])
    model = keras.Sequential([inner, keras.layers.Dense(3, name="c")])
    options = {
        "per_layer": ["weight_decay"],
        "steps": 3,
        "iterations": 1,
        "batch_size": 12,
        "refit": False,
        "jit_compile": False,
    }
    result = rf.tune(model, SPARSE, TRAIN, VALID, {"weight_decay": [1e-4, 1e-3, 1e-2]}, "reverse", **options).result
    decays = {name.rsplit("/", 1)[-1]: row for name, row in result.history[0].items() if name.startswith("weight_decay/")}
    assert decays == pytest.approx({"a": 1e-4, "b": 1e-3, "c": 1e-2}, rel=1e-3)


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="method is 'backwards'"):
        tune("backwards")

"""Selecting hypers by name: what is refused."""

import keras
import pytest

from tests.support.keras_models import tuner


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hypers": ["lr"]}, r"hypers has 'lr'; with the optimizer 'momentum' choose from \['learning_rate'"),
        ({"hypers": ["momentum"], "optimizer": "adam"}, "hypers has 'momentum'"),
        ({"hypers": ["momentum"], "per_layer": ["momentum"]}, "per_layer has 'momentum'"),
        ({"optimizer": "sgdm"}, "optimizer is 'sgdm'"),
        ({"hypers": {"learning_rate": 0.0}}, "starts at 0.0, outside its range"),
        ({"hypers": {"learning_rate": [0.1, 0.2]}}, r"has shape \[2\]; pass one number"),
        ({"ranges": {"momentum": (0.1, 0.2)}}, "ranges has"),
        ({"ranges": {"learning_rate": (0.0, 0.2)}}, "low must be below high, and above 0"),
    ],
    ids=[
        "unknown hyper",
        "no momentum",
        "momentum by layer",
        "unknown optimiser",
        "start",
        "shape",
        "ranges of another",
        "range",
    ],
)
def test_refused(options, message):
    with pytest.raises(ValueError, match=message):
        tuner(**options)


def test_a_model_that_is_not_built_is_refused():
    with pytest.raises(ValueError, match="not built"):
        tuner(keras.Sequential([keras.layers.Dense(3)]))

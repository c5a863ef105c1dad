"""Hypergradients of whole Keras models, with every optimizer and clipping, against differences in float64."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from rfho2.core import nest
from rfho2.keras_bridge.training.keras_training import make_training
from tests.support import keras_cases as cases
from tests.support.problems import assert_agree, differences

SCHEDULE = keras.optimizers.schedules.CosineDecay(0.01, 6, warmup_target=0.05, warmup_steps=2)
K = keras.optimizers
SMOOTH = {"epsilon": 1e-2}  # away from 1e-7, where a step hardly depends on the size of the gradient
OPTIMIZERS = {
    "SGD": lambda: K.SGD(0.1),
    "SGD, clipvalue": lambda: K.SGD(0.1, clipvalue=0.02),
    "momentum, decoupled decay": lambda: K.SGD(0.1, 0.8, weight_decay=0.1),
    "momentum, schedule": lambda: K.SGD(SCHEDULE, 0.8),
    "Nesterov, clipnorm": lambda: K.SGD(0.1, 0.8, nesterov=True, clipnorm=0.05),
    "Adam": lambda: K.Adam(0.01, **SMOOTH),
    "Adam, amsgrad": lambda: K.Adam(0.01, amsgrad=True, **SMOOTH),
    "Adam, accumulation": lambda: K.Adam(0.01, gradient_accumulation_steps=2, **SMOOTH),
    "Adam, EMA": lambda: K.Adam(0.01, use_ema=True, ema_momentum=0.6, **SMOOTH),
    "AdamW as keras.io has it": lambda: K.AdamW(SCHEDULE, clipnorm=1.0, **SMOOTH),
    "AdamW, global_clipnorm": lambda: K.AdamW(0.01, weight_decay=0.1, global_clipnorm=0.05, **SMOOTH),
    "AdamW, biases without decay": lambda: cases.without_decay("bias", K.AdamW(0.01, weight_decay=0.1, **SMOOTH)),
    "Nadam": lambda: K.Nadam(0.01, **SMOOTH),
    "Adamax": lambda: K.Adamax(0.01, **SMOOTH),
    "Adadelta": lambda: K.Adadelta(1.0, epsilon=1e-2),
    "Adagrad": lambda: K.Adagrad(0.1),
    "RMSprop": lambda: K.RMSprop(0.01, **SMOOTH),
    "RMSprop, centered": lambda: K.RMSprop(0.01, momentum=0.5, centered=True, **SMOOTH),
    "Lamb": lambda: K.Lamb(0.01, weight_decay=0.1, **SMOOTH),
    "Adafactor": lambda: K.Adafactor(0.01, clip_threshold=0.8),
    "Lion": lambda: K.Lion(0.01, weight_decay=0.1),
    **({"Muon": lambda: K.Muon(0.01, ns_steps=3, **SMOOTH)} if hasattr(K, "Muon") else {}),
}
MODELS = (
    "Conv2D", "BatchNormalization", "LSTM", "MultiHeadAttention", "two outputs in a dict", "MaxNorm",
    "bilinear UpSampling2D", "LayerNormalization", "GRU", "Embedding",
)  # fmt: skip


def both_derivatives(case, optimizer, hypers):
    """The hypergradients of three steps of a model in float64, by reverse mode and by differences."""
    case.model.compile(optimizer, case.loss or "mse")
    training = make_training(case.model, None, hypers, None, False, None, "batch")
    training.tunables.start["weight_decay"] = np.asarray(0.05)  # so much that differences can tell
    params = {path: tf.cast(p, tf.float64) for path, p in training.model.params.items()}
    training = training._replace(model=training.model._replace(params=params))
    dynamics = training.dynamics()
    rows = [nest.map(lambda a, t=t: wide(a[8 * t : 8 * t + 8]), (case.x, case.y)) for t in range(3)]
    start = {name: tf.constant(v) for name, v in training.tunables.to_internal(training.tunables.start).items()}

    def value(hypers):
        state = dynamics.init(params, hypers)
        for t, batch in enumerate(rows):
            state = dynamics.step(state, hypers, (batch, tf.constant([0, t])), tf.constant(t))
        return training.objective(dynamics.params(state), hypers, rows[0])

    @tf.function(autograph=False)
    def slope(hypers):
        with tf.GradientTape() as tape:
            tape.watch(hypers)
            error = value(hypers)
        return tape.gradient(error, hypers, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    return slope(start), differences(value, start, h=1e-5)


def wide(array):
    """A constant in float64, if it has real numbers."""
    tensor = tf.constant(array)
    return tf.cast(tensor, tf.float64) if tensor.dtype.is_floating else tensor


QUICK = ("AdamW as keras.io has it", "momentum, schedule")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in OPTIMIZERS])
def test_every_optimizer(name):
    keras.utils.set_random_seed(0)
    case = cases.layered(keras.layers.Dense(5, "tanh"), shape=(4,))
    assert_agree(*both_derivatives(case, OPTIMIZERS[name](), ["learning_rate", "weight_decay"]), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model(name):
    case = cases.WORKS[name]()
    assert_agree(
        *both_derivatives(case, K.AdamW(SCHEDULE, clipnorm=1.0, **SMOOTH), ["learning_rate", "weight_decay"]), rtol=1e-5
    )

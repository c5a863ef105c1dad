"""Models in mixed precision: layers compute in bfloat16; params, hypers and hypergradients are float32."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.keras_models import SPARSE, TRAIN, VALID


@pytest.fixture
def policy(request):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_dtype_policy(before)


def network():
    keras.utils.set_random_seed(0)
    layers = [keras.Input([4]), keras.layers.Dense(16, "tanh"), keras.layers.Dense(3, dtype="float32")]
    return keras.Sequential(layers)


def slope(model):
    """dE/d lr after 10 steps."""
    wrapped = rf.from_keras(model, check=False)

    def error(params, hypers, batch):
        x, y = batch
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, wrapped.apply(params, x, training=True)))

    train, valid = ((x.astype("float32"), y.astype("int32")) for x, y in (TRAIN, VALID))
    problem = rf.Problem(rf.momentum(error, "lr", 0.9), error, 10, rf.batches.full(train), rf.batches.full(valid))
    results = [make(problem, jit_compile=False)(wrapped.params, {"lr": 0.1}) for make in (rf.reverse, rf.forward)]
    assert {leaf.dtype for leaf in wrapped.params.values()} == {tf.float32}
    assert {result.grads["lr"].dtype for result in results} == {tf.float32}
    return [float(result.grads["lr"]) for result in results]


@pytest.mark.parametrize("policy", ["mixed_bfloat16"], indirect=True)
def test_hypergradients_stay_in_float32_and_near_those_of_float32(policy):
    mixed = slope(network())
    keras.config.set_dtype_policy("float32")
    exact = slope(network())
    np.testing.assert_allclose(exact[0], exact[1], rtol=1e-4)
    np.testing.assert_allclose(mixed, exact[0], rtol=0.05)
    assert mixed[0] != exact[0], "the layers do not compute in bfloat16: the test shows nothing"


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"], indirect=True)
def test_the_tuner_trains_a_model_in_mixed_precision(policy):
    model = network()
    model.compile(keras.optimizers.Adam(1e-3), SPARSE, metrics=["accuracy"])
    history = rf.RealTimeTuner(model).fit(*TRAIN, validation_data=VALID, epochs=5, batch_size=12, verbose=0)
    assert history.history["val_accuracy"][-1] > 0.8
    assert {str(v.dtype) for v in model.trainable_variables} == {"float32"}

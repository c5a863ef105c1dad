"""Recomputed Keras layers: the same losses and hypergradients, with random layers; what cannot be recomputed is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.core import graphs

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 4, 6)).astype(np.float32), RNG.integers(0, 3, 20)
HYPERS = {"lr": 0.05, "beta": 0.8}


@keras.saving.register_keras_serializable("tests")
class Block(keras.layers.Layer):
    """Attention and dropout, added to the input and normalised."""

    def __init__(self, **options):
        super().__init__(**options)
        self.attention = keras.layers.MultiHeadAttention(2, 3)
        self.dropout, self.norm = keras.layers.Dropout(0.3), keras.layers.LayerNormalization()

    def build(self, shape):
        self.attention.build(shape, shape)
        self.norm.build(shape)
        self.built = True

    def call(self, x, training=False):
        return self.norm(x + self.dropout(self.attention(x, x), training=training))


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    blocks = [Block(name="first"), Block(name="second")]
    pooled = [keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input([4, 6]), *blocks, *pooled])


def problem(wrapped):
    def error(params, batch, **options):
        x, y = batch
        logits = wrapped.apply(params, x, **options)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))

    def loss(params, hypers, batch):
        return error(params, batch[0], training=True, seed=batch[1])

    full = rf.batches.full((tf.constant(X), tf.constant(Y)))
    dynamics = rf.adam(loss, "lr", "beta", epsilon=1e-3)
    return rf.Problem(dynamics, lambda p, h, batch: error(p, batch), 3, rf.batches.seeded(full, 1), full)


def hypergradient(model, recompute, make, **options):
    wrapped = rf.from_keras(model, check=False, recompute=recompute)
    return make(problem(wrapped), **options)(wrapped.params, HYPERS)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "jit_compile"), [(rf.reverse, False), (rf.reverse, True), (rf.forward, False)])
def test_the_hypergradient_is_the_same(model, make, jit_compile):
    plain = hypergradient(model, (), make, jit_compile=jit_compile)
    recomputed = hypergradient(model, ("first", model.layers[1]), make, jit_compile=jit_compile)
    np.testing.assert_allclose(recomputed.value, plain.value, rtol=1e-6)
    for name in HYPERS:
        np.testing.assert_allclose(recomputed.grads[name], plain.grads[name], rtol=2e-5)


def test_equal_masks_are_drawn_and_layers_are_as_before_afterwards(model):
    calls = [layer.call for layer in model.layers]
    seed, outputs = tf.constant([1, 2]), []
    for recompute in ((), ("first", "second")):
        wrapped = rf.from_keras(model, check=False, recompute=recompute)
        outputs.append(wrapped.apply(wrapped.params, X, training=True, seed=seed))
        _, ops = graphs.trace(lambda p, w=wrapped: w.apply(p, X, training=True, seed=seed), wrapped.params)
        assert any("PartitionedCall" in op.kind for op in ops) == bool(recompute)
    np.testing.assert_allclose(*outputs, rtol=1e-5, atol=1e-6)
    assert [layer.call for layer in model.layers] == calls


def test_the_check_of_second_derivatives_passes(model):
    rf.from_keras(model, X, recompute=["first"])


class Added(keras.layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=())
        self.built = True

    def call(self, x):
        self.add_loss(tf.reduce_mean(x))
        return x * self.scale


def test_what_cannot_be_recomputed_is_refused(model):
    with pytest.raises(ValueError, match="no layer 'third'"):
        rf.from_keras(model, recompute=["third"])
    norm = keras.Sequential([keras.Input([6]), keras.layers.BatchNormalization(name="norm"), keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="contains the batch norm 'norm'"):
        rf.from_keras(norm, recompute=["norm"])
    added = keras.Sequential([keras.Input([6]), Added(name="added"), keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="adds a loss in its call"):
        rf.from_keras(added, recompute=["added"])

"""Random layers, batch norm and recurrent layers inside a pure function."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.keras_bridge.wrapping import patches
from tests.support import keras_models as models

KEY = tf.constant([3, 4])
IMAGES = (6, 6, 1)
RECURRENT = pytest.mark.parametrize(
    "layer", [keras.layers.SimpleRNN, pytest.param(keras.layers.GRU, marks=pytest.mark.slow)]
)


@pytest.fixture(scope="module")
def with_dropout():
    """A wrapped model with dropout, which no test changes."""
    return rf.from_keras(models.subclassed(), check=False)


@pytest.fixture(scope="module")
def with_batch_norm():
    """A wrapped model with batch norm, which no test changes."""
    return rf.from_keras(models.convolutional(), check=False)


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "jit"])
def test_dropout_is_a_function_of_the_seed(jit, with_dropout):
    x = tf.constant(models.examples()[0])
    apply, params = with_dropout.apply, with_dropout.params
    call = tf.function(lambda key: apply(params, x, training=True, seed=key), jit_compile=jit)
    eager = apply(params, x, training=True, seed=KEY)
    np.testing.assert_allclose(call(KEY), eager, rtol=1e-12)
    assert np.max(np.abs(call(KEY + 1) - eager)) > 1e-3
    assert np.max(np.abs(call(KEY) - apply(params, x))) > 1e-3


def recorded(layer):
    """A list that receives the outputs of every call of the layer."""
    outputs, call = [], layer.call

    def recording(*args, **kwargs):
        outputs.append(call(*args, **kwargs))
        return outputs[-1]

    layer.call = recording
    return outputs


def test_dropout_keeps_the_mean():
    model = keras.Sequential([keras.Input([1000]), keras.layers.Dropout(0.3, seed=0), keras.layers.Dense(1)])
    outputs = recorded(model.layers[0])
    wrapped = rf.from_keras(model, check=False)
    wrapped.apply(wrapped.params, tf.ones([50, 1000]), training=True, seed=KEY)
    kept = outputs[-1].numpy()
    assert kept.mean() == pytest.approx(1.0, abs=0.01)
    assert (kept == 0).mean() == pytest.approx(0.3, abs=0.01)


def test_noise_is_normal_and_the_same_in_graph_and_jit():
    model = keras.Sequential([keras.Input([4000]), keras.layers.GaussianNoise(0.5, seed=0), keras.layers.Dense(1)])
    noise = recorded(model.layers[0])
    wrapped = rf.from_keras(model, check=False)
    x = tf.zeros([10, 4000])
    eager = wrapped.apply(wrapped.params, x, training=True, seed=KEY)
    assert noise[-1].numpy().std() == pytest.approx(0.5, rel=0.02)
    assert noise[-1].numpy().mean() == pytest.approx(0.0, abs=0.01)
    compiled = tf.function(lambda: wrapped.apply(wrapped.params, x, training=True, seed=KEY), jit_compile=True)()
    np.testing.assert_allclose(compiled, eager, rtol=1e-3, atol=1e-3)


def test_random_layers_without_a_seed_are_refused(with_dropout):
    with pytest.raises(ValueError, match=r"draws random numbers in training.*rf.batches.seeded"):
        with_dropout.apply(with_dropout.params, tf.zeros([1, 4], tf.float64), training=True)


def test_random_numbers_from_the_global_seed_are_refused():
    class Noisy(keras.layers.Layer):
        def call(self, x):
            return x + keras.random.normal([4])

    model = keras.Sequential([keras.Input([4]), Noisy(), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match=r"global random seed.*SeedGenerator"):
        rf.from_keras(model)


def test_batch_norm_uses_the_batch_in_both_loss_and_objective(with_batch_norm):
    x = tf.constant(models.examples(IMAGES)[0])
    once, twice = (with_batch_norm.apply(with_batch_norm.params, x * scale) for scale in (1.0, 2.0))
    assert np.max(np.abs(once - twice)) < 1e-2 * np.max(np.abs(once))  # apart from epsilon, the scale is normalised away


def test_frozen_batch_norm_uses_the_moving_statistics():
    model = models.convolutional()
    wrapped = rf.from_keras(model, batch_norm="frozen", check=False)
    x = models.examples(IMAGES)[0]
    np.testing.assert_allclose(wrapped.apply(wrapped.params, tf.constant(x)), model(x, training=False))


def test_assign_recomputes_the_moving_statistics_in_one_pass():
    model = models.convolutional()
    x = models.examples(IMAGES, number=40)[0]
    wrapped = rf.from_keras(model, x)
    wrapped.assign({path: 2 * p for path, p in wrapped.params.items()})
    convolved = model.layers[0](x).numpy()
    norm = model.layers[1]
    np.testing.assert_allclose(norm.moving_mean.numpy(), convolved.mean((0, 1, 2)), atol=1e-12)
    np.testing.assert_allclose(norm.moving_variance.numpy(), convolved.var((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(model(x), wrapped.apply({p: 2 * v for p, v in wrapped.params.items()}, tf.constant(x)))


def test_assign_without_inputs_warns_of_stale_statistics(with_batch_norm):
    with pytest.warns(UserWarning, match="moving statistics"):
        with_batch_norm.assign(with_batch_norm.params)


def recurrent(layer, length, check=True, **options):
    """A wrapped model with a recurrent layer, and a problem for it with sequences of this length."""
    keras.utils.set_random_seed(0)
    layers = [keras.Input([length, 2], dtype="float64"), layer(3, dtype="float64", name="memory", **options)]
    wrapped = rf.from_keras(keras.Sequential([*layers, keras.layers.Dense(1, dtype="float64")]), check=check)
    x = tf.constant(np.random.default_rng(0).normal(size=(6, length, 2)))

    def loss(params, hypers, batch):
        return tf.reduce_mean(tf.square(wrapped.apply(params, x, training=True) - 1.0))

    return wrapped, rf.Problem(rf.momentum(loss, "lr", 0.5), loss, 3)


@RECURRENT
def test_recurrent_layers_work_in_reverse_and_are_refused_in_forward_mode_with_many_hypers(layer):
    wrapped, problem = recurrent(layer, 4)
    engine = rf.reverse(problem, jit_compile=False)
    slope = engine(wrapped.params, {"lr": 0.1}).grads["lr"].numpy()
    ahead, behind = (engine(wrapped.params, {"lr": 0.1 + h}).value.numpy() for h in (1e-5, -1e-5))
    assert slope == pytest.approx((ahead - behind) / 2e-5, rel=1e-6)
    with pytest.raises(TypeError, match=rf"'memory' \({layer.__name__}\).*use rf.reverse.*chunk=4"):
        rf.forward(scheduled(problem), jit_compile=False)(wrapped.params, {"rates": np.full(5, 0.1)})


def scheduled(problem):
    return rf.Problem(rf.momentum(problem.objective, lambda h, t: h["rates"][t], 0.5), problem.objective, 3)


@pytest.mark.slow  # tracing forward mode through their loops takes 20 seconds
@RECURRENT
def test_recurrent_layers_work_in_forward_mode_with_few_hypers_or_in_small_chunks(layer):
    wrapped, problem = recurrent(layer, 4)
    schedule = scheduled(problem)
    pulled, pushed = (make(problem, jit_compile=False)(wrapped.params, {"lr": 0.1}) for make in (rf.reverse, rf.forward))
    np.testing.assert_allclose(pushed.grads["lr"], pulled.grads["lr"], rtol=1e-12)
    pair = rf.reverse(schedule, jit_compile=False), rf.forward(schedule, chunk=4, jit_compile=False)
    pulled, pushed = (engine(wrapped.params, {"rates": np.full(5, 0.1)}).grads["rates"] for engine in pair)
    np.testing.assert_allclose(pushed, pulled, rtol=1e-10)


def test_recurrent_layers_do_without_cudnn_while_a_pure_function_runs(monkeypatch):
    layer = keras.layers.LSTM(3)
    model = keras.Sequential([keras.Input([4, 2]), keras.layers.Bidirectional(layer), keras.layers.Dense(1)])
    inner = [model.layers[0].forward_layer, model.layers[0].backward_layer]
    seen, call = [], type(layer).call
    monkeypatch.setattr(type(layer), "call", lambda self, *a, **k: seen.append(self.use_cudnn) or call(self, *a, **k))
    wrapped = rf.from_keras(model, check=False)
    wrapped.apply(wrapped.params, tf.ones([2, 4, 2]))
    assert seen
    assert not any(seen)
    assert {one.use_cudnn for one in inner} == {"auto"}


@pytest.mark.slow
@RECURRENT
def test_unrolled_recurrent_layers_work_in_forward_mode(layer):
    wrapped, problem = recurrent(layer, 2, check=False, unroll=True)
    grads = [make(problem, jit_compile=False)(wrapped.params, {"lr": 0.1}).grads["lr"] for make in (rf.reverse, rf.forward)]
    np.testing.assert_allclose(*grads, rtol=1e-10)


@pytest.mark.parametrize("options", [{}, {"keepdims": True}])
def test_moments_are_those_of_tensorflow(options):
    x = tf.constant(np.random.default_rng(0).normal(size=(4, 3, 2)))
    for ours, theirs in zip(patches.moments(x, [0, 2], **options), tf.nn.moments(x, [0, 2], **options), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_a_mask_of_dropout_has_the_shape_of_its_noise():
    each, shared = (patches.dropout(tf.ones([20, 9]), 0.5, KEY, noise_shape=shape).numpy() for shape in (None, [20, 1]))
    assert set(np.unique(each)) == set(np.unique(shared)) == {0, 2}
    assert np.all(shared == shared[:, :1])
    assert not np.all(each == each[:, :1])

"""Keras models as pure functions: values, derivatives, randomness, batch norm, and what is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support import keras_models as models

HYPERS = {"lr": 0.5, "mu": 0.5, "decay": 1.0}
KEY = tf.constant([3, 4])


@pytest.mark.parametrize("make", [models.sequential, models.subclassed], ids=["sequential", "subclassed"])
def test_apply_gives_what_the_model_gives(make):
    model = make()
    wrapped = rf.from_keras(model)
    x, _ = models.examples(dtype=model.dtype)
    np.testing.assert_allclose(wrapped.apply(wrapped.params, tf.constant(x)), model(x), rtol=1e-6)


def test_several_inputs_and_outputs():
    model = models.two_headed()
    wrapped = rf.from_keras(model)
    x = [tf.constant(models.examples(seed=seed)[0]) for seed in (0, 1)]
    for ours, theirs in zip(wrapped.apply(wrapped.params, x), model(x), strict=True):
        np.testing.assert_allclose(ours, theirs)


def test_params_are_by_path_and_assign_writes_them_back():
    model = models.sequential()
    wrapped = rf.from_keras(model)
    assert set(wrapped.params) == {v.path for v in model.trainable_variables}
    wrapped.assign({path: p + 1 for path, p in wrapped.params.items()})
    for variable in model.trainable_variables:
        np.testing.assert_allclose(variable.numpy(), wrapped.params[variable.path] + 1)


def test_nothing_in_the_model_changes_by_apply():
    model = models.convolutional()
    before = [v.numpy() for v in model.variables]
    wrapped = rf.from_keras(model)
    x, _ = models.examples((6, 6, 1))
    wrapped.apply(wrapped.params, tf.constant(x), training=True, seed=KEY)
    for was, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(was, variable.numpy())
    assert tf.nn.moments.__module__ != "rfho2.keras_bridge.pure"


def test_the_losses_of_the_layers_are_given():
    model = models.sequential()
    wrapped = rf.from_keras(model)
    x, _ = models.examples(dtype="float32")
    _, losses = wrapped.apply(wrapped.params, tf.constant(x), return_losses=True)
    np.testing.assert_allclose(losses, sum(model.losses), rtol=1e-6)
    assert losses > 0


@pytest.mark.parametrize(
    ("make", "shape"), [(models.convolutional, (6, 6, 1)), pytest.param(models.subclassed, (4,), marks=pytest.mark.slow)]
)
def test_reverse_forward_and_differences_agree(make, shape):
    wrapped, problem = models.cross_entropy_problem(make(), shape, steps=6, size=3)
    check = rf.check_hypergradient(problem, wrapped.params, HYPERS)
    assert check.ok, check


def test_with_kerass_own_moments_both_modes_agree_and_are_wrong(monkeypatch):
    monkeypatch.setattr("rfho2.keras_bridge.pure.moments", tf.nn.moments)
    wrapped, problem = models.cross_entropy_problem(models.convolutional(), (6, 6, 1), steps=6, size=3, check=False)
    check = rf.check_hypergradient(problem, wrapped.params, HYPERS)
    assert not check.ok
    row = next(row for row in check.table if row.hyper == "decay")
    assert row.reverse == pytest.approx(row.forward, rel=1e-8)
    assert abs(row.reverse - row.difference) > 0.01 * abs(row.difference)


def test_a_hidden_stop_gradient_is_seen_when_the_model_is_wrapped(monkeypatch):
    monkeypatch.setattr("rfho2.keras_bridge.pure.moments", tf.nn.moments)
    with pytest.raises(ValueError, match=r"second derivatives are wrong by .*StopGradient"):
        rf.from_keras(models.convolutional())


def test_an_op_without_second_derivative_is_named():
    gamma = keras.layers.Lambda(lambda x: tf.math.igamma(tf.exp(x), tf.ones([], x.dtype)))
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(3), gamma])
    with pytest.raises(ValueError, match=r"no second derivative.*IgammaGradA"):
        rf.from_keras(model)


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "jit"])
def test_dropout_is_a_function_of_the_seed(jit):
    model = models.subclassed()
    wrapped = rf.from_keras(model)
    x = tf.constant(models.examples()[0])
    call = tf.function(lambda key: wrapped.apply(wrapped.params, x, training=True, seed=key), jit_compile=jit)
    eager = wrapped.apply(wrapped.params, x, training=True, seed=KEY)
    np.testing.assert_allclose(call(KEY), eager, rtol=1e-12)
    assert np.max(np.abs(call(KEY + 1) - eager)) > 1e-3
    assert np.max(np.abs(call(KEY) - wrapped.apply(wrapped.params, x))) > 1e-3


def test_dropout_keeps_the_mean():
    model = keras.Sequential([keras.Input([1000]), keras.layers.Dropout(0.3, seed=0), keras.layers.Dense(1)])
    dropped = []
    model.layers[0].call = _recording(model.layers[0].call, dropped)
    wrapped = rf.from_keras(model, check=False)
    wrapped.apply(wrapped.params, tf.ones([50, 1000]), training=True, seed=KEY)
    kept = dropped[-1].numpy()
    assert kept.mean() == pytest.approx(1.0, abs=0.01)
    assert (kept == 0).mean() == pytest.approx(0.3, abs=0.01)


def _recording(call, into):
    def recorded(*args, **kwargs):
        into.append(call(*args, **kwargs))
        return into[-1]

    return recorded


def test_noise_is_normal_and_the_same_in_graph_and_jit():
    model = keras.Sequential([keras.Input([4000]), keras.layers.GaussianNoise(0.5, seed=0), keras.layers.Dense(1)])
    noise = []
    model.layers[0].call = _recording(model.layers[0].call, noise)
    wrapped = rf.from_keras(model, check=False)
    x = tf.zeros([10, 4000])
    eager = wrapped.apply(wrapped.params, x, training=True, seed=KEY)
    assert noise[-1].numpy().std() == pytest.approx(0.5, rel=0.02)
    assert noise[-1].numpy().mean() == pytest.approx(0.0, abs=0.01)
    compiled = tf.function(lambda: wrapped.apply(wrapped.params, x, training=True, seed=KEY), jit_compile=True)()
    np.testing.assert_allclose(compiled, eager, rtol=1e-3, atol=1e-3)


def test_random_layers_without_a_seed_are_refused():
    wrapped = rf.from_keras(models.subclassed())
    with pytest.raises(ValueError, match=r"draws random numbers in training.*rf.batches.seeded"):
        wrapped.apply(wrapped.params, tf.zeros([1, 4], tf.float64), training=True)


def test_random_numbers_of_the_global_seed_are_refused():
    class Noisy(keras.layers.Layer):
        def call(self, x):
            return x + keras.random.normal([4])

    model = keras.Sequential([keras.Input([4]), Noisy(), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match=r"global random seed.*SeedGenerator"):
        rf.from_keras(model)


def test_batch_norm_uses_the_batch_in_both_loss_and_objective():
    model = models.convolutional()
    wrapped = rf.from_keras(model)
    x = tf.constant(models.examples((6, 6, 1))[0])
    once, twice = (wrapped.apply(wrapped.params, x * scale) for scale in (1.0, 2.0))
    assert np.max(np.abs(once - twice)) < 1e-2 * np.max(np.abs(once))  # but for epsilon: the scale is normalised away


def test_frozen_batch_norm_uses_the_moving_statistics():
    model = models.convolutional()
    wrapped = rf.from_keras(model, batch_norm="frozen")
    x = models.examples((6, 6, 1))[0]
    np.testing.assert_allclose(wrapped.apply(wrapped.params, tf.constant(x)), model(x, training=False))


def test_moving_statistics_are_taken_anew_by_one_pass():
    model = models.convolutional()
    x = models.examples((6, 6, 1), number=40)[0]
    wrapped = rf.from_keras(model, x)
    wrapped.assign({path: 2 * p for path, p in wrapped.params.items()})
    convolved = model.layers[0](x).numpy()
    norm = model.layers[1]
    np.testing.assert_allclose(norm.moving_mean.numpy(), convolved.mean((0, 1, 2)), atol=1e-12)
    np.testing.assert_allclose(norm.moving_variance.numpy(), convolved.var((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(model(x), wrapped.apply({p: 2 * v for p, v in wrapped.params.items()}, tf.constant(x)))


def test_assign_without_inputs_warns_of_stale_statistics():
    wrapped = rf.from_keras(models.convolutional())
    with pytest.warns(UserWarning, match="moving statistics"):
        wrapped.assign(wrapped.params)


def test_embeddings_have_dense_gradients_in_both_modes():
    keras.utils.set_random_seed(0)
    layers = [keras.Input([5], dtype="int32"), keras.layers.Embedding(11, 4, dtype="float64")]
    model = keras.Sequential(
        [*layers, keras.layers.GlobalAveragePooling1D(dtype="float64"), keras.layers.Dense(3, dtype="float64")]
    )
    wrapped = rf.from_keras(model)
    rng = np.random.default_rng(0)
    x, y = tf.constant(rng.integers(0, 11, (12, 5))), tf.constant(rng.integers(0, 3, 12))

    def loss(params, hypers, batch):
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, wrapped.apply(params, x, training=True)))

    problem = rf.Problem(rf.momentum(loss, "lr", "mu"), loss, 4)
    check = rf.check_hypergradient(problem, wrapped.params, {"lr": 0.1, "mu": 0.5})
    assert check.ok, check


def recurrent(**options):
    keras.utils.set_random_seed(0)
    layers = [keras.Input([4, 2], dtype="float64"), keras.layers.GRU(3, dtype="float64", name="memory", **options)]
    model = keras.Sequential([*layers, keras.layers.Dense(1, dtype="float64")])
    wrapped = rf.from_keras(model)
    x = tf.constant(np.random.default_rng(0).normal(size=(6, 4, 2)))

    def loss(params, hypers, batch):
        return tf.reduce_mean(tf.square(wrapped.apply(params, x, training=True) - 1.0))

    return wrapped, rf.Problem(rf.momentum(loss, "lr", 0.5), loss, 3)


def test_recurrent_layers_go_backwards_and_are_refused_forwards():
    wrapped, problem = recurrent()
    engine = rf.reverse(problem, jit_compile=False)
    slope = engine(wrapped.params, {"lr": 0.1}).grads["lr"].numpy()
    ahead, behind = (engine(wrapped.params, {"lr": 0.1 + h}).value.numpy() for h in (1e-5, -1e-5))
    assert slope == pytest.approx((ahead - behind) / 2e-5, rel=1e-6)
    with pytest.raises(TypeError, match=r"'memory' \(GRU\).*use rf.reverse"):
        rf.forward(problem, jit_compile=False)(wrapped.params, {"lr": 0.1})


def test_unrolled_recurrent_layers_go_forwards():
    wrapped, problem = recurrent(unroll=True)
    grads = [make(problem, jit_compile=False)(wrapped.params, {"lr": 0.1}).grads["lr"] for make in (rf.reverse, rf.forward)]
    np.testing.assert_allclose(*grads, rtol=1e-10)


def test_a_model_that_is_not_built_is_refused():
    with pytest.raises(ValueError, match=r"not built.*keras.Input"):
        rf.from_keras(keras.Sequential([keras.layers.Dense(3)]))


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match=r"pass a keras.Model"):
        rf.from_keras(keras.layers.Dense(3))


def test_another_backend_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match=r"runs on jax.*KERAS_BACKEND=tensorflow"):
        rf.from_keras(models.sequential())


def test_params_of_another_model_are_refused():
    wrapped = rf.from_keras(models.sequential())
    with pytest.raises(ValueError, match="not in both"):
        wrapped.apply({"other": tf.zeros(3)}, tf.zeros([1, 4]))

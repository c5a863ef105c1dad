"""Keras models as pure functions: values, derivatives, and what is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support import keras_models as models

IMAGES = (6, 6, 1)


@pytest.fixture(scope="module")
def sequential():
    """(model, wrapped); no test changes it."""
    model = models.sequential()
    return model, rf.from_keras(model)


def test_apply_gives_the_models_outputs(sequential):
    subclassed = models.subclassed()
    for model, wrapped in (sequential, (subclassed, rf.from_keras(subclassed))):
        x, _ = models.examples(dtype=model.dtype)
        np.testing.assert_allclose(wrapped.apply(wrapped.params, tf.constant(x)), model(x), rtol=1e-6, err_msg=model.name)


def test_several_inputs_and_outputs():
    model = models.two_headed()
    wrapped = rf.from_keras(model)
    x = [tf.constant(models.examples(seed=seed)[0]) for seed in (0, 1)]
    for ours, theirs in zip(wrapped.apply(wrapped.params, x), model(x), strict=True):
        np.testing.assert_allclose(ours, theirs)


def test_params_have_variable_paths_and_assign_writes_them_back():
    model = models.sequential()
    wrapped = rf.from_keras(model, check=False)
    assert set(wrapped.params) == {v.path for v in model.trainable_variables}
    wrapped.assign({path: p + 1 for path, p in wrapped.params.items()})
    for variable in model.trainable_variables:
        np.testing.assert_allclose(variable.numpy(), wrapped.params[variable.path] + 1)


def test_apply_changes_nothing_in_the_model():
    model = models.convolutional()
    before = [v.numpy() for v in model.variables]
    wrapped = rf.from_keras(model)
    x, _ = models.examples(IMAGES)
    wrapped.apply(wrapped.params, tf.constant(x), training=True, seed=tf.constant([3, 4]))
    for was, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(was, variable.numpy())
    assert tf.nn.moments.__module__ != "rfho2.keras_bridge.wrapping.patches"


def test_apply_returns_the_losses_of_the_layers(sequential):
    model, wrapped = sequential
    x, _ = models.examples(dtype="float32")
    _, losses = wrapped.apply(wrapped.params, tf.constant(x), return_losses=True)
    np.testing.assert_allclose(losses, sum(model.losses), rtol=1e-6)
    assert losses > 0


def assert_modes_agree(problem, params, name, value, h=1e-5):
    """Compares reverse mode, forward mode and a central difference of the objective."""
    reverse, forward = (make(problem, jit_compile=False) for make in (rf.reverse, rf.forward))
    exact = reverse(params, {name: value}).grads[name].numpy()
    assert forward(params, {name: value}).grads[name].numpy() == pytest.approx(exact, rel=1e-9)
    ahead, behind = (reverse(params, {name: value + step}).value.numpy() for step in (h, -h))
    assert (ahead - behind) / (2 * h) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(("make", "shape"), [(models.convolutional, IMAGES), (models.subclassed, (4,))])
@pytest.mark.slow
def test_reverse_forward_and_differences_agree(make, shape):
    wrapped, problem = models.cross_entropy_problem(make(), shape)
    assert_modes_agree(problem, wrapped.params, "decay", 1.0)


@pytest.mark.slow
def test_with_tensorflows_moments_both_modes_agree_and_are_wrong(monkeypatch):
    monkeypatch.setattr("rfho2.keras_bridge.wrapping.patches.moments", tf.nn.moments)
    wrapped, problem = models.cross_entropy_problem(models.convolutional(), IMAGES)
    check = rf.check_hypergradient(problem, wrapped.params, {"decay": 1.0})
    assert not check.ok
    (row,) = check.table
    assert row.reverse == pytest.approx(row.forward, rel=1e-8)
    assert abs(row.reverse - row.difference) > 0.01 * abs(row.difference)


def test_a_hidden_stop_gradient_is_found_when_the_model_is_wrapped(monkeypatch):
    monkeypatch.setattr("rfho2.keras_bridge.wrapping.patches.moments", tf.nn.moments)
    with pytest.raises(ValueError, match=r"second derivatives are wrong by .*StopGradient"):
        rf.from_keras(models.convolutional())


def test_an_op_without_second_derivative_is_named():
    gamma = keras.layers.Lambda(lambda x: tf.math.igamma(tf.exp(x), tf.ones([], x.dtype)))
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(3), gamma])
    with pytest.raises(ValueError, match=r"no second derivative.*IgammaGradA"):
        rf.from_keras(model)


@pytest.mark.slow
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

    problem = rf.Problem(rf.momentum(loss, "lr", 0.5), loss, 4)
    assert_modes_agree(problem, wrapped.params, "lr", 0.1)


def test_a_model_that_is_not_built_is_refused():
    with pytest.raises(ValueError, match=r"not built.*keras.Input"):
        rf.from_keras(keras.Sequential([keras.layers.Dense(3)]))


def test_an_object_that_is_not_a_model_is_refused():
    with pytest.raises(TypeError, match=r"pass a keras.Model"):
        rf.from_keras(keras.layers.Dense(3))


def test_another_backend_is_refused(monkeypatch, sequential):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match=r"runs on jax.*KERAS_BACKEND=tensorflow"):
        rf.from_keras(sequential[0])


def test_params_of_another_model_are_refused(sequential):
    _, wrapped = sequential
    with pytest.raises(ValueError, match="not in both"):
        wrapped.apply({"other": tf.zeros(3)}, tf.zeros([1, 4]))

"""Models that people have: trained as Keras trains them, or refused or warned about by name."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from rfho2.core import nest
from rfho2.keras_bridge.training.keras_training import make_training
from rfho2.keras_bridge.tuners.checks import check_training
from tests.support import keras_cases as cases

BATCH, RATE = 8, 0.05
QUICK = {
    "Conv2D", "BatchNormalization", "batch norm with training=False", "tf.cond",
    "two outputs in a dict", "frozen Conv2D", "MaxNorm", "compiled accumulation and EMA",
    "compiled AdamW with a cosine schedule and clipnorm",
    "compiled momentum with a schedule", "compiled AdamW, biases without decay", "bilinear UpSampling2D",
}  # fmt: skip


def named(table, quick):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in table]


def build(case):
    """The training, checked on the data as a fit would."""
    optimizer = case.optimizer or keras.optimizers.SGD(RATE)
    training = make_training(case.model, case.loss, (), None if case.loss is None else optimizer, False, None, "batch")
    check_training(case.model, training, (case.x, case.y))
    return training, optimizer


def trained(training, case):
    """The params after one epoch in order."""
    dynamics = training.dynamics()
    step = tf.function(dynamics.step, autograph=False)
    state = dynamics.init(training.model.params, {})
    for t in range(cases.N // BATCH):
        rows = nest.map(lambda a, t=t: tf.constant(a[t * BATCH : (t + 1) * BATCH]), (case.x, case.y))
        state = step(state, {}, (rows, tf.constant([0, t])), tf.constant(t))
    return dynamics.params(state)


@pytest.mark.parametrize("name", named(cases.WORKS, QUICK))
def test_one_epoch_is_keras_own(name):
    case = cases.WORKS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        training, optimizer = build(case)
    params = trained(training, case)
    assert all(np.all(np.isfinite(p)) for p in params.values())
    if case.random:
        return
    if not case.model.compiled:
        case.model.compile(optimizer, case.loss)
    case.model.fit(case.x, case.y, BATCH, 1, verbose=0, shuffle=False)
    for (path, ours), theirs in zip(params.items(), case.model.trainable_variables, strict=True):
        size = max(1.0, np.abs(theirs.numpy()).max())
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=1e-5 * size, err_msg=path)
    assert any(np.max(np.abs(params[path] - start)) > 1e-4 for path, start in training.model.params.items())


@pytest.mark.parametrize("name", cases.WARNED)
def test_it_is_trained_with_a_warning(name):
    make, message = cases.WARNED[name]
    with pytest.warns(UserWarning, match=message):
        build(make())


@pytest.mark.parametrize(
    "name",
    named(
        cases.REFUSED,
        {"stop_gradient", "a custom train_step", "compiled ema_overwrite_frequency, a function as learning rate"},
    ),
)
def test_it_is_refused_by_name(name):
    make, message = cases.REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=message):
        build(make())

"""Keras losses as functions: values, weights, label smoothing, and what is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.keras_bridge.training.losses import bounded, losses, output_loss, smoothed

RNG = np.random.default_rng(0)
LOGITS = tf.constant(RNG.normal(size=(6, 3)), tf.float32)
LABELS = RNG.integers(0, 3, 6)
ONE_HOT = keras.utils.to_categorical(LABELS, 3)


@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        (keras.losses.SparseCategoricalCrossentropy(from_logits=True), LABELS),
        (keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"), LABELS),
        (keras.losses.CategoricalCrossentropy(from_logits=True), ONE_HOT),
        (keras.losses.MeanSquaredError(), ONE_HOT),
        (keras.losses.Huber(), ONE_HOT),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_the_value_is_that_of_keras(loss, labels):
    np.testing.assert_allclose(losses(loss)(labels, LOGITS), loss(labels, LOGITS), rtol=1e-6)


def test_names_and_functions_are_accepted():
    expected = np.mean((ONE_HOT - LOGITS.numpy()) ** 2)
    for loss in ("mse", lambda y, out: tf.reduce_mean(tf.square(y - out), -1), keras.losses.mean_squared_error):
        np.testing.assert_allclose(losses(loss)(tf.constant(ONE_HOT), LOGITS), expected, rtol=1e-6)


def test_weights_multiply_examples():
    weights = tf.constant(RNG.uniform(size=6), tf.float32)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    np.testing.assert_allclose(losses(loss)(LABELS, LOGITS, weights), loss(LABELS, LOGITS, sample_weight=weights), rtol=1e-6)


@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("kind", ["sparse", "one-hot"])
def test_label_smoothing_is_that_of_keras(kind, from_logits):
    outputs = LOGITS if from_logits else tf.nn.softmax(LOGITS)
    theirs = keras.losses.CategoricalCrossentropy(from_logits=from_logits, label_smoothing=0.2)(ONE_HOT, outputs)
    make = keras.losses.SparseCategoricalCrossentropy if kind == "sparse" else keras.losses.CategoricalCrossentropy
    labels = LABELS if kind == "sparse" else ONE_HOT
    ours = losses(make(from_logits=from_logits))(labels, outputs, smoothing=tf.constant(0.2))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_labels_of_sequences_are_smoothed():
    loss, smoothing = losses(keras.losses.SparseCategoricalCrossentropy(from_logits=True)), tf.constant(0.2)
    sequences = loss(LABELS.reshape(2, 3), tf.reshape(LOGITS, [2, 3, 3]), smoothing=smoothing)
    np.testing.assert_allclose(sequences, loss(LABELS, LOGITS, smoothing=smoothing), rtol=1e-6)


def mixed(entropy):
    """The derivative, with respect to the smoothing of the labels, of the gradient with respect to the logits."""
    logits, smoothing = tf.cast(LOGITS, tf.float64), tf.constant(0.1, tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(smoothing)
        with tf.GradientTape() as inner:
            inner.watch(logits)
            targets = (1 - smoothing) * ONE_HOT.astype("float64") + smoothing / 3
            value = tf.reduce_sum(entropy(targets, logits))
        slope = tf.reduce_sum(inner.gradient(value, logits) * tf.cos(logits))
    return outer.gradient(slope, smoothing)


def test_the_mixed_derivative_with_respect_to_labels_and_logits():
    def softmax_form(targets, logits):
        return -tf.reduce_sum(targets * (logits - tf.reduce_logsumexp(logits, -1, keepdims=True)), -1)

    np.testing.assert_allclose(mixed(rf.cross_entropy), mixed(softmax_form), rtol=1e-12)


def test_label_smoothing_of_another_loss_is_refused_by_name():
    with pytest.raises(ValueError, match=r"MeanSquaredError.*only SparseCategoricalCrossentropy"):
        losses(keras.losses.MeanSquaredError())(ONE_HOT, LOGITS, smoothing=tf.constant(0.1))


@pytest.mark.parametrize("metric", ["accuracy", keras.metrics.SparseCategoricalAccuracy()])
def test_a_metric_is_refused(metric):
    with pytest.raises(TypeError, match="has no gradient"):
        losses(metric)


def test_an_unknown_loss_is_named():
    with pytest.raises(ValueError, match="'cross'"):
        losses("cross")


def test_each_output_needs_a_loss_and_labels():
    with pytest.raises(ValueError, match=r"2 outputs.*labels for 1 and 2 losses"):
        losses(["mse", "mse"])(ONE_HOT, [LOGITS, LOGITS])


def test_a_dict_of_losses_is_matched_to_the_outputs_by_name():
    both = losses({"size": "mse", "kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}, ["size", "kind"])
    assert [one.name for one in both.each] == ["mean_squared_error", "SparseCategoricalCrossentropy"]
    with pytest.raises(ValueError, match=r"outputs \['size'\], but the model's are \['size', 'kind'\]"):
        losses({"size": "mse"}, ["size", "kind"])


def test_labels_without_the_last_axis_do_not_broadcast():
    y, out = tf.constant([1.0, 2.0, 3.0]), tf.constant([[1.0], [2.0], [4.0]])
    for loss in ("mse", lambda y, out: tf.square(y - out)):
        for labels in (y, y[:, None]):
            assert float(losses(loss)(labels, out)) == pytest.approx(1 / 3)


def test_half_precision_outputs_are_evaluated_in_float32():
    loss = losses(keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert loss(LABELS, tf.cast(LOGITS, tf.bfloat16)).dtype == tf.float32


def test_ignored_labels_do_not_count():
    keras_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=255)
    rng = np.random.default_rng(0)
    outputs, labels = tf.constant(rng.normal(size=(6, 3)), tf.float32), np.array([0, 255, 2, 1, 255, 0])
    (ours,) = losses(keras_loss).each
    assert float(ours(labels, outputs)) == pytest.approx(float(keras_loss(labels, outputs)), rel=1e-6)
    kept, (plain,) = labels != 255, bounded(losses(keras.losses.SparseCategoricalCrossentropy(from_logits=True)), 1.0).each
    (of_all,) = bounded(losses(keras_loss), 1.0).each
    assert float(of_all(labels, outputs)) == pytest.approx(float(plain(labels[kept], outputs[kept])), rel=1e-6)
    with pytest.raises(ValueError, match="ignores class 255"):
        smoothed(ours, tf.constant(0.1))


def test_a_mean_over_the_weights_is_that_of_keras():
    keras_loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    rng = np.random.default_rng(0)
    (labels, outputs), weights = rng.normal(size=(2, 5, 1)).astype("float32"), np.array([1, 2, 0, 3, 4], "float32")
    (ours,) = losses(keras_loss).each
    for given in (None, weights):
        expected = float(keras_loss(labels, outputs, given))
        assert float(ours(tf.constant(labels), tf.constant(outputs), given)) == pytest.approx(expected, rel=1e-6)


def test_weights_are_aligned_with_the_examples():
    loss = output_loss("mse")
    y, outputs = tf.constant([[1.0], [2.0]]), tf.constant([[3.0], [5.0]])
    expected = (4.0 * 1 + 9.0 * 3) / 2
    for weights in ([1.0, 3.0], [[1.0], [3.0]], np.array([1, 3])):
        assert float(loss(y, outputs, tf.constant(weights))) == expected
    with pytest.raises(ValueError, match=r"weights have shape \[2, 2\].*one weight per example"):
        loss(y, outputs, tf.ones([2, 2]))
    in_time = output_loss("mse")(tf.zeros([2, 3, 1]), tf.ones([2, 3, 1]), tf.constant([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    assert float(in_time) == 0.5


@pytest.mark.parametrize("loss", [keras.losses.SparseCategoricalCrossentropy(from_logits=True), "binary_crossentropy"])
def test_bounded_cross_entropies_hardly_differ_where_labels_are_likely_and_level_off_where_not(loss):
    plain = losses(loss)
    outputs = tf.constant([[0.4], [0.999999]]) if isinstance(loss, str) else tf.constant([[1.0, 0.5], [0.0, 30.0]])
    labels = tf.constant([1, 0])
    before, after = plain.per_example(labels, outputs), bounded(plain, 2.3).per_example(labels, outputs)
    np.testing.assert_allclose(after, 5 * (1 - np.exp(-before / 5)), rtol=1e-5)
    assert before[0] * 0.9 < after[0] < before[0]
    assert before[1] > 10
    assert after[1] < 5


def test_other_losses_are_not_bounded():
    plain = losses(["mse", "sparse_categorical_crossentropy"])
    assert bounded(plain, 1.0).each[0] is plain.each[0]
    assert bounded(plain, 1.0).each[1] is not plain.each[1]


def test_high_losses_can_be_told_apart_if_they_are_high_from_the_beginning_and_infinite_ones_stay_infinite():
    plain, labels = losses(lambda y, out: tf.squeeze(out, -1)), tf.zeros([3])
    named = plain._replace(each=(plain.each[0]._replace(name="SparseCategoricalCrossentropy"),))
    values = bounded(named, first=40.0).per_example(labels, tf.constant([[40.0], [80.0], [np.inf]])).numpy()
    np.testing.assert_allclose(values, [60 * (1 - np.exp(-40 / 60)), 60 * (1 - np.exp(-80 / 60)), np.inf], rtol=1e-5)
    assert values[1] > 1.25 * values[0], "a setback would not be noticed"
    assert bounded(named, first=np.nan).per_example(labels, tf.constant([[9.0]] * 3)).numpy().max() < 5

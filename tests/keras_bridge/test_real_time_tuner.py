"""A Keras model tuned while it trains: learning, callbacks, hypers by name, going on after a kill, and misuse."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.keras_bridge.tunables import KNOBS

OTHERS = ("sgd", "nesterov", "adam", "rmsprop", "adagrad")
SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def blobs(number=240, seed=0, noise=1.0):
    """Three clouds of points that a linear model can tell apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, number)
    centres = np.array([[2.0, 0.0, 0.0, 1.0], [0.0, 2.0, 0.0, -1.0], [0.0, 0.0, 2.0, 0.0]])
    return (centres[y] + noise * rng.normal(size=(number, 4))).astype("float32"), y.astype("int32")


TRAIN, VALID = blobs(), blobs(120, seed=1)


def network():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(8, "tanh", name="hidden"), keras.layers.Dense(3, name="last")]
    return keras.Sequential([keras.Input([4]), *layers], name="network")


def tuner(model=None, loss=SPARSE, hypers=("learning_rate",), **options):
    return rf.RealTimeTuner(model or network(), loss, hypers, **{"hyper_batch": 5, "jit_compile": False, **options})


def fitted(tuner, *data, **options):
    data = data or TRAIN
    return tuner.fit(*data, **{"validation_data": VALID, "epochs": 3, "batch_size": 12, "verbose": 0, **options})


@pytest.mark.parametrize("start", [1e-4, 3.0])
def test_it_learns_from_a_bad_learning_rate(start):
    model = network()
    history = fitted(tuner(model, hypers={"learning_rate": start}, metrics=["accuracy"], hyper_rate=0.5), epochs=8)
    rates = history.trajectories["learning_rate"]
    assert rates[0] == pytest.approx(start, rel=1e-5) or (start > 1 and rates[0] < start / 3)  # lowered before it begins
    assert (rates.max() > 10 * start) if start < 1 else (rates[-1] < start / 3)
    assert history.history["val_accuracy"][-1] > 0.8


def test_the_model_has_the_best_weights_or_the_last():
    best, last = network(), network()
    history = fitted(tuner(best, hypers={"learning_rate": 0.5}, metrics=["accuracy"]), epochs=8)
    assert best.evaluate(*VALID, verbose=0)[0] == pytest.approx(history.trajectories["value"].min(), rel=1e-5)
    history = fitted(tuner(last, hypers={"learning_rate": 0.5}, metrics=["accuracy"], keep="last"), epochs=8)
    assert last.evaluate(*VALID, verbose=0)[1] == pytest.approx(history.history["val_accuracy"][-1])
    assert last.evaluate(*VALID, verbose=0)[0] > best.evaluate(*VALID, verbose=0)[0]
    with pytest.raises(ValueError, match="keep is 'first'"):
        tuner(keep="first")


def test_the_history_is_that_of_keras_with_the_hypers():
    history = fitted(tuner(hypers=("learning_rate", "momentum", "weight_decay")))
    assert set(history.history) == {"loss", "val_loss", "learning_rate", "momentum", "weight_decay"}
    assert all(len(values) == 3 for values in history.history.values())
    assert len(history.trajectories["learning_rate"]) == 3 * (240 // 12 // 5)


def test_a_dataset_gives_what_it_holds():
    model = network()
    dataset = tf.data.Dataset.from_tensor_slices(TRAIN).shuffle(240, seed=0).batch(13)  # the last batch is smaller
    valid = tf.data.Dataset.from_tensor_slices(VALID).batch(50)
    history = fitted(tuner(model, metrics=["accuracy"], hypers={"learning_rate": 0.05}), dataset, validation_data=valid)
    assert history.history["val_accuracy"][-1] > 0.8
    assert len(history.epoch) == 3


def test_batch_norm_and_a_dataset_without_end():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(6), keras.layers.BatchNormalization(), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input([4]), *layers])
    dataset = tf.data.Dataset.from_tensor_slices(TRAIN).batch(12, drop_remainder=True).repeat()
    fitted(tuner(model), dataset, steps_per_epoch=10, epochs=1)
    assert np.max(np.abs(model.layers[1].moving_mean.numpy())) > 1e-3


def test_early_stopping_ends_it_and_gives_the_best_weights_back():
    model = network()
    stop = keras.callbacks.EarlyStopping("val_loss", patience=0, min_delta=10.0, restore_best_weights=True)
    first = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: kept.append(model.get_weights()))
    kept = []
    history = fitted(tuner(model), callbacks=[first, stop], epochs=6)
    assert len(history.epoch) == 2
    for ours, best in zip(model.get_weights(), kept[0], strict=True):
        np.testing.assert_array_equal(ours, best)


def test_checkpoints_logs_and_tensorboard_are_written(tmp_path):
    callbacks = [
        keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="val_loss", save_best_only=True),
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.TensorBoard(tmp_path / "board"),
    ]
    model = network()
    fitted(tuner(model), callbacks=callbacks)
    loaded = keras.models.load_model(tmp_path / "best.keras")
    assert loaded(VALID[0][:2]).shape == (2, 3)
    header, *rows = (tmp_path / "log.csv").read_text().splitlines()
    assert "learning_rate" in header
    assert "val_loss" in header
    assert len(rows) == 3
    assert list((tmp_path / "board").rglob("events*"))


@pytest.mark.parametrize("callback", [keras.callbacks.ReduceLROnPlateau(), keras.callbacks.LearningRateScheduler(float)])
def test_callbacks_that_set_the_learning_rate_are_refused(callback):
    with pytest.raises(ValueError, match=type(callback).__name__):
        fitted(tuner(), callbacks=[callback])


def test_each_layer_can_have_a_learning_rate():
    history = fitted(tuner(per_layer=True))
    names = [name for name in history.history if name.startswith("learning_rate/")]
    assert len(names) == 2
    assert history.history[names[0]][-1] != history.history[names[1]][-1]


@pytest.mark.parametrize("optimizer", ["adamw", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_other_optimisers(optimizer):
    history = fitted(tuner(hypers=("learning_rate", "weight_decay"), optimizer=optimizer), epochs=1)
    assert history.history["weight_decay"][0] != pytest.approx(KNOBS["weight_decay"].start, rel=1e-4)


def test_label_smoothing_regularisers_and_dropout():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(8, "tanh", kernel_regularizer="l2"), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.Input([4]), *layers, keras.layers.Dropout(0.2), keras.layers.Dense(3)])
    history = fitted(tuner(model, hypers=("learning_rate", "label_smoothing", "regularization")))
    for name in ("label_smoothing", "regularization"):
        assert history.history[name][-1] != pytest.approx(KNOBS[name].start, rel=1e-4)
    assert history.history["val_loss"][-1] < 1.0
    assert np.max(np.abs(model.layers[1].moving_mean.numpy())) > 1e-3


def test_a_weight_for_each_output():
    left = keras.Input([4])
    hidden = keras.layers.Dense(6, "tanh")(left)
    model = keras.Model(left, [keras.layers.Dense(3, name="kind")(hidden), keras.layers.Dense(1, name="size")(hidden)])
    sizes = [np.sum(x, 1, keepdims=True) for x, _ in (TRAIN, VALID)]
    train, valid = (TRAIN[0], [TRAIN[1], sizes[0]]), (VALID[0], [VALID[1], sizes[1]])
    loss = {"size": "mse", "kind": SPARSE}  # in whatever order
    history = fitted(tuner(model, loss, hypers=("learning_rate", "loss_weights")), *train, validation_data=valid)
    assert {"loss_weights/kind", "loss_weights/size"} <= set(history.history)


def test_fit_again_goes_on():
    it = tuner(hypers={"learning_rate": 0.02})
    first = fitted(it)
    after = float(it.hypers["learning_rate"])
    assert after != pytest.approx(0.02)
    second = fitted(it)
    assert second.trajectories["learning_rate"][0] == pytest.approx(after)
    assert second.history["val_loss"][0] < first.history["val_loss"][0]


def test_a_fit_that_was_killed_goes_on(tmp_path):
    class Kill(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    whole, part, rest = network(), network(), network()
    expected = fitted(tuner(whole))
    with pytest.raises(KeyboardInterrupt):
        fitted(tuner(part), callbacks=[Kill()], checkpoint_dir=tmp_path)
    found = fitted(tuner(rest), checkpoint_dir=tmp_path)
    np.testing.assert_array_equal(found.trajectories["learning_rate"], expected.trajectories["learning_rate"])
    for ours, theirs in zip(rest.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_steps_that_explode_are_taken_back():
    x, y = TRAIN[0] * 30, TRAIN[1].astype("float32")
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    history = fitted(tuner(model, "mse", {"learning_rate": 10.0}), x, y, validation_data=(x[:50], y[:50]), epochs=2)
    assert np.isfinite(history.history["val_loss"][-1])
    assert history.trajectories["learning_rate"][0] < 0.1


class TestMisuse:
    def test_an_unknown_hyper(self):
        with pytest.raises(ValueError, match=r"hypers has 'lr'; with optimizer='momentum' they can be \['learning_rate'"):
            tuner(hypers=["lr"])

    def test_momentum_of_an_optimiser_without(self):
        with pytest.raises(ValueError, match="hypers has 'momentum'"):
            tuner(hypers=["momentum"], optimizer="adam")

    def test_an_unknown_optimiser(self):
        with pytest.raises(ValueError, match="optimizer is 'sgdm'"):
            tuner(optimizer="sgdm")

    def test_a_start_out_of_range(self):
        with pytest.raises(ValueError, match=r"starts at 0.0, outside of its range"):
            tuner(hypers={"learning_rate": 0.0})

    def test_ranges_of_what_is_no_hyper(self):
        with pytest.raises(ValueError, match="ranges has"):
            tuner(ranges={"momentum": (0.1, 0.2)})

    def test_a_model_that_is_not_built(self):
        with pytest.raises(ValueError, match="not built"):
            tuner(keras.Sequential([keras.layers.Dense(3)]))

    def test_no_validation_data(self):
        with pytest.raises(ValueError, match="validation_data is None"):
            fitted(tuner(), validation_data=None)

    def test_integer_labels_with_a_one_hot_loss(self):
        with pytest.raises(ValueError, match="wants one-hot labels"):
            fitted(tuner(loss=keras.losses.CategoricalCrossentropy(from_logits=True)))

    def test_a_loss_without_gradient(self):
        def accuracy(y, out):
            return tf.cast(tf.equal(tf.argmax(out, -1, tf.int32), tf.cast(y, tf.int32)), tf.float32)

        with pytest.raises(ValueError, match="loss accuracy has no gradient"):
            fitted(tuner(loss=accuracy))

    def test_a_dataset_that_is_empty(self):
        with pytest.raises(ValueError, match="ended before its first batch"):
            fitted(tuner(), tf.data.Dataset.from_tensor_slices(TRAIN).take(0).batch(4))

    def test_a_dataset_that_ends_early(self):
        left = iter([tuple(part[i : i + 12] for part in TRAIN) for i in range(0, 120, 12)])
        spec = (tf.TensorSpec([12, 4], tf.float32), tf.TensorSpec([12], tf.int32))
        dataset = tf.data.Dataset.from_generator(lambda: left, output_signature=spec)
        with pytest.raises(ValueError, match="ended"):
            fitted(tuner(), dataset, steps_per_epoch=20)

    def test_a_dataset_of_single_examples(self):
        with pytest.raises(ValueError, match=r"add \.batch"):
            fitted(tuner(), tf.data.Dataset.from_tensor_slices(TRAIN))

    def test_a_dataset_with_weights(self):
        with pytest.raises(ValueError, match="gives 3 parts"):
            fitted(tuner(), tf.data.Dataset.from_tensor_slices((*TRAIN, TRAIN[1])).batch(12))

    def test_different_numbers_of_examples(self):
        with pytest.raises(ValueError, match="same number of examples"):
            fitted(tuner(), TRAIN[0], TRAIN[1][:-1])

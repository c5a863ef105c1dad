"""Hypers with knots: their hypergradients, and the schedules that Keras follows."""

import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.driver.prediction import repeats
from rfho2.hypergradients.episodes import ParamsFunction
from rfho2.keras_bridge.training.keras_training import make_training
from rfho2.keras_bridge.training.knot_schedules import keras_schedules
from rfho2.keras_bridge.tuners import offline
from rfho2.keras_bridge.tuners.seeds import initial_weights, of_episode
from tests.support import keras_cases as cases
from tests.support.keras_models import SPARSE, TRAIN, VALID, network
from tests.support.problems import assert_agree, differences, response

K = keras.optimizers
COSINE = K.schedules.CosineDecay(0.02, 6, warmup_target=0.05, warmup_steps=2)
STEPS, BATCH = 6, 8
KNOTS = {"learning_rate": [0.02, 0.1, 0.05], "momentum": [0.5, 0.9], "weight_decay": [0.3, 0.1, 0.02, 0.1]}
CASES = {
    "momentum": (lambda: K.SGD(0.1, 0.5), ("learning_rate", "momentum")),
    "Nesterov, decay": (lambda: K.SGD(0.1, 0.8, nesterov=True, weight_decay=0.1), ("learning_rate", "weight_decay")),
    "AdamW, cosine": (lambda: K.AdamW(COSINE, clipnorm=1.0, epsilon=1e-2), ("learning_rate", "weight_decay")),
    "Adam, accumulation": (lambda: K.Adam(0.01, gradient_accumulation_steps=2, epsilon=1e-2), ("learning_rate",)),
}


def trained_with(optimizer, names):
    """A case that is compiled with the optimizer, and its training with knots."""
    keras.utils.set_random_seed(0)
    case = cases.layered(keras.layers.Dense(5, "tanh"), shape=(4,))
    if "weight_decay" in names:  # a tuned decay applies to kernels only
        optimizer = cases.without_decay("bias", optimizer)
    case.model.compile(optimizer, case.loss or "mse")
    knots = {name: KNOTS[name] for name in names}
    counts = {name: len(values) for name, values in knots.items()}
    return case, make_training(case.model, None, knots, None, False, None, "batch", counts, STEPS)


def in_order(case, dtype):
    """The batches of `model.fit` without shuffling."""
    x, y = (tf.reshape(a, [-1, BATCH, *a.shape[1:]]) for a in (tf.constant(case.x, dtype), tf.constant(case.y)))
    return lambda t: ((x[t % len(x)], y[t % len(x)]), tf.stack([0, t]))


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "momentum")) for n in CASES])
def test_hypergradients_of_knots_agree_with_differences(name):
    make, names = CASES[name]
    case, training = trained_with(make(), names)
    params = {path: tf.cast(p, tf.float64) for path, p in training.model.params.items()}
    hypers = {h: tf.constant(v) for h, v in training.tunables.to_internal(training.tunables.start).items()}
    batches = in_order(case, tf.float64)
    problem = rf.Problem(training.dynamics(), training.objective, STEPS, batches, lambda k: batches(k)[0])
    numerical = differences(lambda hypers: response(problem, params, hypers), hypers, h=1e-5)
    for engine in (rf.reverse, rf.forward):
        assert_agree(engine(problem, jit_compile=False)(params, hypers).grads, numerical, rtol=1e-6)
    assert all(np.all(g != 0) for g in numerical.values())


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n.startswith("Adam"))) for n in CASES])
def test_keras_follows_the_schedules(name):
    make, names = CASES[name]
    case, training = trained_with(make(), names)
    hypers = {h: tf.constant(v, tf.float32) for h, v in training.tunables.to_internal(training.tunables.start).items()}
    batches = in_order(case, tf.float32)
    problem = rf.Problem(training.dynamics(), training.objective, STEPS, batches)
    ours = problem.dynamics.params(tf.function(problem.train, autograph=False)(training.model.params, hypers))

    schedules = keras_schedules({h: np.array(KNOTS[h]) for h in names}, STEPS, training.optimizer.schedule)
    optimizer = case.model.optimizer
    optimizer.learning_rate = schedules.pop("learning_rate")
    case.model.make_train_function(force=True)
    epochs, callbacks = STEPS * BATCH // len(case.x), [*schedules.values()]
    case.model.fit(case.x, case.y, BATCH, epochs, verbose=0, shuffle=False, callbacks=callbacks)
    for (path, weights), theirs in zip(ours.items(), case.model.trainable_variables, strict=True):
        np.testing.assert_allclose(weights, theirs.numpy(), rtol=0, atol=1e-6, err_msg=path)
    for setting in schedules:
        assert getattr(optimizer, setting) == pytest.approx(KNOTS[setting][-1])


def tune(model=None, **options):
    options = {"steps": 30, "iterations": 3, "batch_size": 12, "method": "reverse", "jit_compile": False, **options}
    return rf.tune(model or network(), SPARSE, TRAIN, VALID, **{"verbose": 0, "hyper_rate": 0.5, **options})


@pytest.fixture(scope="module")
def tuned():
    """Knots of the learning rate and of momentum, for two sets of initial weights."""
    model = network()
    model.compile(K.SGD(0.01, 0.5), SPARSE, metrics=["accuracy"])
    schedule = {"learning_rate": 4, "momentum": 2}
    return tune(model, hypers=[*schedule], schedule=schedule, seeds=2, refit=False)


def test_knots_are_tuned_and_shown(tuned):
    first, last = tuned.result.history[0], tuned.result.history[-1]
    assert last["value"] < first["value"]
    assert [first[f"learning_rate/knot_{i}"] for i in range(4)] == pytest.approx([0.01] * 4)
    assert len(tuned.hypers["learning_rate"]) == 4
    assert len(set(tuned.hypers["learning_rate"])) == 4
    assert "learning_rate 0.0" in repr(tuned)
    assert float(tuned.model.optimizer.learning_rate) == pytest.approx(tuned.hypers["learning_rate"][-1])


class Interrupts(keras.callbacks.Callback):
    """Stops a fit, as Ctrl-C does: without a call of `on_train_end`."""

    def on_train_batch_end(self, batch, logs=None):
        raise KeyboardInterrupt


def test_a_schedule_is_saved_loaded_and_stretched(tuned, tmp_path):
    rate, momentum = tuned.schedules["learning_rate"], tuned.schedules["momentum"].stretched(60)
    long = rate.stretched(59)
    for step, stretched in ((0, 0), (29, 58), (7, 14), (99, 99)):
        assert float(long(stretched)) == pytest.approx(float(rate(step)), rel=1e-5)
    assert [float(rate(0)), float(rate(29))] == pytest.approx(
        [tuned.hypers["learning_rate"][0], tuned.hypers["learning_rate"][-1]], rel=1e-5
    )
    model = network()
    model.compile(K.SGD(long, 0.9), SPARSE)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", custom_objects={"KnotSchedule": rf.KnotSchedule})
    with pytest.raises(KeyboardInterrupt):
        loaded.fit(*TRAIN, 12, 1, verbose=0, callbacks=[momentum.stretched(60), Interrupts()])
    loaded.optimizer.iterations.assign(0)
    for _ in range(2):  # the second fit goes on
        loaded.fit(*TRAIN, 12, 1, verbose=0, callbacks=[momentum])
    assert loaded.optimizer.momentum == pytest.approx(float(momentum(39)), rel=1e-5)
    assert float(loaded.optimizer.learning_rate) == pytest.approx(float(long(40)), rel=1e-5)
    again = rf.KnotSchedule([1.0, 0.1], 11, COSINE).stretched(21)
    assert repr(again) == "KnotSchedule([1, 0.1], steps=21)"
    assert again.from_config(again.get_config()).get_config() == again.get_config()
    assert float(again(10)) == pytest.approx(10**-0.5 * float(COSINE(5)), rel=1e-5)


def test_seeds_are_initial_weights_and_orders():
    model = network()
    starts = initial_weights(model, rf.from_keras(model, check=False).params, 3, 0)
    kernels = [next(iter(start.values())).numpy() for start in starts]
    assert np.array_equal(kernels[-1], model.layers[0].kernel)
    assert not np.allclose(kernels[0], kernels[1])
    repeated = initial_weights(model, starts[-1], 3, 0)
    assert np.array_equal(kernels[1], next(iter(repeated[1].values())))
    params, batch = of_episode(starts, lambda t: t, steps=10)
    assert [np.array_equal(next(iter(params(tf.constant(k)).values())), kernels[k % 3]) for k in range(6)] == [True] * 6
    assert [batch(2, k) for k in range(6)] == 2 * [22, 12, 2]
    problem = rf.Problem(rf.gradient_descent(lambda w, hypers, x: w, "r"), lambda w, hypers, x: w, 10, batch)
    carried = ParamsFunction(params, tf.float32)
    assert [repeats(rf.average(rf.reverse(problem), n), carried) for n in (2, 3, 6)] == [False, True, True]
    params, _ = of_episode(starts[:2], lambda t: t, steps=10)
    alone = rf.Problem(problem.dynamics, problem.objective, 10)
    assert not repeats(rf.reverse(alone), ParamsFunction(params, tf.float32))


@pytest.mark.slow
def test_a_resumed_call_may_choose_another_method_for_several_seeds(monkeypatch, tmp_path):
    for k, build in enumerate((rf.forward, rf.reverse), start=1):
        chosen = types.SimpleNamespace(chosen=types.SimpleNamespace(build=build))
        monkeypatch.setattr(offline, "plan", lambda *args, chosen=chosen: chosen)
        tuned = tune(method="auto", seeds=2, iterations=k, checkpoint_dir=tmp_path, refit=False)
        assert [row["iteration"] for row in tuned.result.history] == [*range(k)]


def test_the_method_is_chosen_for_several_seeds():
    tuned = tune(method="auto", schedule={"learning_rate": 3}, seeds=2, optimizer="adam")
    assert tuned.result.history[-1]["value"] < tuned.result.history[0]["value"]


class Own(keras.Model):
    """A model that Keras cannot copy."""

    def __init__(self, units):
        super().__init__()
        self.dense = keras.layers.Dense(units)

    def call(self, x):
        return self.dense(x)


def test_schedules_and_seeds_that_cannot_be_are_refused():
    for options, message in (
        ({"schedule": {"momentum": 3}}, r"schedule has 'momentum', which is not among the hypers \['learning_rate'\]"),
        ({"hypers": ["label_smoothing"], "schedule": {"label_smoothing": 3}}, "which Keras cannot change during a fit"),
        ({"schedule": {"learning_rate": 3}, "per_layer": True}, "schedule and per_layer both have 'learning_rate'"),
        ({"schedule": {"learning_rate": 1}}, r"schedule\['learning_rate'\] is 1; it has to be an integer, at least 2"),
        ({"hypers": ["weight_decay"], "schedule": {"weight_decay": 3}, "optimizer": "adam"}, "a penalty in the loss"),
        ({"seeds": 0}, "seeds is 0"),
        ({"schedule": 6}, "schedule is 6; pass a dict"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            tune(**options)
    own = Own(3)
    own(TRAIN[0][:2])
    with pytest.raises(ValueError, match=r"seeds is 2, but Keras cannot copy model 'own\w*' \(Own\) .*: \w"):
        tune(own, seeds=2, check=False)
    with pytest.raises(ValueError, match=r"knots is \[0.1, -1\]; pass a list of numbers above 0"):
        rf.KnotSchedule([0.1, -1], 5)
    with pytest.raises(ValueError, match="setting is 'learning_rate'; choose one of"):
        rf.KnotCallback("learning_rate", [0.1, 0.2], 5)
    model = network()
    model.compile("adam", SPARSE)
    with pytest.raises(ValueError, match=r"optimizer Adam has no momentum that rf.KnotCallback could change"):
        model.fit(*TRAIN, verbose=0, callbacks=[rf.KnotCallback("momentum", [0.5, 0.9], 5)])

"""The average over episodes is the mean of single hypergradients, one after the other and together."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.hypergradients.vectorise import Stacked, stack, vectorised
from tests.support import episodes
from tests.support.episodes import hypers, problem, start

N, K = 3, 2  # episodes 6, 7 and 8
slow = pytest.mark.slow


def squares(params, hypers, batch):
    return hypers["l2"] * tf.reduce_sum(params["w"] ** 2) + params["b"] ** 2


SEVERAL = {
    "error": rf.Objective(episodes.error, ["lr", "mu"]),
    "size": rf.Objective(rf.RunningCost(squares, every=2), ["l2"], batches=lambda k: tf.cast(k, tf.float64)),
}
CASES = {  # name: (engine of a problem, problem)
    "reverse": lambda: rf.reverse(problem(), jit_compile=False),
    "several": lambda: rf.reverse(problem(SEVERAL), jit_compile=False),
    "forward": lambda: rf.forward(problem(), jit_compile=False),
    "checkpointed": lambda: rf.reverse(problem(), checkpoints=2, jit_compile=False),
    "truncated": lambda: rf.reverse(problem(SEVERAL), truncate=2, jit_compile=False),
    "chunked": lambda: rf.forward(problem(SEVERAL), chunk=2, jit_compile=False),
    "adam": lambda: rf.reverse(problem(dynamics=lambda loss, lr, mu: rf.adam(loss, lr, mu)), jit_compile=False),
}
QUICK = (("several", True),)
cases = pytest.mark.parametrize(
    ("case", "together"),
    [
        pytest.param(*pair, marks=() if pair in QUICK else slow, id=f"{pair[0]}-{'together' if pair[1] else 'in turn'}")
        for pair in itertools.product(CASES, (False, True))
    ],
)
in_turn_slow = pytest.mark.parametrize("together", [pytest.param(False, marks=slow), True], ids=["in turn", "together"])


@functools.cache
def engine(case):
    return CASES[case]()


@functools.cache
def averaged(case, together=False):
    return rf.average(engine(case), N, together)


@functools.cache
def singles(case, k=K):
    """The hypergradients of the episodes of hyper-iteration k."""
    return [engine(case)(start(episode), hypers(), episode) for episode in range(k * N, (k + 1) * N)]


def assert_near(a, b, rtol=1e-12):
    tf.nest.assert_same_structure(a, b)
    for one, other in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True):
        assert np.shape(one) == np.shape(other)
        assert np.linalg.norm(one - other) <= rtol * np.linalg.norm(other), (one, other)


@cases
def test_an_average_is_the_mean_of_single_hypergradients(case, together):
    mean = averaged(case, together)(start, hypers(), K)
    each = singles(case)
    assert_near(mean.value, mean_of([single.value for single in each]))
    assert_near(mean.grads, mean_of([single.grads for single in each]))
    assert_near(mean.state, each[-1].state)
    assert_near(mean.norms, mean_of([single.norms for single in each]))


@in_turn_slow
def test_episodes_may_share_their_params(together):
    shared = averaged("reverse", together)(start(1), hypers(), K)
    each = [engine("reverse")(start(1), hypers(), episode) for episode in range(K * N, K * N + N)]
    assert_near(shared.grads, mean_of([single.grads for single in each]))
    assert_near(shared.state, each[-1].state)


def test_the_batches_of_an_implicit_method_belong_to_the_episodes():
    loss = lambda w, hypers, c: 0.5 * w**2 + 0.5 * c * (w - hypers["a"]) ** 2  # noqa: E731
    toy = rf.Problem(rf.gradient_descent(loss, 0.3), lambda w, h, b: w**2, 40, lambda t: tf.ones([], tf.float64))
    implicit = rf.implicit(toy, batches=lambda t, k: 1.0 + tf.cast(k, tf.float64), jit_compile=False)
    arguments = tf.ones([], tf.float64), {"a": tf.constant(1.1, tf.float64)}
    each = [implicit(*arguments, k).grads for k in range(2)]
    assert abs(each[0]["a"] - each[1]["a"]) > 0.1
    assert_near(rf.average(implicit, 2, together=True)(*arguments).grads, mean_of(each))


def mean_of(results):
    return tf.nest.map_structure(lambda *x: sum(x) / len(x), *results)


def straight_through(x):
    """Rounds, with the derivative of 3 x."""
    return tf.custom_gradient(lambda x: (tf.round(x), lambda upstream: 3 * upstream))(x)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=slow)], ids=["graph", "xla"])
@pytest.mark.parametrize("method", [rf.reverse, pytest.param(rf.forward, marks=slow)], ids=["reverse", "forward"])
def test_custom_gradients_survive_vectorisation(method, jit_compile):
    product = rf.fixed_product(tf.constant([[0.2], [1.3]], tf.float64))

    def loss(w, hypers, batch):
        return tf.reduce_sum(tf.cosh(product(straight_through(hypers["a"] * w)) - batch))

    toy = rf.Problem(
        rf.momentum(loss, 0.1, 0.5), lambda w, hypers, batch: tf.reduce_sum(w**2), 3, lambda t, k: tf.cast(t + k, tf.float64)
    )
    arguments = tf.constant([[0.8]], tf.float64), {"a": tf.constant(1.1, tf.float64)}
    expected = mean_of([method(toy, jit_compile=False)(*arguments, k).grads for k in range(2)])
    assert abs(expected["a"].numpy()) > 1e-3
    compiled = rf.average(method(toy, jit_compile=jit_compile), 2, together=True)
    assert_near(compiled(*arguments).grads, expected, 1e-10 if jit_compile else 1e-12)
    assert compiled.jit_compiled == jit_compile


@slow
def test_together_compiles_with_xla_where_batches_loop_and_params_are_random():
    data = rf.batches.shuffled(tf.constant(np.linspace(-1, 1, 13)), 4, seed=1)  # 13 examples need a loop
    draw = lambda k: {"w": rf.batches.uniform(tf.stack([5, k]), (3,), tf.float64)}  # noqa: E731

    def loss(params, hypers, batch):
        return tf.reduce_sum(tf.cosh(hypers["a"] * params["w"][:, None] - batch))

    toy = rf.Problem(rf.momentum(loss, "lr", 0.5), loss, 4, lambda t, k: data(4 * k + t), data)
    settings = {"a": tf.constant(0.7, tf.float64), "lr": tf.constant(0.02, tf.float64)}
    single = rf.reverse(toy, jit_compile=False)
    expected = mean_of([single(draw, settings, k).grads for k in (2, 3)])
    compiled = rf.average(rf.reverse(toy, jit_compile=True), 2, together=True)
    assert_near(compiled(draw, settings, 1).grads, expected, 1e-10)
    assert compiled.jit_compiled


def test_what_is_the_same_in_all_episodes_is_not_stacked():
    data = (tf.constant([1.0, 2.0]), None)
    at = functools.partial(stack, k=tf.constant(2), n=3)
    assert at(lambda k: data) is data
    both = at(lambda k: {"a": data, "b": k})
    assert isinstance(both, Stacked)
    np.testing.assert_array_equal(both.each["b"], [6, 7, 8])
    np.testing.assert_array_equal(both.each["a"][0], [[1.0, 2.0]] * 3)
    assert both.each["a"][1] is None


@pytest.mark.parametrize("n", [3, 9], ids=["one by one", "in a loop"])
def test_random_numbers_of_episodes_are_those_of_single_ones(n):
    draw = lambda k: (rf.batches.uniform(tf.stack([1, k]), (2,)), k, None)  # noqa: E731
    stacked = tf.function(lambda k: stack(draw, k, n).each[:2], autograph=False)(tf.constant(2))
    for i in range(n):
        assert stacked[1][i] == 2 * n + i
        np.testing.assert_array_equal(stacked[0][i], draw(tf.constant(2 * n + i))[0])


def test_an_episode_may_have_leaves_of_any_kind_and_hypers_that_reach_nothing():
    def function(w, hypers, batch):
        x, missing, scale = batch
        assert missing is None
        return {"y": w * hypers["used"] + tf.gather(x, 1), "z": tf.cast(scale, tf.float64) * w}

    batch = Stacked((tf.constant([[1.0, 2.0], [3.0, 4.0]], tf.float64), None, tf.constant([2, 3])))
    w, hypers = tf.constant([1.0, -1.0], tf.float64), {n: tf.constant(0.5, tf.float64) for n in ("used", "unused")}

    @tf.function(autograph=False)
    def gradients(w, hypers):
        with tf.GradientTape() as tape:
            tape.watch((w, hypers))
            result = vectorised(function, (w,), hypers, batch)
            total = tf.reduce_sum(result["y"] * [1.0, 10.0]) + tf.reduce_sum(result["z"])
        derivatives = tape.gradient(total, (w, hypers))
        assert derivatives[1]["unused"] is None
        return result, derivatives[0], derivatives[1]["used"]

    result, by_w, by_used = gradients(w, hypers)
    np.testing.assert_array_equal(result["y"], [2.5, 3.5])
    np.testing.assert_array_equal(result["z"], [2.0, -3.0])
    np.testing.assert_array_equal(by_w, [0.5 + 2, 5.0 + 3])
    assert by_used.numpy() == 1.0 - 10.0


def test_settings_tell_everything():
    settings = averaged("reverse").settings
    assert settings["method"] == "average"
    assert (settings["n"], settings["together"], settings["jit_compile"]) == (N, False, False)
    assert settings["engine"] == engine("reverse").settings
    assert averaged("reverse", True).settings == {**settings, "together": True}


@slow
@pytest.mark.parametrize("outer", [False, True], ids=["in turn", "together"])
@pytest.mark.parametrize("inner", [False, True], ids=["in turn", "together"])
def test_an_average_of_averages_is_the_average_over_all_their_episodes(inner, outer):
    nested = rf.average(averaged("reverse", inner), 2, outer)(start, hypers(), 1)
    each = [averaged("reverse")(start, hypers(), k) for k in (2, 3)]
    assert_near(nested.grads, mean_of([mean.grads for mean in each]))
    assert_near(nested.state, each[-1].state)


@slow
@pytest.mark.filterwarnings("ignore:rf.implicit")
def test_implicit_hypergradients_can_be_averaged():
    case = problem()
    toy = rf.Problem(rf.gradient_descent(episodes.loss, 0.1), case.objective, 30, case.batches, case.validation)
    single = rf.implicit(toy, tolerance=1e-14, batches=lambda t, k: case.batches(0, k), jit_compile=False)
    decay = {"l2": hypers()["l2"]}
    expected = mean_of([single(start, decay, k).grads for k in (2, 3)])
    for together in (False, True):
        mean = rf.average(single, 2, together)
        assert_near(mean(start, decay, 1).grads, expected)


def test_what_cannot_be_averaged_is_refused():
    loss = lambda w, h, batch: h["c"] * w**2  # noqa: E731
    toy = rf.Problem(rf.gradient_descent(loss, 0.1), loss, steps=2)
    for online in (rf.real_time(toy, 1), rf.implicit(toy, warm_start=True)):
        with pytest.raises(TypeError, match=rf"engine is rf\.{online.settings['method']}.*one training.*rf\.reverse"):
            rf.average(online, 2)
    with pytest.raises(TypeError, match=r"engine is AutoEngine.*rf\.plan"):
        rf.average(rf.auto(toy), 2)
    with pytest.raises(TypeError, match=r"engine is Problem.*rf\.reverse"):
        rf.average(toy, 2)
    for n in (0, 1.5, True):
        with pytest.raises(ValueError, match=rf"n is {n}"):
            rf.average(engine("reverse"), n)

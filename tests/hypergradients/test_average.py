"""The average over episodes is the mean of single hypergradients, one after the other and together."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
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
QUICK = ("reverse", "several", "forward")
cases = pytest.mark.parametrize("case", [name if name in QUICK else pytest.param(name, marks=slow) for name in CASES])
orders = pytest.mark.parametrize("together", [False], ids=["in turn"])


@functools.cache
def engine(case):
    return CASES[case]()


@functools.cache
def averaged(case, together=False):
    return rf.average(engine(case), N, together)


@functools.cache
def singles(case, k=K):
    """The hypergradients of the episodes of hyper-iteration k, each with its norms."""
    results = []
    for episode in range(k * N, (k + 1) * N):
        results.append((engine(case)(start(episode), hypers(), episode), dict(engine(case).norms)))
    return results


def assert_near(a, b, rtol=1e-12):
    tf.nest.assert_same_structure(a, b)
    for one, other in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True):
        assert np.shape(one) == np.shape(other)
        assert np.linalg.norm(one - other) <= rtol * np.linalg.norm(other), (one, other)


@orders
@cases
def test_an_average_is_the_mean_of_single_hypergradients(case, together):
    mean = averaged(case, together)(start, hypers(), K)
    each = singles(case)
    assert_near(mean.value, tf.nest.map_structure(lambda *x: sum(x) / N, *(single.value for single, _ in each)))
    assert_near(mean.grads, tf.nest.map_structure(lambda *x: sum(x) / N, *(single.grads for single, _ in each)))
    assert_near(mean.state, each[-1][0].state)
    norms = dict(averaged(case, together).norms)
    assert_near(norms, tf.nest.map_structure(lambda *x: sum(x) / N, *(norms for _, norms in each)))


@orders
def test_episodes_may_share_their_params(together):
    shared = averaged("reverse", together)(start(1), hypers(), K)
    each = [engine("reverse")(start(1), hypers(), episode) for episode in range(K * N, K * N + N)]
    assert_near(shared.grads, tf.nest.map_structure(lambda *x: sum(x) / N, *(single.grads for single in each)))
    assert_near(shared.state, each[-1].state)


def test_settings_tell_everything():
    settings = averaged("reverse").settings
    assert settings["method"] == "average"
    assert (settings["n"], settings["together"], settings["jit_compile"]) == (N, False, False)
    assert settings["engine"] == engine("reverse").settings


def test_an_average_of_averages_is_the_average_over_all_their_episodes():
    nested = rf.average(averaged("reverse"), 2)(start, hypers(), 1)
    inner = [averaged("reverse")(start, hypers(), k) for k in (2, 3)]
    assert_near(nested.grads, tf.nest.map_structure(lambda *x: sum(x) / 2, *(mean.grads for mean in inner)))
    assert_near(nested.state, inner[-1].state)


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

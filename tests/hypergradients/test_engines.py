"""What all engines have in common, for every engine of the table."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.hypergradients import engine as engine_module
from tests.support.engines import ENGINES, common_engines, common_whole_engines, every_engine
from tests.support.problems import assert_agree, build, differences, response

STEPS, RATE, START = 3, 0.25, 2.0
HYPERS = {"lr": RATE, "scale": [1.0, 1.0]}
PARAMS = tf.constant([START, START], tf.float64)


def loss(w, hypers, batch):
    return 0.5 * tf.reduce_sum(hypers["scale"] * w**2)


def problem(steps=STEPS, rate="lr"):
    return rf.Problem(rf.gradient_descent(loss, rate), lambda w, hypers, batch: 0.5 * tf.reduce_sum(w**2), steps)


def for_method(method):
    """The problem and its hypers, without the learning rate where the method does not differentiate with respect to it."""
    return (problem(), HYPERS) if method.rates else (problem(rate=RATE), {"scale": HYPERS["scale"]})


def expected_norm(carrier):
    """w_t = (1 - lr scale)^t w_0, of two entries whose scale is 1."""
    shrunk = (1 - RATE) ** STEPS
    if carrier == "adjoint":
        return np.sqrt(2) * shrunk**2 * START  # dE/dw_0 = w_T dw_T/dw_0
    by_lr = -STEPS * (1 - RATE) ** (STEPS - 1) * START  # of each entry; times lr with respect to its own scale
    return np.sqrt(2 * by_lr**2 + 2 * (RATE * by_lr) ** 2)


@common_whole_engines
def test_hypergradients_agree_with_differences(method):
    toy, params, hypers = build("quadratic", "momentum", steps=4)
    engine = method.make(toy, jit_compile=False)
    hypergradient = engine(params, hypers)
    assert_agree(hypergradient.grads, differences(lambda h: response(toy, params, h), hypers), rtol=1e-6)
    np.testing.assert_allclose(hypergradient.value, response(toy, params, hypers), rtol=1e-12)
    assert isinstance(engine, rf.Engine)
    assert engine.jit_compiled is False


@common_whole_engines
@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["graph", "jit"])
def test_norms_are_those_of_the_derivatives(method, jit_compile):
    engine = method.make(problem(), jit_compile=jit_compile)
    norms = engine(PARAMS, HYPERS).norms
    assert set(norms) == {method.carrier}
    with pytest.warns(DeprecationWarning, match="norms of the HyperGradient"):
        assert engine.norms is norms
    assert float(norms[method.carrier]) == pytest.approx(expected_norm(method.carrier), rel=1e-12)


def with_shapes(batches):
    """XLA has to know the number of the hyper-iteration or of the step to compile this problem."""
    weighted = rf.gradient_descent(lambda w, hypers, batch: loss(w, hypers, None) * tf.reduce_sum(batch), RATE)
    shaped = lambda i: tf.reshape(tf.ones(2, tf.float64), [i + 1, -1])  # noqa: E731
    return rf.Problem(weighted, lambda w, hypers, batch: tf.reduce_sum(w**2), 2, lambda t, k: shaped(batches(t, k)))


@pytest.mark.parametrize(
    "method", [pytest.param(m, id=name, marks=() if name == "reverse" else pytest.mark.slow) for name, m in ENGINES.items()]
)
def test_xla_cannot_take_k_for_a_constant(method):
    """Otherwise it would compile again in every hyper-iteration of a problem that reads table[k]."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="constant"):
        method.make(with_shapes(lambda t, k: k), jit_compile=True)(PARAMS, {"scale": [1.0, 1.0]})


@pytest.mark.parametrize("which", ["k", "t"])
@pytest.mark.parametrize(
    "make",
    [
        lambda problem: rf.real_time(problem, 2, jit_compile=True),
        lambda problem: rf.real_time(problem, 2, discount=0.0, jit_compile=True),
        lambda problem: rf.implicit(problem, warm_start=True, jit_compile=True),
    ],
    ids=["real_time", "one_step", "warm_implicit"],
)
@pytest.mark.slow
def test_xla_cannot_take_k_or_t_for_a_constant_while_training_goes_on(make, which):
    engine = make(with_shapes(lambda t, k: k if which == "k" else t))
    with pytest.raises(tf.errors.InvalidArgumentError, match="constant"):
        engine(PARAMS, {"scale": [1.0, 1.0]})


@common_whole_engines
def test_the_driver_records_values_and_norms(method):
    tuner = rf.HyperOptimizer(method.make(problem(), jit_compile=False), rf.projected_adam(0.01))
    history = tuner.run(PARAMS, HYPERS, 2).history
    norm = f"norm of {method.carrier}"
    assert history[0][norm] == pytest.approx(expected_norm(method.carrier), rel=1e-12)
    assert history[1][norm] != history[0][norm]


def test_a_divergence_names_the_norms():
    tuner = rf.HyperOptimizer(rf.reverse(problem(200), jit_compile=False), rf.projected_adam(0.01))
    with pytest.raises(rf.DivergenceError, match="norm of adjoint: nan"):
        tuner.run(tf.constant([START, START]), {"lr": 5.0, "scale": [1.0, 1.0]}, 1)


@common_engines
def test_inputs_are_validated_on_the_way_in_only(method, monkeypatch):
    """`start` and `__call__` check and trace; `advance`, which runs at every hyper-iteration, does not."""
    probes, checks = [], []
    probe, checked = engine_module.probe, engine_module.errors.checked_params
    monkeypatch.setattr(engine_module, "probe", lambda *args: probes.append(1) or probe(*args))
    monkeypatch.setattr(engine_module.errors, "checked_params", lambda params: checks.append(1) or checked(params))
    toy, hypers = for_method(method)
    engine = method.make(toy, jit_compile=False)
    carry = engine.start(PARAMS, hypers)
    before = len(checks)
    for k in range(3):
        _, carry = engine.advance(carry, hypers, k)
    assert (len(probes), len(checks)) == (1, before)


def test_an_engine_can_be_called_inside_a_function_of_the_user():
    engine = rf.reverse(problem(), jit_compile=False)
    value = tf.function(lambda hypers: engine(PARAMS, hypers).value, autograph=False)
    eager = engine(PARAMS, HYPERS).value
    assert value({name: tf.constant(h, tf.float64) for name, h in HYPERS.items()}) == eager


@every_engine
def test_a_hyper_that_reaches_nothing_is_rejected(method):
    toy, hypers = for_method(method)
    with pytest.raises(ValueError, match="hyper 'lost' has no effect"):
        method.make(toy, jit_compile=False)(PARAMS, {**hypers, "lost": 1.0})


@common_engines
def test_a_bare_call_warns_of_what_is_not_finite(method):
    loss = lambda w, hypers, batch: hypers["l2"] * tf.sqrt(w)  # noqa: E731
    rate, hypers = ("lr", {"lr": 0.1, "l2": 1.0}) if method.rates else (0.1, {"l2": 1.0})
    engine = method.make(rf.Problem(rf.gradient_descent(loss, rate), loss, 2), jit_compile=False)
    lost = "".join(f", the hypergradient of '{name}'" for name in hypers)
    with pytest.warns(UserWarning, match=rf"not finite: the value{lost}\. Try"):
        engine(tf.constant(-1.0), hypers)

"""The engine that plans at its first call."""

import numpy as np

import rfho2 as rf
from tests.support.problems import build


def test_auto_computes_what_the_chosen_engine_computes_and_plans_once(quick):
    p, params, hypers = build("quadratic", "momentum", steps=20)
    engine = rf.auto(p, memory="1GB")
    assert engine.plan is None
    hypergradient = engine(params, hypers)
    plan = engine.plan
    assert plan.chosen.bytes <= 1e9
    assert set(plan.measured) == {"step", "pull-back", "push-forward", "columns"}
    chosen = plan.chosen.build(p)
    expected = chosen(params, hypers)
    assert hypergradient.value == expected.value
    for name in hypers:
        np.testing.assert_array_equal(hypergradient.grads[name], expected.grads[name])
    assert hypergradient.norms == expected.norms
    assert rf.auto(p).start(lambda k: params, hypers)(0) is params  # planned at k = 0
    resumed, _ = rf.auto(p, memory="1GB").advance(params, hypers, 0)  # the carry of another engine
    np.testing.assert_allclose(resumed.value, expected.value)
    result = rf.HyperOptimizer(engine, rf.projected_adam(1e-3)).run(params, hypers, iterations=2)
    assert engine.plan is plan
    assert result.history[0]["value"] == float(expected.value)


def test_auto_plans_windows_too(quick):
    p, params, hypers = build("quadratic", "momentum", steps=None)
    engine = rf.auto(p, memory="1GB", hyper_batch=3)
    carry = engine.start(params, hypers)
    hypergradient, carry = engine.advance(carry, hypers, 0)
    assert engine.plan.chosen.settings["hyper_batch"] == int(carry.t) == 3
    expected = rf.real_time(p, 3, mode="reverse", jit_compile=False)(params, hypers)
    for name in hypers:
        np.testing.assert_allclose(hypergradient.grads[name], expected.grads[name], rtol=1e-10)

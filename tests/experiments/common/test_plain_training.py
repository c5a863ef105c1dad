"""Training with fixed hypers, driven like an engine."""

import numpy as np

import rfho2 as rf
from experiments.common.plain_training import fixed, plain_training
from tests.support.problems import quadratic


def test_it_continues_one_training_and_leaves_the_hypers_unchanged():
    case = quadratic()
    problem = rf.Problem(rf.gradient_descent(case.loss, 0.1), case.objective, steps=None)
    engine = plain_training(problem, hyper_batch=3, jit_compile=False)
    result = rf.HyperOptimizer(engine, fixed).run(case.params, case.hypers, 2)
    rate, centre = 0.1 * np.array(case.hypers["curvature"]), np.array([1.0, -2.0, 0.5])
    for record, steps in zip(result.history, (3, 6), strict=True):
        w = centre + (1 - rate) ** steps * (case.params - centre)
        np.testing.assert_allclose(record["value"], 0.5 * np.sum((w - 0.3) ** 2), rtol=1e-12)
    np.testing.assert_array_equal(result.hypers["curvature"], case.hypers["curvature"])
    hypergradient = engine(case.params, case.hypers)
    np.testing.assert_array_equal(hypergradient.grads["curvature"], np.zeros(3))

"""How large adjoint and sensitivity were: right, in the history, and in the words of a divergence."""

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf

STEPS, RATE, START = 3, 0.25, 2.0


def loss(w, hypers, batch):
    return 0.5 * tf.reduce_sum(hypers["scale"] * w**2)


def objective(w, hypers, batch):
    return 0.5 * tf.reduce_sum(w**2)


def problem(steps=STEPS):
    return rf.Problem(rf.gradient_descent(loss, "lr"), objective, steps)


ENGINES = {
    "reverse": lambda jit: rf.reverse(problem(), jit_compile=jit),
    "checkpointed": lambda jit: rf.reverse(problem(), checkpoints=1, jit_compile=jit),
    "forward": lambda jit: rf.forward(problem(), jit_compile=jit),
    "chunked": lambda jit: rf.forward(problem(), chunk=2, jit_compile=jit),
    "real_time": lambda jit: rf.real_time(problem(None), STEPS, jit_compile=jit),
    "forgetful": lambda jit: rf.real_time(problem(None), STEPS, carry=False, jit_compile=jit),
}


def expected(name):
    """w_t = (1 - lr scale)^t w_0, of two entries whose scale is 1."""
    shrunk = (1 - RATE) ** STEPS
    if name in ("reverse", "checkpointed"):
        return "adjoint", np.sqrt(2) * shrunk**2 * START  # dE/dw_0 = w_T dw_T/dw_0
    by_lr = -STEPS * (1 - RATE) ** (STEPS - 1) * START  # of each entry, and times lr by its own scale
    return "sensitivity", np.sqrt(2 * by_lr**2 + 2 * (RATE * by_lr) ** 2)


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "jit"])
@pytest.mark.parametrize("name", ENGINES)
def test_norms_are_those_of_the_derivatives(name, jit):
    engine = ENGINES[name](jit)
    engine(tf.constant([START, START], tf.float64), {"lr": RATE, "scale": [1.0, 1.0]})
    what, norm = expected(name)
    assert set(engine.norms) == {what}
    assert float(engine.norms[what]) == pytest.approx(norm, rel=1e-12)


@pytest.mark.parametrize("name", ["reverse", "real_time"])
def test_the_history_has_them(name):
    tuner = rf.HyperOptimizer(ENGINES[name](False), rf.projected_adam(0.01))
    history = tuner.run(tf.constant([START, START], tf.float64), {"lr": RATE, "scale": [1.0, 1.0]}, 2).history
    what, norm = expected(name)
    assert history[0][f"norm of {what}"] == pytest.approx(norm, rel=1e-12)
    assert history[1][f"norm of {what}"] != history[0][f"norm of {what}"]


def test_a_divergence_names_them():
    tuner = rf.HyperOptimizer(rf.reverse(problem(200), jit_compile=False), rf.projected_adam(0.01))
    with pytest.raises(rf.DivergenceError, match="norm of adjoint: nan"):
        tuner.run(tf.constant([START, START]), {"lr": 5.0, "scale": [1.0, 1.0]}, 1)

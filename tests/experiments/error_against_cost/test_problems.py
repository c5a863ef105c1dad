"""The problems have the hypergradients that differences of solved trainings give; every framework builds the same ones."""

import importlib.util

import numpy as np
import pytest
import tensorflow as tf

from experiments.error_against_cost import hypertorch_peer, jaxopt_peer, measure, problems
from experiments.error_against_cost.tasks import METHODS, Task

LOGISTIC = problems.logistic(40, 3, seed=0)


def small_cleaning():
    """Ten examples with four features and three classes."""
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(10, 4)), rng.integers(0, 3, 10)) for _ in range(2)]
    return problems.Case("cleaning", *parts, 3, rng.uniform(0, 1, 10), rate=0.5)


@pytest.fixture(scope="module")
def solved():
    return problems.reference(LOGISTIC, jit_compile=False)


def test_the_reference_is_the_derivative_of_the_solved_objective(solved):
    made = problems.functions(LOGISTIC, tf.float64)
    newton = tf.function(lambda w, h: problems._newton_step(made, {"h": h}, w)[0], autograph=False)

    def objective(hypers):
        w = tf.zeros(LOGISTIC.shape, tf.float64)
        for _ in range(30):
            w = newton(w, tf.constant(hypers))
        return float(made.objective(w, None, None))

    directions = 1e-4 * np.eye(3)
    differences = [(objective(LOGISTIC.hypers + d) - objective(LOGISTIC.hypers - d)) / 2e-4 for d in directions]
    np.testing.assert_allclose(solved.gradient, differences, rtol=1e-5)
    assert solved.error(solved.gradient) == 0
    x, hessian = LOGISTIC.train[0], np.diag(np.exp(LOGISTIC.hypers))
    slopes = 1 / (1 + np.exp(-x @ solved.w[:, 0]))
    hessian += x.T @ np.diag(slopes * (1 - slopes)) @ x / len(x)
    assert solved.curvature == pytest.approx(np.linalg.eigvalsh(hessian)[-1], rel=1e-2)
    assert solved.error(1.5 * solved.gradient) == pytest.approx(0.5)


def test_a_training_without_solution_is_an_error(monkeypatch):
    monkeypatch.setattr(problems, "NEWTON_STEPS", 1)
    with pytest.raises(RuntimeError, match=r"logistic 3: .* after 1 Newton steps"):
        problems.reference(LOGISTIC, jit_compile=False)


def test_weights_multiply_the_errors_of_their_examples():
    case = small_cleaning()
    made, w = problems.functions(case, tf.float64), tf.ones(case.shape, tf.float64) * np.arange(3)
    none, one = ({"h": tf.constant(h)} for h in (np.zeros(10), np.eye(10)[4]))
    decay = float(made.loss(w, none, None))
    assert decay == pytest.approx(problems.L2 * 4 * (1 + 4))
    logits = case.train[0][4] @ w.numpy()
    error = np.log(np.sum(np.exp(logits))) - logits[case.train[1][4]]
    assert float(made.loss(w, one, None)) - decay == pytest.approx(error / 10)


def test_the_digits_have_a_constant_input_and_half_of_their_labels_are_wrong():
    case = problems.cleaning(20, seed=0)
    assert case.shape == (785, 10)
    assert case.hypers.shape == (20,)
    np.testing.assert_array_equal(case.train[0][:, -1], 1)


@pytest.mark.slow
@pytest.mark.parametrize("case", [LOGISTIC, small_cleaning()], ids=lambda case: case.name)
@pytest.mark.skipif(importlib.util.find_spec("jaxopt") is None, reason="needs jaxopt")
def test_jaxopt_gets_the_same_hypergradient(case):
    reference = problems.reference(case, jit_compile=False)
    for transposed in (False, True):
        peer = jaxopt_peer.Jaxopt(case, transposed)
        for solver in ("CG",) if transposed else jaxopt_peer.SOLVERS:
            assert reference.error(peer.from_solution(reference.w, solver, 40)()) < 1e-4
        assert reference.error(peer.hypergradient("CG", 500, 40)()) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("case", [LOGISTIC, small_cleaning()], ids=lambda case: case.name)
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_torch_trains_to_the_same_place(case):
    """hypertorch itself is not needed: its functions are those of `GradientDescent` and a solver."""

    class Hypergrad:
        @staticmethod
        def GradientDescent(loss, rate):  # noqa: N802
            return loss, rate

    made = problems.functions(case, tf.float32)
    p = problems.problem(case, made, 50)
    ours = p.dynamics.params(p.train(*problems.start(case))).numpy()
    for transposed in (False, True):
        (theirs,) = hypertorch_peer.Hypertorch(Hypergrad, case, 0.1, transposed).trained(50)
        np.testing.assert_allclose(theirs.detach().numpy(), ours, atol=1e-5)


def test_each_method_is_the_engine_with_its_setting():
    made = problems.functions(LOGISTIC, tf.float32)

    def settings(name, number=None):
        (method,) = [m for m in METHODS if m.name == name]
        engine = measure.rfho2_engine(Task("", method, 100, number), problems.problem(LOGISTIC, made, 100))
        wanted = ("method", "checkpoints", "truncate", "condition", "solver", "iterations", "tolerance")
        return {key: engine.settings[key] for key in wanted if engine.settings.get(key) is not None}

    implicit = {"method": "implicit", "iterations": 7, "tolerance": 0.0}
    assert settings("reverse") == {"method": "reverse"}
    assert settings("checkpointed") == {"method": "reverse", "checkpoints": 20}
    assert settings("truncated", 7) == {"method": "reverse", "truncate": 7}
    assert settings("forward") == {"method": "forward"}
    assert settings("implicit: CG", 7) == {**implicit, "condition": "gradient", "solver": "cg"}
    assert settings("implicit: K steps", 7) == {**implicit, "condition": "step", "solver": "fixed_point"}

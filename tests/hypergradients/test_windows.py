"""Real time in reverse mode and with a discount, compared with the recursion in NumPy, forward mode and golden numbers."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.checkpoints import assert_identical, broken, problem, run
from tests.support.problems import assert_agree

DELTA, WINDOWS = 3, 3
PARAMS = np.array([0.9, -0.4])
HYPERS = {"lr": 0.05, "mu": 0.5, "l2": 0.02, "shift": [0.1, -0.2]}


class Case(NamedTuple):
    """Momentum on sum cosh(w - b) + l2 |w|^2, with b = (t + 1) / 10; the objective is sum cosh(w - c), c = (k + 1) / 5."""

    every: int | None = None  # of a running cost, which has the L2 term too
    several: bool = False  # that running cost tunes l2 only, the objective at the end the other hypers
    episodes: bool = False  # b = (t + 1 + k) / 10
    streamed: bool = False
    shifted: bool = False  # w_0 = PARAMS + shift

    def hypers(self, k):
        """They change from window to window."""
        names = [name for name in HYPERS if name != "shift" or self.shifted]
        return {name: np.array(HYPERS[name]) * (1 + 0.2 * k) for name in names}


CASES = {
    "plain": Case(),
    "running": Case(every=2),  # among others at t = 6, the border of two windows
    "several": Case(every=1, several=True),
    "episodes": Case(episodes=True),
    "streamed": Case(streamed=True),
    "shifted": Case(shifted=True),
}


def loss(w, hypers, batch):
    return tf.reduce_sum(tf.cosh(w - batch)) + hypers["l2"] * tf.reduce_sum(w**2)


def objective(w, hypers, batch):
    return tf.reduce_sum(tf.cosh(w - batch))


def problem_of(case, dynamics=None):
    """The case as a problem."""
    dynamics = dynamics or rf.momentum(loss, "lr", "mu")
    if case.shifted:
        dynamics = dynamics._replace(init=lambda w, hypers, init=dynamics.init: init(w + hypers["shift"], hypers))
    batches = lambda t: tf.cast(t + 1, tf.float64) / 10  # noqa: E731
    if case.episodes:
        batches = lambda t, k: tf.cast(t + 1 + k, tf.float64) / 10  # noqa: E731
    if case.streamed:
        stacked = tf.stack([batches(t) for t in range(DELTA * WINDOWS)])
        batches = rf.batches.stream(tf.data.Dataset.from_tensor_slices(stacked))
    fn = objective if case.every is None else rf.RunningCost(loss, case.every)
    if case.several:
        fn = {"end": rf.Objective(objective, ["lr", "mu"]), "running": rf.Objective(fn, ["l2"])}
    return rf.Problem(dynamics, fn, None, batches, lambda k: tf.cast(k + 1, tf.float64) / 5)


def recursion(case, discount, carry):
    """The values and hypergradients of all windows, by Z_t = discount A_t Z_{t-1} + B_t in NumPy."""
    columns = {"lr": 0, "mu": 1, "l2": 2, "shift": slice(3, 5)}
    w, v = PARAMS + case.shifted * np.array(HYPERS["shift"]), np.zeros(2)
    dw, dv = np.zeros((2, 5)), np.zeros((2, 5))
    dw[:, 3:] = np.eye(2)
    for k in range(WINDOWS):
        h, c = case.hypers(k), (k + 1) / 5
        value, running = 0.0, np.zeros(5)
        for t in range(k * DELTA, (k + 1) * DELTA):
            b, (dw, dv) = (t + 1 + case.episodes * k) / 10, (discount * dw, discount * dv)
            dv = h["mu"] * dv + (np.cosh(w - b) + 2 * h["l2"])[:, None] * dw
            dv[:, 1] += v
            dv[:, 2] += 2 * w
            v = h["mu"] * v + np.sinh(w - b) + 2 * h["l2"] * w
            dw = dw - h["lr"] * dv
            dw[:, 0] -= v
            w = w - h["lr"] * v
            if case.every and (t + 1) % case.every == 0:
                value += np.sum(np.cosh(w - c)) + h["l2"] * np.sum(w**2)
                running += (np.sinh(w - c) + 2 * h["l2"] * w) @ dw + np.eye(5)[2] * np.sum(w**2)
        end, gradient = np.sum(np.cosh(w - c)), np.sinh(w - c) @ dw
        if case.several:
            gradient[2], value = running[2], {"end": end, "running": value}
        elif case.every:
            gradient = running
        else:
            value = end
        yield value, {name: gradient[columns[name]] for name in h}
        dw, dv = carry * dw, carry * dv


def windows(case, dynamics=None, jit_compile=False, **settings):
    """The hypergradients of all windows, by the engine."""
    engine = rf.real_time(problem_of(case, dynamics), DELTA, jit_compile=jit_compile, **settings)
    carry = engine.start(tf.constant(PARAMS), case.hypers(0))
    for k in range(WINDOWS):
        assert int(carry.t) == k * DELTA
        hypergradient, carry = engine.advance(carry, case.hypers(k), k)
        yield hypergradient


def assert_recursion(case, discount, carry, **settings):
    """The engine gives what the recursion gives."""
    expected = recursion(case, discount, carry)
    for hypergradient, numbers in zip(windows(case, discount=discount, carry=carry, **settings), expected, strict=True):
        close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)  # noqa: E731
        tf.nest.map_structure(close, (hypergradient.value, hypergradient.grads), numbers)


# Each engine follows the recursion


DISCOUNTS = {"plain": 1.0, "running": 0.7, "several": 0.7, "episodes": 1.0, "streamed": 1.0, "shifted": 0.7}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ("several", "episodes", "shifted") else pytest.mark.slow) for n in CASES]
)
def test_a_window_in_reverse(name):
    assert_recursion(CASES[name], DISCOUNTS[name], carry=False, mode="reverse")


@pytest.mark.parametrize("checkpoints", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["several", *(pytest.param(n, marks=pytest.mark.slow) for n in CASES if n != "several")])
def test_a_window_in_reverse_with_few_states(name, checkpoints):
    assert_recursion(CASES[name], DISCOUNTS[name], carry=False, mode="reverse", checkpoints=checkpoints)


@pytest.mark.parametrize(("name", "carry"), [("several", True), ("shifted", False)])
def test_a_discount_in_forward_mode(name, carry):
    assert_recursion(CASES[name], 0.7, carry)


@pytest.mark.parametrize("name", ["running", "several", "streamed", pytest.param("shifted", marks=pytest.mark.slow)])
def test_one_step(name):
    assert_recursion(CASES[name], 0, carry=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [{"discount": 0.0}, {"discount": 0.7}, {"discount": 1.0}, {"discount": 1.0, "checkpoints": 2}]
)
@pytest.mark.parametrize("name", CASES)
def test_windows_under_xla(name, more):
    assert_recursion(CASES[name], carry=False, mode="reverse", jit_compile=True, **more)


def test_a_window_of_adam_in_reverse_is_forward_mode_without_carry():
    case, dynamics = Case(), rf.adam(loss, "lr", beta_1="mu", epsilon=1e-2)
    pairs = zip(windows(case, dynamics, mode="reverse"), windows(case, dynamics, carry=False), strict=True)
    for reverse, forward in pairs:
        assert_agree(reverse.grads, forward.grads, rtol=1e-12)
        np.testing.assert_allclose(reverse.value, forward.value, rtol=1e-12)
        tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, 1e-12), reverse.state, forward.state)


GOLDEN = {  # derivatives by lr and l2 after steps 1, 2, 3, computed independently
    0.0: [(-0.6271728839, -0.26882809858), (-0.29079425131, -0.19971874072), (-0.25083228307, -0.15857037711)],
    0.5: [(-0.6271728839, -0.26882809858), (-0.57325809059, -0.31605396811), (-0.50217582850, -0.29409023703)],
    1.0: [(-0.6271728839, -0.26882809858), (-0.85572192987, -0.43238919550), (-0.98381601838, -0.52818133102)],
}
XLA_TOO = [(0.0, True), (0.5, False), (1.0, False)]


@pytest.mark.parametrize(
    ("discount", "jit_compile"),
    [*XLA_TOO, *(pytest.param(mu, not jit, marks=pytest.mark.slow) for mu, jit in XLA_TOO)],
)
def test_golden_numbers(discount, jit_compile):
    """Gradient descent on robust regression with three minibatches, a hypergradient after each step."""
    rng = np.random.RandomState(70)
    x, y, xv, yv, w0 = (tf.constant(rng.randn(*shape)) for shape in ((3, 4, 3), (3, 4), (6, 3), (6,), (3,)))
    error = lambda w, x, y: tf.reduce_mean(tf.math.log(tf.cosh(tf.linalg.matvec(x, w) - y)))  # noqa: E731
    loss = lambda w, hypers, batch: error(w, *batch) + hypers["l2"] / 2 * tf.reduce_sum(w**2)  # noqa: E731
    objective = lambda w, hypers, batch: error(w, xv, yv)  # noqa: E731
    regression = rf.Problem(rf.gradient_descent(loss, "lr"), objective, None, lambda t: (x[t], y[t]))
    engine = rf.real_time(regression, 1, jit_compile=jit_compile, discount=discount)
    hypers = {"lr": 0.3, "l2": 0.05}
    carry = engine.start(w0, hypers)
    for k, expected in enumerate(GOLDEN[discount]):
        hypergradient, carry = engine.advance(carry, hypers, k)
        np.testing.assert_allclose([hypergradient.grads["lr"], hypergradient.grads["l2"]], expected, rtol=1e-9)
    np.testing.assert_allclose(hypergradient.value, 0.5731951522939226, rtol=1e-12)


# Windows of unequal length


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("plain", {"discount": 0.9}),
        ("running", {"mode": "reverse", "checkpoints": 1}),
        pytest.param("streamed", {"mode": "reverse", "discount": 0.9}, marks=pytest.mark.slow),
        pytest.param("plain", {"discount": 0}, marks=pytest.mark.slow),
        pytest.param("streamed", {}, marks=pytest.mark.slow),
    ],
)
def test_windows_of_a_fractional_length_are_those_of_both_lengths_in_turn(name, settings):
    """7 / 2: three steps and four."""
    case = CASES[name]

    def advanced(engines):
        carry, hypergradients = engines[0].start(PARAMS, case.hypers(0)), []
        for k, engine in enumerate(engines):
            hypergradient, carry = engine.advance(carry, case.hypers(k), k)
            hypergradients.append(hypergradient)
        return hypergradients, carry

    one = problem_of(case)
    whole = rf.real_time(one, Fraction(7, 2), jit_compile=False, **settings)
    expected, end = advanced(
        [rf.real_time(problem_of(case) if not case.streamed else one, n, jit_compile=False, **settings) for n in (3, 4)]
    )
    if case.streamed:
        whole = rf.real_time(problem_of(case), Fraction(7, 2), jit_compile=False, **settings)
    hypergradients, carry = advanced([whole, whole])
    assert int(carry.t) == int(end.t) == 7
    for actual, reference in zip(hypergradients, expected, strict=True):
        np.testing.assert_allclose(actual.value, reference.value, rtol=1e-13)
        assert_agree(actual.grads, reference.grads, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_windows_of_a_fractional_length_under_xla(mode):
    engines = [rf.real_time(problem_of(CASES["plain"]), Fraction(7, 2), mode=mode, jit_compile=jit) for jit in (False, True)]
    grads = []
    for engine in engines:
        carry = engine.start(PARAMS, CASES["plain"].hypers(0))
        for k in range(3):
            hypergradient, carry = engine.advance(carry, CASES["plain"].hypers(k), k)
        grads.append(hypergradient.grads)
    assert_agree(grads[0], grads[1], rtol=1e-10)


# What is carried and reported


def test_one_step_carries_no_sensitivity_and_reports_the_adjoint_at_the_last_step():
    case = CASES["shifted"]
    engine = rf.real_time(problem_of(case), 1, jit_compile=False, discount=0)
    hypergradient, carry = engine.advance(engine.start(tf.constant(PARAMS), case.hypers(0)), case.hypers(0), 0)
    assert [leaf.shape.as_list() for leaf in tf.nest.flatten(carry)] == [[2], [2], []]
    expected = np.linalg.norm(np.sinh(hypergradient.state.params - 0.2))
    np.testing.assert_allclose(hypergradient.norms["adjoint"], expected, rtol=1e-12)


def test_params_are_carried_only_for_an_initialisation_that_depends_on_the_hypers():
    for name, carried in {"plain": (), "shifted": PARAMS}.items():
        engine = rf.real_time(problem_of(CASES[name]), DELTA, jit_compile=False, mode="reverse")
        carry = engine.start(tf.constant(PARAMS), CASES[name].hypers(0))
        tf.nest.map_structure(np.testing.assert_array_equal, carry.params, carried)
        assert engine.forget(carry) is carry


@pytest.mark.parametrize("discount", [1.0, pytest.param(0.0, marks=pytest.mark.slow)])
def test_an_interrupted_run_resumes_bit_identically(discount, tmp_path):
    engine = rf.real_time(problem(rf.adam, steps=None), 2, jit_compile=False, mode="reverse", discount=discount)
    broken(3, tmp_path, case=engine)
    assert_identical(run(tmp_path, case=engine), run(None, case=engine))


def test_a_weight_for_each_of_hundreds_of_examples():
    rng = np.random.default_rng(0)
    x, w_true = rng.normal(size=(300, 5)), rng.normal(size=5)
    wrong = np.arange(300) < 120
    y = np.where(wrong, -1.0, 1.0) * (x @ w_true)
    batches = rf.batches.shuffled((tf.constant(x), tf.constant(y), tf.range(300)), 30, seed=0)

    def loss(w, hypers, batch):
        x, y, rows = batch
        return tf.reduce_mean(tf.gather(hypers["weights"], rows) * (tf.linalg.matvec(x, w) - y) ** 2)

    objective = lambda w, hypers, batch: tf.reduce_sum((w - w_true) ** 2)  # noqa: E731
    engine = rf.real_time(
        rf.Problem(rf.momentum(loss, 0.02, 0.5), objective, None, batches), 10, jit_compile=False, mode="reverse"
    )
    tuner = rf.HyperOptimizer(engine, rf.projected_adam(0.1, {"weights": rf.Box(0.0, 1.0)}))
    weights = tuner.run(tf.zeros(5, tf.float64), {"weights": np.full(300, 0.5)}, 20).hypers["weights"].numpy()
    assert np.mean(weights[wrong]) < 0.2 < 0.8 < np.mean(weights[~wrong])


# Arguments


def test_arguments_are_checked_and_recorded():
    toy = problem(steps=None)
    for discount in (-0.1, 1.1, np.nan, True, "0.5"):
        with pytest.raises(ValueError, match=r"discount is .* from 0 to 1"):
            rf.real_time(toy, 2, discount=discount)
    with pytest.raises(ValueError, match="mode is 'backward'; choose 'forward' or 'reverse'"):
        rf.real_time(toy, 2, mode="backward")
    with pytest.raises(ValueError, match=r"carry is True, but mode is 'reverse'.*hyper_batch larger"):
        rf.real_time(toy, 2, carry=True, mode="reverse")
    default = {
        "method": "real_time",
        "hyper_batch": 2,
        "carry": True,
        "jit_compile": None,
        "discount": 1.0,
        "mode": "forward",
    }
    assert rf.real_time(toy, 2).settings == default
    reverse = default | {"carry": False, "discount": 0.5, "mode": "reverse"}
    assert rf.real_time(toy, 2, discount=np.float32(0.5), mode="reverse").settings == reverse

"""Implicit hypergradients: independent numbers, every solver, both conditions, and what is said without a solution."""

import dataclasses
import functools
import itertools
import warnings

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.hypergradients.check_engine import compare_engine
from tests.support import family
from tests.support.family import GOLDEN

EXACT = {"tolerance": 1e-14, "iterations": 500, "jit_compile": False}


def problem(case, steps=400, dynamics=None, rate=0.1):
    return rf.Problem(dynamics or rf.gradient_descent(case.loss, rate), case.objective, steps)


def hypergradient(case, steps=400, dynamics=None, rate=0.1, **settings):
    engine = rf.implicit(problem(case, steps, dynamics, rate), **{**EXACT, **settings})
    result = engine(case.params, case.hypers)
    return result, result.norms


@functools.cache
def solved():
    """The solution of ridge regression, from which nothing moves."""
    case = family.ridge()
    return case, problem(case).train(case.params, {"rho": tf.constant(case.hypers["rho"])})


def close(actual, expected, rtol=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * np.max(np.abs(expected)))


QUICK = [("gradient", "cg"), ("gradient", "bicgstab"), ("step", "normal"), ("step", "fixed_point")]
QUICK_XLA = [("gradient", "cg"), ("step", "fixed_point")]


@pytest.mark.parametrize(
    ("condition", "solver", "jit_compile"),
    [
        pytest.param(
            *pair,
            jit,
            id=f"{'-'.join(pair)}-{'jit' if jit else 'graph'}",
            marks=() if pair in (QUICK_XLA if jit else QUICK) else pytest.mark.slow,
        )
        for pair in itertools.product(("gradient", "step"), ("cg", "bicgstab", "normal", "fixed_point"))
        for jit in (False, True)
    ],
)
def test_every_solver_has_the_golden_hypergradient_of_ridge_regression(condition, solver, jit_compile):
    result, norms = hypergradient(family.ridge(), condition=condition, solver=solver, jit_compile=jit_compile)
    golden = GOLDEN["ridge_exp"]
    close(result.grads["rho"], golden["g"], 1e-9)
    close(result.value, golden["E"], 1e-9)
    close(result.state, golden["w"], 1e-9)
    assert float(norms["linear residual"]) < 1e-12
    assert abs(float(norms["predicted change"])) < 1e-12


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["graph", "jit"])
@pytest.mark.parametrize(
    "case",
    ["logistic", "lasso", "momentum", *(pytest.param(case, marks=pytest.mark.slow) for case in ("cleaning", "equilibrium"))],
)
def test_golden_hypergradients(case, jit_compile):
    settings = {"jit_compile": jit_compile, "steps": 3000}
    if case == "logistic":
        result, _ = hypergradient(family.logistic(), rate=0.05, **settings)
        close(result.grads["alpha"], GOLDEN["logistic_l2"]["g"])
        close(result.value, GOLDEN["logistic_l2"]["E"])
    elif case == "cleaning":
        result, _ = hypergradient(family.cleaning(), rate=1.0, **settings)
        close(result.grads["weights"], GOLDEN["cleaning_softmax"]["g"])
    elif case == "momentum":
        dynamics = rf.momentum(family.ridge().loss, 0.1, 0.5)
        for condition in ("gradient", "step"):
            result, _ = hypergradient(family.ridge(), dynamics=dynamics, condition=condition, **settings)
            close(result.grads["rho"], GOLDEN["momentum_fixed_point"]["g"])
    elif case == "equilibrium":
        dynamics, model = family.equilibrium()
        for solver in ("bicgstab", "normal"):
            result, _ = hypergradient(model, dynamics=dynamics, solver=solver, **settings)
            close(result.grads["b"], GOLDEN["tanh_equilibrium"]["g_b"])
            close(result.grads["M"], GOLDEN["tanh_equilibrium"]["g_M"])
    else:
        dynamics, model = family.lasso()
        result, _ = hypergradient(model, dynamics=dynamics, **settings)
        close(result.grads["a"], GOLDEN["lasso_ista"]["g"])
        assert np.count_nonzero(result.grads["a"]) == np.count_nonzero(result.state) == 3


def assert_partial_sums(neumann, cg):
    """The golden partial sums of ridge regression, by numbers of iterations."""
    case, state = solved()
    start = case._replace(params=state)
    for iterations in neumann:
        result, norms = hypergradient(start, 1, condition="step", solver="fixed_point", iterations=iterations)
        close(result.grads["rho"], GOLDEN["ridge_exp"][f"g_neumann_{iterations - 1}"])
        assert int(norms["products"]) == iterations - 1
    for iterations in cg:
        result, _ = hypergradient(start, 1, solver="cg", iterations=iterations)
        close(result.grads["rho"], GOLDEN["ridge_exp"][f"g_cg_{iterations}"])


@pytest.mark.filterwarnings("ignore:rf.implicit")
def test_few_iterations_give_the_golden_partial_sums():
    assert_partial_sums(neumann=(6,), cg=(2,))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:rf.implicit")
def test_more_iterations_and_other_dynamics_give_the_golden_partial_sums():
    assert_partial_sums(neumann=(1, 2, 51), cg=(1, 3))
    case, state = solved()
    start = case._replace(params=state)
    dynamics = rf.momentum(case.loss, 0.1, 0.5)
    for iterations, name in ((2, "g_neumann_1"), (6, "g_neumann_5")):
        result, _ = hypergradient(start, 1, dynamics, condition="step", solver="fixed_point", iterations=iterations)
        close(result.grads["rho"], GOLDEN["momentum_fixed_point"][name])
    dynamics, model = family.equilibrium()
    for iterations, name in ((1, "g_b_neumann_0"), (2, "g_b_neumann_1"), (6, "g_b_neumann_5")):
        result, _ = hypergradient(model, 400, dynamics, solver="fixed_point", iterations=iterations)
        close(result.grads["b"], GOLDEN["tanh_equilibrium"][name])


@pytest.mark.parametrize(
    "dynamics", [rf.momentum, pytest.param(rf.nesterov, marks=pytest.mark.slow)], ids=["momentum", "nesterov"]
)
@pytest.mark.filterwarnings("ignore:rf.implicit")
def test_reverse_from_a_solved_state_is_the_partial_sum(dynamics):
    case, state = solved()
    for steps in (1, 5):
        short = problem(case, steps, dynamics(case.loss, 0.1, 0.5))
        engine = rf.implicit(
            dataclasses.replace(short, steps=1), "step", "fixed_point", steps, jit_compile=False, tolerance=0
        )
        expected = rf.reverse(short, jit_compile=False)(state, case.hypers).grads["rho"]
        close(engine(state, case.hypers).grads["rho"], expected, 1e-12)


def test_away_from_a_solution_it_predicts_the_change_and_warns_once():
    case, golden = family.ridge(), GOLDEN["ridge_exp"]
    engine = rf.implicit(problem(case, 7), jit_compile=False, tolerance=1e-13)
    with pytest.warns(
        UserWarning, match=r"hyper-iteration 3: the training is not at a solution.*\(30.4 %\).*warm_start=True"
    ):
        result = engine(case.params, case.hypers, k=3)
    close(result.grads["rho"], golden["g_implicit_at_w7"])
    close(result.value, golden["E7"])
    close(result.norms["residual"], golden["residual7"])
    close(result.norms["predicted change"], golden["change_of_E_predicted_at_w7"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine(case.params, case.hypers, k=4)
    _, norms = hypergradient(case, 40)
    close(norms["predicted change"], golden["change_of_E_predicted_at_w40"])
    _, norms = hypergradient(case, 40, condition="step")
    close(norms["predicted change"], golden["change_of_E_predicted_at_w40"], 1e-4)


@pytest.mark.filterwarnings("ignore:rf.implicit")
@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["graph", "jit"])
def test_a_warm_start_has_the_golden_hypergradients(jit_compile):
    case = family.ridge()
    settings = {"iterations": 3, "tolerance": 0.0, "warm_start": True, "jit_compile": jit_compile}
    engine = rf.implicit(problem(case, 2), "step", "fixed_point", **settings)
    carry = engine.start(case.params, case.hypers)
    for k, expected in enumerate(GOLDEN["warm_start_ridge"]["g"]):
        result, carry = engine.advance(carry, case.hypers, k)
        close(result.grads["rho"], expected)
    assert int(carry.t) == 6
    forgotten = engine.forget(carry)
    assert not np.any(forgotten.adjoints[0])
    np.testing.assert_array_equal(forgotten.state, carry.state)


@pytest.mark.filterwarnings("ignore:rf.implicit")
def test_a_warm_run_converges_to_the_solution_and_resumes_bit_identically(tmp_path):
    case = family.ridge()
    engine, fresh = (rf.implicit(problem(case, 5), iterations=2, warm_start=True, jit_compile=False) for _ in range(2))
    run, resume = (
        functools.partial(rf.HyperOptimizer(one, rf.projected_adam(0.01)).run, case.params, case.hypers)
        for one in (engine, fresh)
    )
    whole = run(iterations=8)
    run(iterations=3, checkpoint_dir=tmp_path)
    resumed = resume(iterations=8, checkpoint_dir=tmp_path)
    np.testing.assert_array_equal(resumed.hypers["rho"], whole.hypers["rho"])
    np.testing.assert_array_equal(resumed.state, whole.state)
    assert {"residual", "predicted change", "unsettled", "linear residual", "products", "curvature"} <= set(whole.history[0])
    carry = engine.start(case.params, case.hypers)
    for k in range(80):
        result, carry = engine.advance(carry, case.hypers, k)
    close(result.grads["rho"], GOLDEN["ridge_exp"]["g"], 1e-4)


def test_training_ends_when_it_has_settled():
    case = family.ridge()
    engine = rf.implicit(problem(case, 10_000), settled=lambda k: 1e-2 * 0.1**k, warm_start=True, jit_compile=False)
    carry = engine.start(case.params, case.hypers)
    times = []
    for k in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, carry = engine.advance(carry, case.hypers, k)
        times.append(int(carry.t))
    assert 5 < times[0] < times[1] < times[2] < 200
    assert engine.settings["settled"] == pytest.approx([1e-2, 1e-3, 1e-4])


def test_several_objectives_have_an_adjoint_each():
    case = family.ridge()
    penalty = lambda w, hypers, batch: tf.reduce_sum(w**2) * hypers["direct"]  # noqa: E731
    objectives = {"validation": rf.Objective(case.objective, ["rho"]), "size": rf.Objective(penalty, ["direct"])}
    both = rf.Problem(rf.gradient_descent(case.loss, 0.1), objectives, 400)
    engine = rf.implicit(both, **EXACT)
    result = engine(case.params, case.hypers | {"direct": 2.0})
    close(result.grads["rho"], GOLDEN["ridge_exp"]["g"], 1e-9)
    close(result.grads["direct"], np.sum(GOLDEN["ridge_exp"]["w"] ** 2), 1e-9)
    assert int(result.norms["products"]) == 10


def test_minibatches_the_next_one_for_each_term_of_the_series():
    """J_i = (w - h x_i)^2 / 2: the Hessian is 1 on every batch, and so the sum of the series with rate 0.5 is known."""
    x = tf.constant([1.0, 2.0, 3.0], tf.float64)
    batches = lambda t: tf.gather(x, t % 3)  # noqa: E731
    loss = lambda w, hypers, batch: 0.5 * batch * (w - hypers["h"]) ** 2  # noqa: E731
    one = rf.Problem(rf.gradient_descent(loss, 0.1), lambda w, hypers, batch: 0.5 * w**2, 30, batches)
    engine = rf.implicit(one, "step", "fixed_point", iterations=3, jit_compile=False)
    assert engine.settings["tolerance"] is None
    result = engine(tf.constant(0.0, tf.float64), {"h": 2.0})
    w = float(result.state)
    factors = [1 - 0.1 * float(batches(30 + i)) for i in range(4)]
    v = w * (1 + factors[1])  # iteration 1 starts from v = dE/dw
    v = w + factors[2] * v
    close(result.grads["h"], 0.1 * float(batches(30)) * v, 1e-12)
    full = rf.implicit(one, "step", "bicgstab", batches=lambda t: x[1], jit_compile=False, tolerance=1e-12)
    close(full(tf.constant(0.0, tf.float64), {"h": 2.0}).grads["h"], w, 1e-10)


@pytest.mark.parametrize("solver", ["cg", pytest.param("bicgstab", marks=pytest.mark.slow)])
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_float32_objectives_of_any_size(scale, solver):
    result, _ = hypergradient(family.ridge(tf.float32, scale), solver=solver, tolerance=1e-6)
    close(result.grads["rho"] / scale, GOLDEN["ridge_exp"]["g"], 1e-4)


def test_an_objective_that_does_not_depend_on_the_weights_takes_no_product():
    case = family.ridge()._replace(
        objective=lambda w, hypers, batch: tf.reduce_sum(hypers["rho"] ** 2) + 0 * tf.reduce_sum(w)
    )
    result, norms = hypergradient(case)
    np.testing.assert_allclose(result.grads["rho"], 2 * case.hypers["rho"])
    assert int(norms["products"]) == 0


def test_an_identity_hessian_takes_one_product():
    loss = lambda w, hypers, batch: 0.5 * tf.reduce_sum((w - hypers["h"]) ** 2)  # noqa: E731
    case = family.Solvable(loss, lambda w, h, b: tf.reduce_sum(w**2), tf.zeros(2, tf.float64), {"h": np.array([1.0, 2.0])})
    result, norms = hypergradient(case, 100, rate=1.0, tolerance=1e-4)
    np.testing.assert_allclose(result.grads["h"], [2.0, 4.0])
    assert int(norms["products"]) == 1


def test_an_indefinite_hessian_is_reported():
    loss = lambda w, hypers, batch: hypers["h"] * (w[0] ** 2 - w[1] ** 2) + w[0]  # noqa: E731
    case = family.Solvable(loss, lambda w, h, b: w[0] + 2 * w[1], tf.zeros(2, tf.float64), {"h": 1.0})
    engine = rf.implicit(problem(case, 60), jit_compile=False)
    with pytest.warns(UserWarning, match="curvature .* not at a minimum.*damping"):
        result = engine(case.params, case.hypers)
    assert float(result.norms["curvature"]) <= 0


@pytest.mark.parametrize(
    ("solver", "remedy"),
    [
        ("cg", "more iterations"),
        ("bicgstab", "solver='normal'"),
        pytest.param("fixed_point", "horizon", marks=pytest.mark.slow),
    ],
)
def test_an_unsolved_system_is_reported_with_what_to_do(solver, remedy):
    case, state = solved()
    engine = rf.implicit(problem(case, 1), solver=solver, iterations=1, tolerance=1e-8, jit_compile=False)
    with pytest.warns(UserWarning, match=f"'{solver}' left a residual of .*{remedy}"):
        engine(state, case.hypers)


@pytest.mark.parametrize("model", ["equilibrium", "momentum"])
def test_cg_is_refused_on_a_matrix_that_is_not_symmetric(model):
    if model == "equilibrium":
        dynamics, case = family.equilibrium()
    else:
        dynamics, case = rf.momentum(family.ridge().loss, 0.1, 0.5), family.ridge()
    with pytest.raises(ValueError, match=r"not symmetric.*solver='bicgstab'"):
        hypergradient(case, 200, dynamics, condition="step", solver="cg")


@pytest.mark.parametrize("condition", [pytest.param("gradient", marks=pytest.mark.slow), "step"])
def test_damping_solves_the_damped_system(condition):
    case, state = solved()
    result, _ = hypergradient(case._replace(params=state), 1, condition=condition, damping=0.5)
    w = state.numpy()
    hessian = 2 * (lambda x: x.T @ x / 12)(family.regression_data(10, 12, 8, 5)[0]) + 2 * np.diag(np.exp(case.hypers["rho"]))
    xv, yv = family.regression_data(10, 12, 8, 5)[2:]
    b = 2 * xv.T @ (xv @ w - yv) / 8
    matrix = hessian if condition == "gradient" else 0.1 * hessian
    v = np.linalg.solve(matrix + 0.5 * np.eye(5), b)
    cross = -2 * np.exp(case.hypers["rho"]) * w * (1 if condition == "gradient" else 0.1)
    close(result.grads["rho"], cross * v, 1e-9)


def test_hypers_that_do_not_move_the_solution_are_refused_by_name():
    case = family.ridge()
    for dynamics, name in (
        (rf.gradient_descent(case.loss, "lr"), "lr"),
        (rf.momentum(case.loss, 0.1, "mu"), "mu"),
        (rf.gradient_descent(case.loss, 0.1)._replace(init=lambda w, h: w + h["shift"]), "shift"),
    ):
        with pytest.raises(ValueError, match=f"'{name}' does not affect the solution.*rf.reverse"):
            hypergradient(case._replace(hypers=case.hypers | {name: 0.1}), dynamics=dynamics)


def test_what_has_no_meaning_at_a_solution_is_refused():
    case = family.ridge()
    dynamics = rf.gradient_descent(case.loss, 0.1)
    with pytest.raises(ValueError, match=r"objective: an rf\.RunningCost"):
        rf.implicit(rf.Problem(dynamics, rf.RunningCost(case.objective), 5))
    with pytest.raises(ValueError, match="steps is None"):
        rf.implicit(rf.Problem(dynamics, case.objective, None))
    stream = rf.batches.stream(tf.data.Dataset.range(3).repeat())
    with pytest.raises(TypeError, match="batches is a stream"):
        rf.implicit(rf.Problem(dynamics, case.objective, 5, stream))
    adamw = rf.Problem(rf.adamw(case.loss, 0.1, 0.01), case.objective, 5)
    with pytest.raises(ValueError, match=r"condition is 'gradient', but.*rf\.adamw.*condition='step'"):
        rf.implicit(adamw, condition="gradient")
    assert rf.implicit(adamw).settings["condition"] == "step"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"condition": "hessian"}, "condition is 'hessian'; choose"),
        ({"solver": "lu"}, "solver is 'lu'; choose"),
        ({"iterations": 0}, "iterations is 0"),
        ({"tolerance": -1.0}, "tolerance is -1.0"),
        ({"settled": "soon"}, "settled is 'soon'"),
        ({"damping": lambda k: 0.1}, "damping is"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_arguments_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        rf.implicit(problem(family.ridge(), 5), **settings)


@pytest.mark.parametrize(
    "optimiser", ["nesterov", "adam", *(pytest.param(o, marks=pytest.mark.slow) for o in ("rmsprop", "adagrad"))]
)
def test_the_optimiser_does_not_matter_to_the_condition_of_the_gradient(optimiser):
    case, state = solved()
    settings = {"nesterov": (0.1, 0.9)}.get(optimiser, (1e-9,))
    dynamics = getattr(rf, optimiser)(case.loss, *settings)
    result, _ = hypergradient(case._replace(params=state), 1, dynamics)
    close(result.grads["rho"], GOLDEN["ridge_exp"]["g"])


@pytest.mark.slow
def test_the_check_compares_with_differences_of_the_solved_training():
    case = family.ridge()
    whole, short = problem(case, 150), problem(case, 12)
    check = rf.check_hypergradient(whole, case.params, case.hypers, engine=rf.implicit(whole, tolerance=1e-10))
    assert check.ok, check
    assert [row.engine_error < 1e-6 for row in check.table] == [True]
    assert "(the engine)" in str(check)
    with pytest.raises(ValueError, match="engine was made for another problem"):
        rf.check_hypergradient(whole, case.params, case.hypers, engine=rf.implicit(short))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:rf.implicit")
def test_the_check_takes_any_engine_and_says_what_is_wrong():
    case = family.ridge()
    short = problem(case, 6)
    messages = [
        compare_engine(engine, case.params, {"rho": tf.constant(case.hypers["rho"])}, rtol=1e-6, seed=0).message
        for engine in (
            rf.real_time(short, 4, jit_compile=False),
            rf.reverse(short, truncate=2, jit_compile=False),
            rf.implicit(short, jit_compile=False),
        )
    ]
    assert messages[0] == ""
    assert messages[1].startswith("the engine, reverse, disagrees with finite differences for rho")
    assert "implicit, disagrees with finite differences for rho" in messages[2]
    assert "% of the objective away from a solution" in messages[2]

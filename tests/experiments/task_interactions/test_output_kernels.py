"""The multitask methods that we compare with: steps minimise, methods reach the primal minimum, settings are chosen."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from experiments.task_interactions import output_kernels

STRENGTH, COST = 0.3, 2.0


def small(seed=0, n=8, d=4, tasks=3):
    """Features, Gram matrix, targets, signs."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, x @ x.T, rng.normal(size=(n, tasks)), np.sign(rng.normal(size=(n, tasks)))


def blobs(per_class, seed=0, classes=4, noise=1.0):
    """Features and labels: rows scattered around one mean per class."""
    means = np.random.default_rng(0).normal(size=(classes, 6))
    labels = np.repeat(np.arange(classes, dtype=np.uint8), per_class)
    return means[labels] + noise * np.random.default_rng(seed).normal(size=(len(labels), 6)), labels


def parts(**changes):
    return [blobs(per_class, seed, **changes) for per_class, seed in ((5, 1), (5, 2), (100, 3))]


def least(loss, x, tasks, p, seed):
    """The minimum over W and T of loss(X W) + tr(W T^-1 W') / 2 + |T|_p^p / p, with T = M M' and W = V M'."""
    lower = np.tril_indices(tasks)

    def value(flat):
        v, m = flat[: x.shape[1] * tasks].reshape(-1, tasks), np.zeros((tasks, tasks))
        m[lower] = flat[v.size :]
        return loss(x @ v @ m.T) + np.sum(v**2) / 2 + np.sum(np.abs(m @ m.T) ** p) / p

    start = np.random.default_rng(seed).normal(size=x.shape[1] * tasks + len(lower[0]))
    return minimize(value, start, method="BFGS", options={"gtol": 1e-6}).fun


def penalty(x, a, kernel, p):
    """The penalty of `least`, computed from W itself."""
    w = x.T @ a @ kernel
    return np.trace(w @ np.linalg.solve(kernel, w.T)) / 2 + np.sum(np.abs(kernel) ** p) / p


def test_the_coefficient_step_is_a_minimiser():
    _, gram, targets, _ = small()
    factor = np.random.default_rng(1).normal(size=(3, 3))
    kernel = factor @ factor.T
    a = output_kernels.coefficient_step(np.linalg.eigh(gram), targets, STRENGTH, kernel)
    np.testing.assert_allclose(gram @ a @ kernel + STRENGTH * a, targets, atol=1e-10)

    def value(flat):
        return output_kernels.okl_objective(gram, targets, STRENGTH, flat.reshape(a.shape), kernel)

    assert value(a) == pytest.approx(minimize(value, np.zeros(a.size)).fun, rel=1e-6)


@pytest.mark.parametrize("definite", [True, False])
def test_the_kernel_step_is_a_minimiser_among_semidefinite_matrices(definite):
    _, gram, targets, _ = small()
    a = 0.05 * np.random.default_rng(4).normal(size=targets.shape)
    if definite:  # as after a coefficient step
        a = output_kernels.coefficient_step(np.linalg.eigh(gram), targets, STRENGTH, np.eye(3))
    kernel = output_kernels.kernel_step(gram, targets, STRENGTH, a, np.eye(3), steps=20_000)
    values = np.linalg.eigvalsh(kernel)
    assert (values[0] > 1e-3) if definite else (abs(values[0]) < 1e-12 < values[-1])

    def value(flat):
        return output_kernels.okl_objective(gram, targets, STRENGTH, a, flat.reshape(3, 3) @ flat.reshape(3, 3).T)

    minimum = min(minimize(value, start.ravel()).fun for start in np.random.default_rng(5).normal(size=(3, 3, 3)))
    assert value(np.linalg.cholesky(kernel + 1e-13 * np.eye(3))) == pytest.approx(minimum, rel=1e-6)


def test_a_kernel_step_keeps_the_minimiser_rather_than_a_worse_projection():
    _, gram, targets, _ = small()
    a = 0.05 * np.random.default_rng(4).normal(size=targets.shape)
    best = output_kernels.kernel_step(gram, targets, STRENGTH, a, np.eye(3), steps=20_000)
    projection, kept = (
        output_kernels.kernel_step(gram, targets, STRENGTH, a, before, steps=0) for before in (9 * np.eye(3), best)
    )
    values = [output_kernels.okl_objective(gram, targets, STRENGTH, a, kernel) for kernel in (best, projection, kept)]
    assert values[0] == values[2] < values[1]


@pytest.mark.parametrize("strength", [1e-3, 0.03, 1.0])  # from the identity, the smallest lead to indefinite matrices
def test_the_objective_falls_at_every_step_and_the_kernel_stays_semidefinite(strength):
    _, gram, _, _ = small(n=20, d=40)
    targets = np.repeat(np.eye(4), 5, axis=0) - 0.25
    eigen, kernel, values = np.linalg.eigh(gram), np.eye(4), []
    for _ in range(40):
        a = output_kernels.coefficient_step(eigen, targets, strength, kernel)
        values.append(output_kernels.okl_objective(gram, targets, strength, a, kernel))
        kernel = output_kernels.kernel_step(gram, targets, strength, a, kernel)
        values.append(output_kernels.okl_objective(gram, targets, strength, a, kernel))
        assert np.linalg.eigvalsh(kernel)[0] >= -1e-12
        np.testing.assert_allclose(kernel, kernel.T, atol=1e-14)
    assert np.all(np.diff(values) <= 1e-9 * values[0])
    assert values[-1] < 0.9 * values[0]


def test_block_descent_ends_at_the_minimum():
    x, gram, targets, _ = small()
    a, kernel = output_kernels.block_descent(gram, targets, STRENGTH, tolerance=1e-8)
    value = output_kernels.okl_objective(gram, targets, STRENGTH, a, kernel)
    np.testing.assert_allclose(kernel, a.T @ gram @ a / 2, rtol=1e-6)
    dual = np.sum(a * targets) - STRENGTH * np.sum(a**2) / 2 - np.sum((a.T @ gram @ a / 2) ** 2) / 2
    assert value == pytest.approx(dual, rel=1e-8)

    def loss(fitted):
        return np.sum((targets - fitted) ** 2) / (2 * STRENGTH)

    assert value == pytest.approx(loss(gram @ a @ kernel) + penalty(x, a, kernel, 2), rel=1e-6)
    assert value == pytest.approx(least(loss, x, 3, 2, seed=0), rel=1e-4)


@pytest.mark.parametrize("power", [2, 4])
def test_the_gradient_of_the_dual(power):
    _, gram, _, signs = small()
    beta = np.random.default_rng(2).uniform(0, 0.3, signs.size)
    _, gradient = output_kernels.negative_dual(beta, gram, signs, COST, power)
    numeric = approx_fprime(beta, lambda b: output_kernels.negative_dual(b, gram, signs, COST, power)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("p", [2, 4 / 3])
def test_the_dual_ends_at_the_minimum_of_the_primal(p):
    x, gram, _, signs = small()
    power = output_kernels.conjugate(p)
    a, kernel = output_kernels.solve_dual(gram, signs, COST, power)

    def loss(fitted):
        return COST / 2 * np.sum(np.maximum(0, 1 - signs * fitted) ** 2)

    value = loss(gram @ a @ kernel) + penalty(x, a, kernel, p)
    assert value == pytest.approx(-output_kernels.negative_dual((a * signs).ravel(), gram, signs, COST, power)[0], rel=1e-6)
    assert value == pytest.approx(min(least(loss, x, 3, p, seed) for seed in range(2)), rel=1e-4)
    assert np.all(a * signs >= 0)
    assert np.linalg.eigvalsh(kernel)[0] >= 0


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 3, np.inf])
def test_an_exponent_that_would_need_a_constraint_is_refused(p):
    with pytest.raises(ValueError, match=r"p is .*such as 2 or 4/3"):
        output_kernels.jawanpuria(*parts(), p=p)


def jawanpuria(*data):
    *parts, grid = data
    return output_kernels.jawanpuria(*parts, p=2, costs=grid)


METHODS = pytest.mark.parametrize(
    ("method", "name", "grid"),
    [(output_kernels.dinuzzo, "lambda", (10.0, 1.0, 0.3, 0.1)), (jawanpuria, "C", (0.1, 1.0, 3.0, 10.0))],
)


def test_a_model_scores_rows_like_the_solution_of_its_problem():
    (features, labels), seen = blobs(5), {}
    factor = np.random.default_rng(6).normal(size=(4, 4))

    def solver(gram, one_hot, value):
        seen["gram"], a = gram, value * (one_hot - factor[0])
        seen["scores"] = gram @ a @ (factor @ factor.T)
        return a, factor @ factor.T

    model = output_kernels._fit(solver, (features, labels), 4, 2.0)
    np.testing.assert_allclose((features - model.mean) @ model.weights, seen["scores"], atol=1e-10)
    assert np.trace(seen["gram"]) == pytest.approx(len(labels))
    np.testing.assert_allclose(seen["gram"].sum(0), 0, atol=1e-10)


def test_the_mean_of_the_targets_changes_nothing_for_centred_rows():
    features, labels = blobs(5)
    rows, one_hot = features - features.mean(0), np.eye(4)[labels]
    fits = [
        output_kernels.block_descent(rows @ rows.T, targets, STRENGTH, 1e-9)
        for targets in (one_hot, one_hot - 0.25, one_hot + 1)
    ]
    weights = [rows.T @ a @ kernel for a, kernel in fits]
    np.testing.assert_allclose(weights[1:], [weights[0]] * 2, atol=1e-7)
    assert np.ptp(weights[0]) > 0.1


@METHODS
def test_classes_are_learned_and_the_re_fit_uses_training_and_validation_sets(method, name, grid):
    train, validation, test = parts()
    fitted = method(train, validation, test, grid)
    assert fitted.accuracy > 0.6
    both = tuple(np.concatenate(pair) for pair in zip(train, validation, strict=True))
    assert method(both, validation, test, (fitted.settings[name],)).accuracy == fitted.accuracy_refit != fitted.accuracy
    assert method(train, validation, validation, grid).accuracy == fitted.validation_accuracy


@METHODS
def test_the_interactions_are_those_of_the_training_set(method, name, grid):
    train, validation, test = parts()
    fitted = method(train, validation, test, grid)
    assert fitted.interactions.shape == (4, 4)
    alone = method(train, train, test, (fitted.settings[name],))
    np.testing.assert_array_equal(fitted.interactions, alone.interactions)


@METHODS
def test_the_test_set_does_not_influence_the_setting(method, name, grid):
    train, validation, test = parts()
    chosen, other = (method(train, validation, (test[0], labels), grid) for labels in (test[1], test[1][::-1]))
    assert chosen.settings == other.settings
    np.testing.assert_array_equal(chosen.interactions, other.interactions)
    assert other.accuracy < chosen.accuracy


@METHODS
def test_the_best_setting_is_chosen_and_the_first_one_in_a_tie(method, name, grid):
    data = parts()
    alone = [method(*data, (value,)).validation_accuracy for value in grid]
    assert max(alone) > min(alone)
    fitted = method(*data, grid)
    assert (fitted.settings[name], fitted.validation_accuracy) == (grid[np.argmax(alone)], max(alone))
    apart, equal = parts(noise=0.01), grid[2:]
    assert method(*apart, equal).settings[name] == equal[0]
    assert method(*apart, equal[::-1]).settings[name] == equal[-1]


def test_the_grids_start_with_the_strongest_regularisation():
    assert list(output_kernels.STRENGTHS) == sorted(output_kernels.STRENGTHS, reverse=True)
    assert list(output_kernels.COSTS) == sorted(output_kernels.COSTS)


@METHODS
def test_accuracies_do_not_depend_on_the_origin_or_the_scale_of_the_features(method, name, grid):
    data = parts()
    moved = [(1000 * features + 500, labels) for features, labels in data]
    assert method(*data, grid)[:5] == method(*moved, grid)[:5]


@METHODS
def test_features_in_half_precision_are_not_computed_with_in_half_precision(method, name, grid):
    data = parts()
    halved = [(features.astype(np.float16), labels) for features, labels in data]
    rounded = [(features.astype(np.float64), labels) for features, labels in halved]
    assert method(*halved, grid)[:5] == method(*rounded, grid)[:5]

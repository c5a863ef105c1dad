"""The two multitask methods of the paper's Appendix B (Table 4), which learn the interactions as model parameters.

    Dinuzzo et al. 2011, "Learning output kernels with block coordinate descent": `dinuzzo`
    Jawanpuria et al. 2015, "Efficient output kernel learning for multiple tasks", p = 2 or 4/3: `jawanpuria`

Both fit linear scores F = X W and, jointly, a positive semidefinite output kernel T [K, K]: they minimise
loss(F) + tr(W T^-1 W') / 2 + |T|_p^p / p, where |T|_p is the p-norm of the entries; then W = X' A T for some A [n, K].
Replacing T by s T shows that a factor in front of the last term only rescales the factor in front of the loss, so that each
method has one strength to choose. All computations use the Gram matrix G = X X'.

The rows are centred on the mean of the fitted rows and scaled to a mean squared norm of 1, so that one grid suits any
features. No offsets are fitted, so the classes should be balanced. For the squared loss nothing is lost: with centred rows,
W and T do not depend on the mean of the targets, and the offsets would be that mean, the same for all classes. One-hot
labels therefore do as well as centred ones. For the squared hinge it is a choice: a constant column, which would enter every
interaction, changed the mean validation accuracy over a dozen splits by less than one point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

# From where the validation accuracy has dropped to where it hardly changes, strongest regularisation first.
STRENGTHS = tuple(10.0 ** np.arange(1.0, -1.51, -0.25))  # lambda of `dinuzzo`
COSTS = tuple(10.0 ** np.arange(-1.5, 1.51, 0.25))  # C of `jawanpuria`

Labelled = tuple[np.ndarray, np.ndarray]
"""Features [n, d] and labels 0..K-1 [n]."""


class Fitted(NamedTuple):
    """The chosen settings of a method and its accuracies, as shares of the examples.

    `accuracy` is that on the test set, `accuracy_refit` the same after a re-fit to training and validation sets together.
    `interactions` is the output kernel [K, K] before the re-fit.
    """

    method: str
    settings: dict[str, float]
    validation_accuracy: float
    accuracy: float
    accuracy_refit: float
    interactions: np.ndarray


class Model(NamedTuple):
    """Scores (x - mean) weights, and the output kernel."""

    mean: np.ndarray
    weights: np.ndarray
    interactions: np.ndarray


Solver = Callable[[np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray]]
"""(Gram matrix, one-hot labels, strength) -> A, T."""


def dinuzzo(train: Labelled, validation: Labelled, test: Labelled, strengths: Sequence[float] = STRENGTHS) -> Fitted:
    """Squared loss on one-hot labels, lambda chosen on the validation set.

    Args:
      strengths: the values of lambda to try, strongest first: in a tie, the first one is chosen.
    """
    return _search("Dinuzzo 2011", "lambda", block_descent, strengths, (train, validation, test))


def jawanpuria(train: Labelled, validation: Labelled, test: Labelled, p: float, costs: Sequence[float] = COSTS) -> Fitted:
    """Squared hinge loss of each class against the rest, C chosen on the validation set.

    Args:
      p: the exponent of the norm of the output kernel; 2, 4/3, or any other for which p / (p - 1) is an even number.
      costs: the values of C to try, strongest regularisation first: in a tie, the first one is chosen.
    """
    power = conjugate(p)

    def solver(gram: np.ndarray, one_hot: np.ndarray, cost: float) -> tuple[np.ndarray, np.ndarray]:
        return solve_dual(gram, 2 * one_hot - 1, cost, power)

    return _search(f"Jawanpuria 2015, p = {p:.3g}", "C", solver, costs, (train, validation, test), {"p": p})


def _search(
    method: str,
    name: str,
    solver: Solver,
    grid: Sequence[float],
    parts: tuple[Labelled, Labelled, Labelled],
    fixed: dict[str, float] | None = None,
) -> Fitted:
    """Chooses the setting of the best validation accuracy; the re-fit keeps it."""
    train, validation, test = parts
    classes = 1 + max(int(np.max(labels)) for _, labels in parts)
    models = [_fit(solver, train, classes, value) for value in grid]
    accuracies = [_accuracy(model, validation) for model in models]
    best = int(np.argmax(accuracies))  # the first one among equals
    both = np.concatenate([train[0], validation[0]]), np.concatenate([train[1], validation[1]])
    refitted = _fit(solver, both, classes, grid[best])
    settings = {name: float(grid[best]), **(fixed or {})}
    outcome = accuracies[best], _accuracy(models[best], test), _accuracy(refitted, test)
    return Fitted(method, settings, *outcome, models[best].interactions)


def _fit(solver: Solver, data: Labelled, classes: int, value: float) -> Model:
    rows = np.asarray(data[0], np.float64)  # half precision is too coarse for the Gram matrix
    mean = rows.mean(0)
    scale = np.sqrt(np.mean(np.sum((rows - mean) ** 2, axis=1)))
    rows = (rows - mean) / scale
    a, kernel = solver(rows @ rows.T, np.eye(classes)[data[1]], value)
    return Model(mean, rows.T @ a @ kernel / scale, kernel)


def _accuracy(model: Model, data: Labelled) -> float:
    scores = (np.asarray(data[0], np.float64) - model.mean) @ model.weights
    return float(np.mean(np.argmax(scores, axis=1) == data[1]))


def okl_objective(gram: np.ndarray, targets: np.ndarray, strength: float, a: np.ndarray, kernel: np.ndarray) -> float:
    """|Y - G A L|^2 / (2 lambda) + tr(A' G A L) / 2 + |L|^2 / 2, which is p = 2 with F = G A L."""
    fitted = gram @ a
    loss = np.sum((targets - fitted @ kernel) ** 2) / (2 * strength)
    return float(loss + np.sum((a.T @ fitted) * kernel) / 2 + np.sum(kernel**2) / 2)


def block_descent(
    gram: np.ndarray, targets: np.ndarray, strength: float, tolerance: float = 1e-4, iterations: int = 3000
) -> tuple[np.ndarray, np.ndarray]:
    """Minimises `okl_objective` over A and L in turn, from L = 0. It is invex: the minimum is where both gradients vanish.

    After the step in A, the gradient in L is L - A' G A / 2: `tolerance` bounds its norm relative to that of L.
    """
    values, vectors = np.linalg.eigh(gram)
    kernel = np.zeros((targets.shape[1],) * 2)
    for _ in range(iterations):
        a = coefficient_step((values, vectors), targets, strength, kernel)
        if np.linalg.norm(kernel - _symmetric(a.T @ gram @ a) / 2) <= tolerance * np.linalg.norm(kernel):
            break
        kernel = kernel_step(gram, targets, strength, a, kernel)
    return coefficient_step((values, vectors), targets, strength, kernel), kernel


def coefficient_step(
    eigen: tuple[np.ndarray, np.ndarray], targets: np.ndarray, strength: float, kernel: np.ndarray
) -> np.ndarray:
    """The minimiser in A, which solves G A L + lambda A = Y: a division in the eigenvectors of G (`eigen`) and of L."""
    values, vectors = eigen
    kernel_values, kernel_vectors = np.linalg.eigh(kernel)
    scaled = vectors.T @ targets @ kernel_vectors / (values[:, None] * kernel_values + strength)
    return vectors @ scaled @ kernel_vectors.T


def kernel_step(
    gram: np.ndarray, targets: np.ndarray, strength: float, a: np.ndarray, before: np.ndarray, steps: int = 100
) -> np.ndarray:
    """The minimiser in L, symmetric and positive semidefinite.

    With E = G A, M = E'E + lambda I and R = sym(E'Y) - lambda A'E / 2, the minimiser among symmetric matrices solves
    M L + L M = 2 R, which is a division in the eigenvectors of E'E. If it is indefinite (seen for small lambda only), up to
    `steps` projected gradient steps start from its projection or from `before`, whichever is better: the objective falls in
    any case.
    """
    fitted = gram @ a
    square, right = fitted.T @ fitted, _symmetric(fitted.T @ targets - strength / 2 * (a.T @ fitted))
    values, basis = np.linalg.eigh(square)
    closed = basis @ (2 * (basis.T @ right @ basis) / (values[:, None] + values + 2 * strength)) @ basis.T
    kernel = _semidefinite(closed)
    if np.linalg.norm(kernel - closed) <= 1e-9 * np.linalg.norm(closed):
        return kernel
    kernel = min(before, kernel, key=lambda k: okl_objective(gram, targets, strength, a, k))
    for _ in range(steps):
        gradient = _symmetric(square @ kernel) + strength * kernel - right  # times lambda, like the curvature below
        last, kernel = kernel, _semidefinite(kernel - gradient / (values[-1] + strength))
        if np.linalg.norm(kernel - last) <= 1e-9 * np.linalg.norm(kernel):
            break
    return kernel


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


def _semidefinite(matrix: np.ndarray) -> np.ndarray:
    """The nearest positive semidefinite matrix to a symmetric one."""
    values, vectors = np.linalg.eigh(_symmetric(matrix))
    return (vectors * values.clip(0)) @ vectors.T


def conjugate(p: float) -> int:
    """q = p / (p - 1), which must be even: then `output_kernel` is an odd elementwise power, hence positive semidefinite."""
    q = round(p / (p - 1)) if 1 < p <= 2 else 0
    if q < 2 or q % 2 or not np.isclose(p, q / (q - 1), rtol=1e-3):
        raise ValueError(f"p is {p}; choose one with p / (p - 1) an even number, such as 2 or 4/3.")
    return q


def output_kernel(gram: np.ndarray, a: np.ndarray, power: int) -> np.ndarray:
    """T = (A' G A / 2)^(q - 1), elementwise: the minimiser of |T|_p^p / p - tr(A' G A T) / 2."""
    return _symmetric(a.T @ gram @ a / 2) ** (power - 1)


def negative_dual(
    beta: np.ndarray, gram: np.ndarray, signs: np.ndarray, cost: float, power: int
) -> tuple[float, np.ndarray]:
    """The negative of the dual and its gradient, where A = Y beta (elementwise) and beta >= 0.

    The primal is C / 2 sum max(0, 1 - Y F)^2 + tr(W T^-1 W') / 2 + |T|_p^p / p. For fixed T its dual is the maximum over
    beta of sum beta - |beta|^2 / (2 C) - tr(A' G A T) / 2 + |T|_p^p / p, which is concave in beta and convex in T, so that
    the minimum over T may be taken first. It is attained at `output_kernel`, semidefinite without a constraint, and leaves
    sum beta - |beta|^2 / (2 C) - sum (A' G A / 2)^q / q.
    """
    beta = beta.reshape(signs.shape)
    a = signs * beta
    fitted = gram @ a
    half = a.T @ fitted / 2
    kernel = half ** (power - 1)
    value = np.sum(half * kernel) / power + np.sum(beta**2) / (2 * cost) - np.sum(beta)
    return float(value), (signs * (fitted @ kernel) + beta / cost - 1).ravel()


def solve_dual(gram: np.ndarray, signs: np.ndarray, cost: float, power: int) -> tuple[np.ndarray, np.ndarray]:
    """A and T at the maximum of the dual.

    The authors used the hinge loss; its square makes the dual smooth and strictly concave, so that L-BFGS-B reaches the
    maximum.
    """
    options = {"maxiter": 3000, "maxfun": 10_000, "ftol": 1e-10, "gtol": 1e-6, "maxcor": 20}
    solution = minimize(
        negative_dual,
        np.zeros(signs.size),
        (gram, signs, cost, power),
        method="L-BFGS-B",
        jac=True,
        bounds=[(0, None)] * signs.size,
        options=options,
    )
    a = signs * solution.x.reshape(signs.shape)
    return a, output_kernel(gram, a, power)

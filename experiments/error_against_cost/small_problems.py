"""Small problems with known hypergradients, on which the honesty table compares what libraries return silently.

Data are NumPy arrays, so that every framework can build the problems.
"""

from __future__ import annotations

import numpy as np


class Ridge:
    """Ridge regression with one log-strength per weight: J = mean (x w - y)^2 + sum exp(rho) w^2, E = mean (xv w - yv)^2.

    Args:
      n, m, d: examples for training and for validation, and weights.
      seed: of the data.
    """

    rate = 0.1
    momentum = 0.5

    def __init__(self, n: int = 12, m: int = 8, d: int = 5, seed: int = 10):
        r = np.random.RandomState(seed)
        self.x, w, self.xv = r.randn(n, d), r.randn(d), r.randn(m, d)
        self.y, self.yv = self.x @ w + 0.5 * r.randn(n), self.xv @ w + 0.5 * r.randn(m)
        self.rho = np.linspace(-3, 1, d)
        self.hessian = 2 / n * self.x.T @ self.x + 2 * np.diag(np.exp(self.rho))
        self.solution = np.linalg.solve(self.hessian, 2 / n * self.x.T @ self.y)

    def right_side(self, w: np.ndarray) -> np.ndarray:
        """b = dE/dw."""
        return 2 / len(self.xv) * self.xv.T @ (self.xv @ w - self.yv)

    def gradient(self) -> np.ndarray:
        """The hypergradient at the solution: -C^T H^-1 b with C = diag(2 exp(rho) w)."""
        w = self.solution
        return -2 * np.exp(self.rho) * w * np.linalg.solve(self.hessian, self.right_side(w))

    def after(self, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """w after some steps of gradient descent from 0, and the derivative of E there, by forward mode."""
        d = len(self.rho)
        w, z = np.zeros(d), np.zeros((d, d))
        for _ in range(steps):
            z = z - self.rate * (self.hessian @ z + np.diag(2 * np.exp(self.rho) * w))
            w = w - self.rate * self.hessian @ (w - self.solution)
        return w, self.right_side(w) @ z


class Equilibrium:
    """z = tanh(m z + c + b), whose Jacobian is not symmetric; E = 1/2 |z - y|^2, hypers b."""

    def __init__(self) -> None:
        r = np.random.RandomState(40)
        m = r.randn(4, 4)
        self.m = 0.95 * m / np.linalg.norm(m, 2)
        self.c = 0.2 * r.randn(4, 3) @ r.randn(3)
        self.b, self.y = 0.1 * r.randn(4), r.randn(4)
        self.z = np.zeros(4)
        for _ in range(5000):
            self.z = np.tanh(self.m @ self.z + self.c + self.b)

    def gradient(self) -> np.ndarray:
        """D (I - A)^-T (z - y) with A = D m and D = diag(1 - z^2)."""
        d = np.diag(1 - self.z**2)
        return d @ np.linalg.solve((np.eye(4) - d @ self.m).T, self.z - self.y)


def betty_cg(hessian: np.ndarray, b: np.ndarray, iterations: int, alpha: float) -> np.ndarray:
    """Conjugate gradients as `betty/hypergradient/cg.py` has them (leopard-ai/betty, e474665), reimplemented.

    Two lines differ from the method: alpha multiplies H in the step length but not in the residual, and the next direction
    comes from the residual before the step.
    """
    x, r = np.zeros_like(b), b.copy()
    p = r.copy()
    for _ in range(iterations):
        q = hessian @ p
        length = (r @ r) / (p @ (alpha * q))
        x, after = x + length * p, r - length * q
        p = r + (after @ after) / (r @ r) * p
        r = after
    return alpha * x

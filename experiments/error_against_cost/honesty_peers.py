"""hypertorch and jaxopt on the small problems, called as their users call them, with their default tolerances."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.error_against_cost.small_problems import Equilibrium, Ridge


class HypertorchSmall:
    """hypertorch in float64.

    Args:
      hypergrad: its package.
      ridge: the regression.
    """

    ITERATIONS = 100

    def __init__(self, hypergrad: Any, ridge: Ridge):
        import torch

        self.hypergrad, self.torch, self._ridge = hypergrad, torch, ridge

    def _tensor(self, value: Any, requires_grad: bool = False) -> Any:
        return self.torch.tensor(value, dtype=self.torch.float64, requires_grad=requires_grad)

    def _losses(self) -> tuple[Any, Any]:
        r = self._ridge
        x, y, xv, yv = map(self._tensor, (r.x, r.y, r.xv, r.yv))

        def inner(params: list[Any], hypers: list[Any]) -> Any:
            return ((x @ params[0] - y) ** 2).mean() + (hypers[0].exp() * params[0] ** 2).sum()

        return inner, lambda params, hypers: ((xv @ params[0] - yv) ** 2).mean()

    def ridge(self, solver: str, momentum: float | None = None) -> np.ndarray:
        """The hypergradient of ridge regression at its solution, on the map of gradient descent or of its own `Momentum`."""
        r, (inner, outer) = self._ridge, self._losses()
        w, rho = self._tensor(r.solution), self._tensor(r.rho, True)
        if momentum is None:
            descent, params = self.hypergrad.GradientDescent(inner, r.rate), [w]
        else:
            descent = self.hypergrad.Momentum(inner, r.rate, momentum)
            params = descent.get_opt_params([w])
        return self._solve(solver, params, [rho], descent, outer)[0]

    def _solve(self, solver: str, params: list[Any], hypers: list[Any], fixed_point: Any, outer: Any) -> list[np.ndarray]:
        function = getattr(self.hypergrad, solver)
        return [g.detach().numpy() for g in function(params, hypers, self.ITERATIONS, fixed_point, outer, set_grad=False)]

    def identity(self, solver: str) -> np.ndarray:
        """J = 1/2 |w - h|^2 and E = 1/2 |w|^2 at h = [2, 4], on the map of gradient descent with rate 1, w <- h."""
        h = self._tensor([2.0, 4.0], True)
        descent = self.hypergrad.GradientDescent(lambda params, hypers: 0.5 * ((params[0] - hypers[0]) ** 2).sum(), 1.0)
        outer = lambda params, hypers: 0.5 * (params[0] ** 2).sum()  # noqa: E731
        return self._solve(solver, [self._tensor([2.0, 4.0])], [h], descent, outer)[0]

    def equilibrium(self, solver: str, e: Equilibrium) -> np.ndarray:
        """The hypergradient of b in z = tanh(m z + c + b)."""
        m, c, y = map(self._tensor, (e.m, e.c, e.y))
        fixed_point = lambda params, hypers: [self.torch.tanh(m @ params[0] + c + hypers[0])]  # noqa: E731
        outer = lambda params, hypers: 0.5 * ((params[0] - y) ** 2).sum()  # noqa: E731
        return self._solve(solver, [self._tensor(e.z)], [self._tensor(e.b, True)], fixed_point, outer)[0]

    def learning_rate(self) -> np.ndarray:
        """The derivative with respect to the learning rate, after 100 steps."""
        r, (inner, outer) = self._ridge, self._losses()
        rho, rate = self._tensor(r.rho), self._tensor(r.rate, True)
        descent = self.hypergrad.GradientDescent(lambda params, hypers: inner(params, [rho]), lambda hypers: hypers[0])
        w = self._tensor(r.after(100)[0])
        return self._solve("fixed_point", [w], [rate], descent, outer)[0]


class JaxoptSmall:
    """jaxopt, with 64 bits unless stated otherwise; meant for a separate process."""

    def __init__(self) -> None:
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        self.jax, self.jnp = jax, jnp

    def _ridge(self, r: Ridge, w: np.ndarray, scale: float, dtype: Any, **arguments: Any) -> np.ndarray:
        """`arguments` are those of `custom_root`."""
        from jaxopt import implicit_diff

        x, y, xv, yv = (self.jnp.asarray(a, dtype) for a in (r.x, r.y, r.xv, r.yv))

        def inner(w: Any, rho: Any) -> Any:
            return self.jnp.mean((x @ w - y) ** 2) + self.jnp.sum(self.jnp.exp(rho) * w**2)

        solution = implicit_diff.custom_root(self.jax.grad(inner), **arguments)(lambda start, rho: start)
        start = self.jnp.asarray(w, dtype)
        response = self.jax.grad(lambda rho: scale * self.jnp.mean((xv @ solution(start, rho) - yv) ** 2))
        return np.asarray(response(self.jnp.asarray(r.rho, dtype)), np.float64)

    def ridge(self, r: Ridge, w: np.ndarray) -> np.ndarray:
        """The hypergradient at the w where a training has ended, with the default solver and tolerance."""
        return self._ridge(r, w, 1.0, self.jnp.float64)

    def tiny(self, r: Ridge, scale: float) -> np.ndarray:
        """The hypergradient of scale times the objective in float32, by CG."""
        from jaxopt import linear_solve

        return self._ridge(r, r.solution, scale, self.jnp.float32, solve=linear_solve.solve_cg)

    def equilibrium(self, e: Equilibrium) -> np.ndarray:
        """The hypergradient of b in z = tanh(m z + c + b), by CG."""
        from jaxopt import implicit_diff, linear_solve

        fixed_point = lambda z, b: self.jnp.tanh(e.m @ z + e.c + b)  # noqa: E731
        solution = implicit_diff.custom_fixed_point(fixed_point, solve=linear_solve.solve_cg)(lambda z, b: z)
        response = self.jax.grad(lambda b: 0.5 * self.jnp.sum((solution(e.z, b) - e.y) ** 2))
        return np.asarray(response(self.jnp.asarray(e.b)))

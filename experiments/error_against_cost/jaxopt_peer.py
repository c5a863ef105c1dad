"""The same problems with jaxopt: implicit differentiation of a jitted training loop.

Data are arguments of the compiled function, because XLA would fold constants into the program.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.error_against_cost.problems import L2, MOMENTUM, Case

SOLVERS = {"CG": "solve_cg", "normal equations": "solve_normal_cg"}
TOLERANCE = 1e-7

# In JAX 0.10.2 on a CPU, fusions by the library YNN give NaN in the product with the zeros from which CG starts, and CG then
# returns 0 (github.com/jax-ml/jax/issues/39103 is of the same kind). Without them the numbers are right.
COMPILER_OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": ""}


def load() -> Any:
    """The package, without the warnings of jax."""
    logging.getLogger("jax").setLevel(logging.WARNING)  # it would report that it found no TPU
    import jaxopt

    return jaxopt


class Jaxopt:
    """Loss, objective and training of a case in float32.

    Args:
      case: the problem.
      transposed: whether to keep transposes of the inputs too, as `rf.fixed_product` does.
    """

    def __init__(self, case: Case, transposed: bool = False):
        import jax
        import jax.numpy as jnp

        load()
        self.case, self.jax, self.jnp = case, jax, jnp
        self.product = _transposing_product() if transposed else (lambda x, xt, w: x @ w)
        self.train, self.validation = (
            (
                jnp.asarray(x, jnp.float32),
                jnp.asarray(x.T, jnp.float32) if transposed else None,
                jnp.asarray(y, jnp.int32 if case.per_example else jnp.float32),
            )
            for x, y in (case.train, case.validation)
        )
        self.hypers = jnp.asarray(case.hypers, jnp.float32)

    def _errors(self, w: Any, x: Any, xt: Any, targets: Any) -> Any:
        jax, jnp = self.jax, self.jnp
        logits = self.product(x, xt, w)
        if self.case.per_example:
            return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], 1)[:, 0]
        return jax.nn.softplus(-targets * logits[:, 0])

    def loss(self, w: Any, h: Any, train: Any) -> Any:
        """J."""
        each = self._errors(w, *train)
        if self.case.per_example:
            return self.jnp.mean(h * each) + L2 * self.jnp.sum(w**2)
        return self.jnp.mean(each) + 0.5 * self.jnp.sum(self.jnp.exp(h) * w[:, 0] ** 2)

    def _trained(self, steps: int, w: Any, h: Any, train: Any) -> Any:
        """T steps with momentum."""

        def step(_: int, carry: Any) -> Any:
            w, velocity = carry
            velocity = MOMENTUM * velocity + self.jax.grad(self.loss)(w, h, train)
            return w - self.case.rate * velocity, velocity

        return self.jax.lax.fori_loop(0, steps, step, (w, self.jnp.zeros_like(w)))[0]

    def hypergradient(self, solver: str, steps: int, iterations: int) -> Callable[[], np.ndarray]:
        """Training and solution, in one compiled function."""
        start = self.jnp.zeros(self.case.shape)
        return self._compiled(functools.partial(self._trained, steps), start, solver, iterations)

    def from_solution(
        self, w: np.ndarray, solver: str, iterations: int, options: dict[str, str] = COMPILER_OPTIONS
    ) -> Callable[[], np.ndarray]:
        """Solution alone, at a given w."""
        return self._compiled(lambda w, h, train: w, self.jnp.asarray(w, self.jnp.float32), solver, iterations, options)

    def _compiled(
        self, train: Callable[..., Any], start: Any, solver: str, iterations: int, options: dict[str, str] = COMPILER_OPTIONS
    ) -> Callable[[], np.ndarray]:
        """The tolerance ends CG only where float32 ends too; with 0 it would continue to 0 / 0."""
        from jaxopt import implicit_diff, linear_solve

        solve = functools.partial(getattr(linear_solve, SOLVERS[solver]), maxiter=iterations, tol=TOLERANCE)
        solution = implicit_diff.custom_root(self.jax.grad(self.loss), solve=solve)(train)

        def response(h: Any, start: Any, train: Any, validation: Any) -> Any:
            return self.jnp.mean(self._errors(solution(start, h, train), *validation))

        gradient = self.jax.jit(self.jax.grad(response), compiler_options=options)
        return lambda: np.asarray(gradient(self.hypers, start, self.train, self.validation))


def _transposing_product() -> Any:
    """(x, its transpose, w) -> x @ w, differentiable with respect to w."""
    import jax

    product = jax.custom_vjp(lambda x, xt, w: x @ w)
    product.defvjp(lambda x, xt, w: (x @ w, (x, xt)), lambda saved, up: (None, None, product(saved[1], saved[0], up)))
    return product

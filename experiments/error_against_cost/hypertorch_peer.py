"""The same problems with hypertorch, from a checkout outside this project: `--hypertorch=DIR` names it.

Users write its inner problem as a fixed-point map. Training has momentum, like ours; the linear system is that of a map of
gradient descent, because conjugate gradients need a symmetric one (`honesty.py` shows what happens otherwise).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.torch_product import transposed_product
from experiments.error_against_cost.problems import L2, MOMENTUM, Case

SOLVERS = {"CG": "CG", "fixed point": "fixed_point", "normal equations": "CG_normaleq"}
WHERE = "hypertorch is not on PyPI: git clone https://github.com/prolearner/hypertorch DIR; then pass --hypertorch=DIR"


def missing(directory: str | None) -> str:
    """What to do if the checkout is missing; empty if it exists."""
    if directory is None:
        return f"--hypertorch is not given. {WHERE}."
    if not (Path(directory) / "hypergrad").is_dir():
        return f"--hypertorch is {directory!r}, where there is no folder hypergrad. {WHERE}."
    return ""


def load(directory: str | None) -> Any:
    """Its package `hypergrad`; torch gets one thread per core, as XLA takes."""
    if why := missing(directory):
        raise ImportError(why)
    assert directory is not None
    sys.path.insert(0, str(Path(directory).resolve()))
    package = importlib.import_module("hypergrad")
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    return package


class Hypertorch:
    """Loss, objective and training of a case in float32.

    Args:
      hypergrad: the package.
      case: the problem.
      rate: that of the map of gradient descent whose fixed point is linearised; 1 / the largest eigenvalue, as in rfho2.
      transposed: whether to keep transposes of the inputs too, as `rf.fixed_product` does.
    """

    def __init__(self, hypergrad: Any, case: Case, rate: float, transposed: bool = False):
        import torch

        self.hypergrad, self.case, self.torch = hypergrad, case, torch
        kind = torch.int64 if case.per_example else torch.float32
        self.train, self.validation = (
            (self._product(torch.tensor(x, dtype=torch.float32), transposed), torch.tensor(y).to(kind))
            for x, y in (case.train, case.validation)
        )
        self.hypers = [torch.tensor(case.hypers, dtype=torch.float32, requires_grad=True)]
        self.map = hypergrad.GradientDescent(self.loss, rate)

    def _product(self, x: Any, transposed: bool) -> Callable[[Any], Any]:
        if not transposed:
            return lambda w: x @ w
        return transposed_product(x)

    def _errors(self, w: Any, product: Callable[[Any], Any], targets: Any) -> Any:
        logits = product(w)
        if self.case.per_example:
            return self.torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        return self.torch.nn.functional.softplus(-targets * logits[:, 0])

    def loss(self, params: list[Any], hypers: list[Any]) -> Any:
        """J, as hypertorch takes it."""
        (w,), (h,) = params, hypers
        each = self._errors(w, *self.train)
        if self.case.per_example:
            return (h * each).mean() + L2 * (w**2).sum()
        return each.mean() + 0.5 * (h.exp() * w[:, 0] ** 2).sum()

    def objective(self, params: list[Any], hypers: list[Any]) -> Any:
        """E, as hypertorch takes it."""
        return self._errors(params[0], *self.validation).mean()

    def trained(self, steps: int) -> list[Any]:
        """[w] after T steps with momentum, written without its optimiser, which would keep a graph."""
        torch = self.torch
        w = torch.zeros(self.case.shape, requires_grad=True)
        velocity = torch.zeros(self.case.shape)
        for _ in range(steps):
            (gradient,) = torch.autograd.grad(self.loss([w], [self.hypers[0].detach()]), w)
            with torch.no_grad():
                velocity = MOMENTUM * velocity + gradient
                w = (w - self.case.rate * velocity).requires_grad_()
        return [w]

    def solve(self, params: list[Any], solver: str, iterations: int) -> np.ndarray:
        """The hypergradient at params. The default tolerance, 1e-10, ends CG only where float32 ends too."""
        function = getattr(self.hypergrad, SOLVERS[solver])
        (gradient,) = function(params, self.hypers, iterations, self.map, self.objective, set_grad=False)
        return gradient.detach().numpy()

    def hypergradient(self, solver: str, steps: int, iterations: int) -> Callable[[], np.ndarray]:
        """Training and solution."""
        return lambda: self.solve(self.trained(steps), solver, iterations)

    def from_solution(self, w: np.ndarray, solver: str, iterations: int) -> Callable[[], np.ndarray]:
        """Solution alone, at a given w."""
        params = [self.torch.tensor(w, dtype=self.torch.float32)]
        return lambda: self.solve(params, solver, iterations)

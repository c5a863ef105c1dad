"""Data hyper-cleaning in several frameworks: one reverse hypergradient with respect to the weights of 5,000 examples.

T steps of full-batch softmax regression. JAX and PyTorch are written in the obvious way (x @ w), and with a transposed copy
of the data, as in `rf.fixed_product`; JAX also with `jax.checkpoint` around the step, which keeps only the states, as rfho2
does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rfho2 as rf
from data import mnist
from experiments.benchmarks.peer_case import Case, Hypergradient, InJax
from experiments.common.torch_product import transposed_product
from experiments.data_hyper_cleaning import experiment as cleaning


class HyperCleaning:
    """The contestants, and the data and settings that they share."""

    STEPS = 100
    entry_tolerance: float | None = None  # many of the 5,000 entries are close to 0
    memory = True
    radius = 1000.0
    rate = 0.5

    def __init__(self, steps: int):
        self.steps = steps
        self.data = mnist.noisy_split(mnist.load(), seed=0)
        (x, y), (xv, yv) = self.data.train, self.data.validation
        self.arrays = {"x": x, "y": y, "xv": xv, "yv": yv}
        self.argument = np.random.default_rng(0).uniform(0, 0.4, len(self.data.noisy)).astype(np.float32)

    def stand_in(self) -> Case:
        """Itself."""
        return self

    def rfho2(self) -> Hypergradient:
        """`rf.reverse`."""
        config = cleaning.Config(steps=self.steps, inner_rate=self.rate * self.radius / len(self.argument))
        engine = rf.reverse(cleaning.cleaning_problem(config, self.data, self.radius))
        return lambda weights: engine(cleaning.zeros(), {"weights": weights}).grads["weights"].numpy()

    def jax(self) -> dict[str, InJax]:
        """The contestants in JAX, by name."""
        shared = {"steps": self.steps, "rate": self.rate}
        return {
            "JAX": InJax("hyper_cleaning", {**shared, "transposed": False}),
            "JAX, transposed copy": InJax("hyper_cleaning", {**shared, "transposed": True}),
            "JAX, transposed copy, checkpoint": InJax("hyper_cleaning", {**shared, "transposed": True, "checkpoint": True}),
        }

    def torch(self) -> dict[str, Callable[[], Hypergradient]]:
        """Functions that build the contestants in PyTorch, by name."""
        return {
            "PyTorch": lambda: self._in_torch(transposed=False),
            "PyTorch, transposed copy": lambda: self._in_torch(transposed=True),
        }

    def _in_torch(self, transposed: bool) -> Hypergradient:
        """`torch.autograd.grad` with `create_graph`, through a Python loop."""
        import torch

        x, y, xv, yv = (torch.tensor(part) for part in (*self.data.train, *self.data.validation))
        product, product_v = (transposed_product(m) if transposed else (lambda w, m=m: m @ w) for m in (x, xv))

        def errors(p: list[Any], product: Any, labels: Any) -> Any:
            return torch.nn.functional.cross_entropy(product(p[0]) + p[1], labels.long(), reduction="none")

        def hypergradient(array: np.ndarray) -> np.ndarray:
            weights = torch.tensor(array, requires_grad=True)
            p = [torch.zeros(784, 10, requires_grad=True), torch.zeros(10, requires_grad=True)]
            for _ in range(self.steps):
                grads = torch.autograd.grad((weights * errors(p, product, y)).mean(), p, create_graph=True)
                p = [w - self.rate * g for w, g in zip(p, grads, strict=True)]
            return torch.autograd.grad(errors(p, product_v, yv).mean(), weights)[0].numpy()

        return hypergradient

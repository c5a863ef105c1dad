"""rfho2 beside JAX and PyTorch on the same computation: seconds, interleaved, best of several, values checked first.

    pip install -e ".[peers]"
    python -m experiments.peer_benchmark --cases=hyper_cleaning

hyper_cleaning: one reverse hypergradient of the weights of 5,000 examples, through T = 100 steps of full-batch softmax
regression. Peers are written as anyone would (x @ w), and with a transposed copy of the data, as `rf.fixed_product` has.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags

import rfho2 as rf
from data import mnist
from data.errors import DataError
from experiments import common
from experiments import data_hyper_cleaning as cleaning

FLAGS = flags.FLAGS
ROUNDS = 5
Hypergradient = Callable[[np.ndarray], np.ndarray]


class HyperCleaning:
    """The data and settings that all share."""

    steps = 100
    radius = 1000.0
    rate = 0.5

    def __init__(self) -> None:
        self.data = mnist.noisy_split(mnist.load(), seed=0)
        self.weights = np.random.default_rng(0).uniform(0, 0.4, len(self.data.noisy)).astype(np.float32)

    def rfho2(self) -> Hypergradient:
        """`rf.reverse`."""
        config = cleaning.Config(steps=self.steps, inner_rate=self.rate * self.radius / len(self.weights))
        engine = rf.reverse(cleaning.cleaning_problem(config, self.data, self.radius))
        return lambda weights: engine(cleaning.zeros(), {"weights": weights}).grads["weights"].numpy()

    def jax(self, transposed: bool) -> Hypergradient:
        """`jax.grad` through `lax.scan`, jitted."""
        import jax
        import jax.numpy as jnp

        x, y, xv, yv = (jnp.asarray(part) for part in (*self.data.train, *self.data.validation))
        product, product_v = (self._jax_product(m) if transposed else (lambda w, m=m: m @ w) for m in (x, xv))

        def errors(p: Any, product: Any, labels: Any) -> Any:
            logits = product(p["w"]) + p["b"]
            return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)[:, 0]

        def response(weights: Any) -> Any:
            def step(p: Any, _: None) -> tuple[Any, None]:
                g = jax.grad(lambda p: jnp.mean(weights * errors(p, product, y)))(p)
                return jax.tree.map(lambda w, g: w - self.rate * g, p, g), None

            start = {"w": jnp.zeros((784, 10)), "b": jnp.zeros(10)}
            last, _ = jax.lax.scan(step, start, None, length=self.steps)
            return jnp.mean(errors(last, product_v, yv))

        gradient = jax.jit(jax.grad(response))
        return lambda weights: np.asarray(gradient(weights))

    def _jax_product(self, x: Any) -> Any:
        import jax

        def linear(m: Any, mt: Any) -> Any:
            product = jax.custom_vjp(lambda w: m @ w)
            product.defvjp(lambda w: (m @ w, None), lambda _, up: (linear(mt, m)(up),))
            return product

        return linear(x, x.T.copy())

    def torch(self, transposed: bool) -> Hypergradient:
        """`torch.autograd.grad` with `create_graph` through a Python loop."""
        import torch

        x, y, xv, yv = (torch.tensor(part) for part in (*self.data.train, *self.data.validation))
        product, product_v = (self._torch_product(m) if transposed else (lambda w, m=m: m @ w) for m in (x, xv))

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

    def _torch_product(self, x: Any) -> Any:
        import torch

        def linear(m: Any, mt: Any) -> Any:
            class Product(torch.autograd.Function):
                @staticmethod
                def forward(ctx: Any, w: Any) -> Any:
                    return m @ w

                @staticmethod
                def backward(ctx: Any, up: Any) -> Any:
                    return linear(mt, m)(up)

            return Product.apply

        return linear(x, x.T.contiguous())

    def contestants(self) -> dict[str, Hypergradient]:
        """By name; ours first."""
        return {
            "rfho2": self.rfho2(),
            "JAX": self.jax(transposed=False),
            "JAX, transposed copy": self.jax(transposed=True),
            "PyTorch": self.torch(transposed=False),
            "PyTorch, transposed copy": self.torch(transposed=True),
        }


CASES = {"hyper_cleaning": HyperCleaning}


def compare(contestants: dict[str, Hypergradient], argument: np.ndarray, rounds: int) -> dict[str, float]:
    """Seconds of each, after all have been found to give the same."""
    found = {name: function(argument) for name, function in contestants.items()}
    ours = next(iter(found.values()))
    for name, grads in found.items():
        error = np.linalg.norm(grads - ours) / np.linalg.norm(ours)
        if not error <= 1e-4:
            raise AssertionError(f"{name} differs from rfho2 by {error:.1e}: nothing to compare.")
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, function in contestants.items():
            began = time.perf_counter()
            function(argument)
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def report(case: str, seconds: dict[str, float]) -> str:
    """A table with the ratio of our time to each peer's."""
    ours = next(iter(seconds.values()))
    lines = [f"| {case} | seconds | rfho2's time / its time |", "|---|---|---|"]
    lines += [f"| {name} | {s:.3f} | {ours / s:.2f} |" for name, s in seconds.items()]
    return "\n".join(lines)


def main() -> None:
    """Runs the cases asked for."""
    try:
        import jax
        import torch
    except ImportError as error:
        raise DataError(f'{error}; the comparison needs the peers: pip install -e ".[peers]"') from None
    torch.set_num_threads(os.cpu_count() or 1)
    print(f"tensorflow {tf.__version__}, jax {jax.__version__}, torch {torch.__version__}; {common.environment()['device']}")
    for name in FLAGS.cases:
        case = CASES[name]()
        print(report(name, compare(case.contestants(), case.weights, FLAGS.rounds)))


if __name__ == "__main__":
    flags.DEFINE_multi_enum("cases", list(CASES), sorted(CASES), "Which computations to compare.")
    flags.DEFINE_integer("rounds", ROUNDS, "The best of so many counts.")
    common.run_main(main)

"""The network of `mlp_problem` in other frameworks: one hypergradient of the validation error, three hypers.

784-200-200-10, tanh, batches of 100, T steps of momentum, v <- mu v + g, w <- w - eta v; the hypers are learning rate,
momentum and L2 weight. All frameworks train on the same batches, and are given their rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.benchmarks import mlp_problem
from experiments.benchmarks.mlp_problem import LAYERS, VALIDATION
from experiments.benchmarks.peer_case import Hypergradient

HYPERS = ("lr", "mu", "l2")  # in the order of the argument


def batch_rows(steps: int) -> np.ndarray:
    """The examples that `mlp_problem.problem` trains on at each step, [steps, 100]."""
    indices = tf.range(mlp_problem.EXAMPLES)
    draw = tf.function(rf.batches.shuffled(indices, mlp_problem.BATCH_SIZE, 0), autograph=False)
    return np.stack([draw(tf.constant(t)).numpy() for t in range(steps)])


def logits(p: Any, x: Any, tanh: Callable[[Any], Any]) -> Any:
    """The network, in the framework of `tanh`."""
    x = tanh(x @ p["w0"] + p["b0"])
    x = tanh(x @ p["w1"] + p["b1"])
    return x @ p["w2"] + p["b2"]


class Peer(NamedTuple):
    """The training in one framework.

    Attributes:
      start: the initial (weights, velocities).
      batch: rows -> (images, labels).
      rows: the rows of every step.
      error: (weights, batch) -> mean cross-entropy.
    """

    start: Any
    batch: Callable[[Any], tuple[Any, Any]]
    rows: Any
    error: Callable[[Any, Any], Any]

    def loss(self, l2: Any, rows: Any) -> Callable[[Any], Any]:
        """weights -> training loss on these rows."""
        batch = self.batch(rows)
        return lambda p: self.error(p, batch) + l2 * sum((p[f"w{i}"] ** 2).sum() for i in range(LAYERS))

    def step(self, gradient: Callable[[Callable[[Any], Any], Any], Any], state: Any, hypers: Any, rows: Any) -> Any:
        """One step of momentum on these rows; `gradient(loss, p)` is the framework's."""
        (p, v), (lr, mu, l2) = state, hypers
        g = gradient(self.loss(l2, rows), p)
        v = {name: mu * v[name] + g[name] for name in p}
        return {name: p[name] - lr * v[name] for name in p}, v

    def validation_error(self, p: Any) -> Any:
        """E."""
        return self.error(p, self.batch(VALIDATION))


class Mlp:
    """What forward and reverse mode share."""

    STEPS = 200
    entry_tolerance: float | None = 1e-3  # the norm would show only the largest of three entries of different size

    def __init__(self, steps: int):
        self.steps = steps
        self.argument = np.array([mlp_problem.HYPERS[name] for name in HYPERS], np.float32)
        weights = {name: w.numpy() for name, w in mlp_problem.initial_params().items()}
        images, labels = mlp_problem.examples()
        shared = {"x": images, "y": labels.astype(np.int32), "rows": batch_rows(steps)}
        self.arrays = shared | {f"p/{name}": w for name, w in weights.items()}

    def stand_in(self) -> Any:
        """Itself."""
        return self

    def of_engine(self, mode: Callable[[rf.Problem], Any]) -> Hypergradient:
        """`rf.reverse` or `rf.forward`."""
        engine = mode(mlp_problem.problem(self.steps, self.arrays["rows"]))
        params = mlp_problem.initial_params()

        def hypergradient(hypers: np.ndarray) -> np.ndarray:
            grads = engine(params, dict(zip(HYPERS, hypers, strict=True))).grads
            return np.array([grads[name] for name in HYPERS])

        return hypergradient

    def in_torch(self, requires_grad: bool) -> Peer:
        """The training in PyTorch."""
        import torch

        def error(p: Any, batch: Any) -> Any:
            return torch.nn.functional.cross_entropy(logits(p, batch[0], torch.tanh), batch[1])

        arrays = {name: torch.tensor(array) for name, array in self.arrays.items()}
        weights = {name[2:]: w.requires_grad_(requires_grad) for name, w in arrays.items() if name.startswith("p/")}
        velocities = {name: torch.zeros_like(w) for name, w in weights.items()}
        images, labels, rows = arrays["x"], arrays["y"].long(), arrays["rows"].long()
        return Peer((weights, velocities), lambda r: (images[r], labels[r]), rows, error)

"""The network of `mlp_problem` in JAX and PyTorch: one hypergradient of the validation error, three hypers.

784-200-200-10, tanh, batches of 100, T steps of momentum, v <- mu v + g, w <- w - eta v; the hypers are learning rate,
momentum and L2 weight. All frameworks train on the same batches: the others are given the rows that rfho2 draws.
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
        start = weights, {name: np.zeros_like(w) for name, w in weights.items()}
        self.arrays = start, (images, labels.astype(np.int32)), batch_rows(steps)

    def rfho2(self, mode: Callable[[rf.Problem], Any]) -> Hypergradient:
        """`rf.reverse` or `rf.forward`."""
        engine, params = mode(mlp_problem.problem(self.steps)), mlp_problem.initial_params()

        def hypergradient(hypers: np.ndarray) -> np.ndarray:
            grads = engine(params, dict(zip(HYPERS, hypers, strict=True))).grads
            return np.array([grads[name] for name in HYPERS])

        return hypergradient

    def jitted(self, derivative: Callable[[Peer, Any], Any]) -> Hypergradient:
        """Jits `derivative(peer, hypers)`; the data are arguments: XLA would fold constants into the program."""
        import jax
        import jax.numpy as jnp

        def error(p: Any, batch: Any) -> Any:
            x, y = batch
            return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits(p, x, jnp.tanh)), y[:, None], 1))

        def of_arrays(arrays: Any, hypers: Any) -> Any:
            start, (x, y), rows = arrays
            return derivative(Peer(start, lambda r: (x[r], y[r]), rows, error), hypers)

        arrays, compiled = jax.tree.map(jnp.asarray, self.arrays), jax.jit(of_arrays)
        return lambda hypers: np.asarray(compiled(arrays, hypers))

    def jax_response(self, peer: Peer, checkpoint: bool = False) -> Callable[[Any], Any]:
        """hypers -> E(w_T), by `lax.scan`."""
        import jax

        def response(hypers: Any) -> Any:
            def body(state: Any, r: Any) -> tuple[Any, None]:
                return peer.step(jax_gradient, state, hypers, r), None

            # a scan needs no barriers against common subexpression elimination
            step = jax.checkpoint(body, prevent_cse=False) if checkpoint else body
            return peer.validation_error(jax.lax.scan(step, peer.start, peer.rows)[0][0])

        return response

    def in_torch(self, requires_grad: bool) -> Peer:
        """The training in PyTorch."""
        import torch

        def error(p: Any, batch: Any) -> Any:
            return torch.nn.functional.cross_entropy(logits(p, batch[0], torch.tanh), batch[1])

        (p, v), (x, y), rows = self.arrays
        weights = {name: torch.tensor(w, requires_grad=requires_grad) for name, w in p.items()}
        images, labels = torch.tensor(x), torch.tensor(y).long()
        velocities = {name: torch.tensor(w) for name, w in v.items()}
        return Peer((weights, velocities), lambda r: (images[r], labels[r]), torch.tensor(rows).long(), error)


def jax_gradient(loss: Callable[[Any], Any], p: dict[str, Any]) -> dict[str, Any]:
    """`jax.grad`, as `Peer.step` calls it."""
    import jax

    return jax.grad(loss)(p)

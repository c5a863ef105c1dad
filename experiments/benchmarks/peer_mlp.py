"""The network of experiments/benchmark.py for the peers: three hypers, by reverse mode.

784-200-200-10, tanh, batches of 100, T steps of momentum, v <- mu v + g, w <- w - eta v; the hypergradient of the validation
error by (learning rate, momentum, L2). All train on the same batches: peers are given the rows that ours draws.

Reverse: `jax.grad` through `lax.scan`, and with `jax.checkpoint` around the step, which keeps the states only, as ours does;
PyTorch's autograd through a Python loop, plain, with `torch.utils.checkpoint` around the step, by `higher` and by TorchOpt.
The last two take the rate and the momentum as settings of their optimiser; L2 stands in the loss, as for all.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.benchmarks import costs as benchmark

Hypergradient = Callable[[np.ndarray], np.ndarray]
HYPERS = ("lr", "mu", "l2")  # in the order of the argument
VALIDATION = slice(100)


def examples() -> tuple[np.ndarray, np.ndarray]:
    """The data of `benchmark.problem`; the first hundred are its validation set."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(5000, 784)).astype(np.float32), rng.integers(0, 10, 5000).astype(np.int32)


def order(steps: int) -> np.ndarray:
    """Which examples `benchmark.problem` trains on at each step, [steps, 100]."""
    draw = tf.function(rf.batches.shuffled(tf.range(5000), 100, 0), autograph=False)
    return np.stack([draw(tf.constant(t)).numpy() for t in range(steps)])


def logits(p: Any, x: Any, tanh: Callable[[Any], Any]) -> Any:
    """The network, in the framework that `tanh` is from."""
    x = tanh(x @ p["w0"] + p["b0"])
    x = tanh(x @ p["w1"] + p["b1"])
    return x @ p["w2"] + p["b2"]


class Peer(NamedTuple):
    """The training in one framework: initial state, rows -> batch, the rows of all steps, (p, batch) -> error."""

    start: Any
    batch: Callable[[Any], tuple[Any, Any]]
    rows: Any
    error: Callable[[Any, Any], Any]

    def loss(self, l2: Any, r: Any) -> Callable[[Any], Any]:
        """J on the rows r."""
        batch = self.batch(r)
        return lambda p: self.error(p, batch) + l2 * sum((p[f"w{i}"] ** 2).sum() for i in range(3))

    def step(self, gradient: Callable[[Callable[[Any], Any], Any], Any], state: Any, hypers: Any, r: Any) -> Any:
        """One step of momentum on the rows r; `gradient(loss, p)` is the framework's."""
        (p, v), (lr, mu, l2) = state, hypers
        g = gradient(self.loss(l2, r), p)
        v = {name: mu * v[name] + g[name] for name in p}
        return {name: p[name] - lr * v[name] for name in p}, v

    def validation_error(self, p: Any) -> Any:
        """E."""
        return self.error(p, self.batch(VALIDATION))


class Mlp:
    """What both modes share."""

    STEPS = 200
    each: float | None = 1e-3  # three hypers of different size: the norm alone would see the largest only

    def __init__(self, steps: int):
        self.steps = steps
        self.argument = np.array([benchmark.HYPERS[name] for name in HYPERS], np.float32)
        weights = {name: w.numpy() for name, w in benchmark.network().items()}
        self.arrays = (weights, {name: np.zeros_like(w) for name, w in weights.items()}), examples(), order(steps)

    def rfho2(self, mode: Callable[[rf.Problem], Any]) -> Hypergradient:
        """`rf.reverse` or `rf.forward`."""
        engine, params = mode(benchmark.problem(self.steps)), benchmark.network()

        def hypergradient(hypers: np.ndarray) -> np.ndarray:
            grads = engine(params, dict(zip(HYPERS, hypers, strict=True))).grads
            return np.array([grads[name] for name in HYPERS])

        return hypergradient

    def jitted(self, derivative: Callable[[Peer, Any], Any]) -> Hypergradient:
        """Jits `derivative(peer, hypers)`; the data go in as arguments, or XLA would fold them into the program."""
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

            # inside a scan the barriers of prevent_cse are not needed
            step = jax.checkpoint(body, prevent_cse=False) if checkpoint else body
            return peer.validation_error(jax.lax.scan(step, peer.start, peer.rows)[0][0])

        return response

    def in_torch(self, requires_grad: bool) -> Peer:
        """The training in PyTorch."""
        import torch

        def error(p: Any, batch: Any) -> Any:
            return torch.nn.functional.cross_entropy(logits(p, batch[0], torch.tanh), batch[1])

        (p, v), (x, y), rows = self.arrays
        start = {name: torch.tensor(w, requires_grad=requires_grad) for name, w in p.items()}
        images, labels = torch.tensor(x), torch.tensor(y).long()
        rest = {name: torch.tensor(w) for name, w in v.items()}
        return Peer((start, rest), lambda r: (images[r], labels[r]), torch.tensor(rows).long(), error)


def jax_gradient(loss: Callable[[Any], Any], p: dict[str, Any]) -> dict[str, Any]:
    """`jax.grad` where `Peer.step` wants a gradient."""
    import jax

    return jax.grad(loss)(p)


def _torch_gradient(loss: Callable[[Any], Any], p: dict[str, Any]) -> dict[str, Any]:
    import torch

    return dict(zip(p, torch.autograd.grad(loss(p), list(p.values()), create_graph=True), strict=True))


class MlpReverse(Mlp):
    """One reverse hypergradient."""

    memory = True

    def contestants(self) -> dict[str, Callable[[], Hypergradient]]:
        """What builds each, by name; ours first."""
        return {
            "rfho2": lambda: self.rfho2(rf.reverse),
            "JAX": lambda: self.jax(checkpoint=False),
            "JAX, checkpoint": lambda: self.jax(checkpoint=True),
            "PyTorch": lambda: self.torch(checkpoint=False),
            "PyTorch, checkpoint": lambda: self.torch(checkpoint=True),
            "PyTorch, higher": self.higher,
            "PyTorch, TorchOpt": self.torchopt,
        }

    def jax(self, checkpoint: bool) -> Hypergradient:
        """`jax.grad` through `lax.scan`, jitted."""
        import jax

        return self.jitted(lambda peer, hypers: jax.grad(self.jax_response(peer, checkpoint))(hypers))

    def torch(self, checkpoint: bool) -> Hypergradient:
        """`torch.autograd.grad` with `create_graph` through a Python loop."""
        from torch.utils.checkpoint import checkpoint as forgetful

        peer = self.in_torch(requires_grad=True)

        def response(hypers: Any) -> Any:
            state = peer.start
            for r in peer.rows:
                arguments = _torch_gradient, state, hypers, r
                state = forgetful(peer.step, *arguments, use_reentrant=False) if checkpoint else peer.step(*arguments)
            return peer.validation_error(state[0])

        return self._torch_hypergradient(response)

    def torchopt(self) -> Hypergradient:
        """The functional `torchopt.sgd`."""
        torchopt, peer = importlib.import_module("torchopt"), self.in_torch(requires_grad=True)

        def response(hypers: Any) -> Any:
            lr, mu, l2 = hypers
            optimizer, p = torchopt.sgd(lr, momentum=mu), peer.start[0]
            state = optimizer.init(p)
            for r in peer.rows:
                g = _torch_gradient(peer.loss(l2, r), p)
                updates, state = optimizer.update(g, state, params=p, inplace=False)
                p = torchopt.apply_updates(p, updates, inplace=False)
            return peer.validation_error(p)

        return self._torch_hypergradient(response)

    def higher(self) -> Hypergradient:
        """`higher.innerloop_ctx`, with rate and momentum overridden."""
        from torch import nn, optim

        higher, peer = importlib.import_module("higher"), self.in_torch(requires_grad=False)
        layers = [nn.Linear(*peer.start[0][f"w{i}"].shape) for i in range(3)]
        for i, layer in enumerate(layers):
            layer.weight.data.copy_(peer.start[0][f"w{i}"].T)
            layer.bias.data.copy_(peer.start[0][f"b{i}"])
        model = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
        optimizer = optim.SGD(model.parameters(), lr=1.0, momentum=0.5)  # both overridden

        def response(hypers: Any) -> Any:
            lr, mu, l2 = hypers
            with higher.innerloop_ctx(model, optimizer, override={"lr": [lr], "momentum": [mu]}) as (network, inner):

                def error(rows: Any) -> Any:
                    x, y = peer.batch(rows)
                    return nn.functional.cross_entropy(network(x), y)

                for r in peer.rows:
                    inner.step(error(r) + l2 * sum((w**2).sum() for w in network.parameters() if w.ndim == 2))
                return error(VALIDATION)

        return self._torch_hypergradient(response)

    def _torch_hypergradient(self, response: Callable[[Any], Any]) -> Hypergradient:
        import torch

        def hypergradient(array: np.ndarray) -> np.ndarray:
            hypers = torch.tensor(array, requires_grad=True)
            return torch.autograd.grad(response(hypers), hypers)[0].numpy()

        return hypergradient

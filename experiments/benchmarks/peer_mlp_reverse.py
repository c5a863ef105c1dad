"""The network of `peer_mlp` by reverse mode.

JAX: `jax.grad` through `lax.scan`, and with `jax.checkpoint` around the step, which keeps only the states, as rfho2 does.
PyTorch: autograd through a Python loop, plain, with `torch.utils.checkpoint` around the step, by `higher` and by TorchOpt.
`higher` and TorchOpt take the rate and the momentum as settings of their optimiser; the L2 term is part of the loss for all.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

import rfho2 as rf
from experiments.benchmarks.mlp_problem import LAYERS, VALIDATION
from experiments.benchmarks.peer_case import Hypergradient, InJax
from experiments.benchmarks.peer_mlp import Mlp


class MlpReverse(Mlp):
    """The hypergradient by reverse mode."""

    memory = True

    def rfho2(self) -> Hypergradient:
        """Builds ours."""
        return self.of_engine(rf.reverse)

    def jax(self) -> dict[str, InJax]:
        """The contestants in JAX, by name."""
        return {
            "JAX": InJax("mlp_reverse", {"checkpoint": False}),
            "JAX, checkpoint": InJax("mlp_reverse", {"checkpoint": True}),
        }

    def torch(self) -> dict[str, Callable[[], Hypergradient]]:
        """Functions that build the contestants in PyTorch, by name."""
        return {
            "PyTorch": lambda: self._in_torch(checkpoint=False),
            "PyTorch, checkpoint": lambda: self._in_torch(checkpoint=True),
            "PyTorch, higher": self.higher,
            "PyTorch, TorchOpt": self.torchopt,
        }

    def _in_torch(self, checkpoint: bool) -> Hypergradient:
        """`torch.autograd.grad` with `create_graph`, through a Python loop."""
        from torch.utils.checkpoint import checkpoint as recomputed

        peer = self.in_torch(requires_grad=True)

        def response(hypers: Any) -> Any:
            state = peer.start
            for r in peer.rows:
                arguments = _torch_gradient, state, hypers, r
                state = recomputed(peer.step, *arguments, use_reentrant=False) if checkpoint else peer.step(*arguments)
            return peer.validation_error(state[0])

        return _torch_hypergradient(response)

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

        return _torch_hypergradient(response)

    def higher(self) -> Hypergradient:
        """`higher.innerloop_ctx`, with rate and momentum overridden."""
        from torch import nn, optim

        higher, peer = importlib.import_module("higher"), self.in_torch(requires_grad=False)
        model = _torch_module(peer.start[0])
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

        return _torch_hypergradient(response)


def _torch_gradient(loss: Callable[[Any], Any], p: dict[str, Any]) -> dict[str, Any]:
    import torch

    return dict(zip(p, torch.autograd.grad(loss(p), list(p.values()), create_graph=True), strict=True))


def _torch_module(weights: dict[str, Any]) -> Any:
    """The network with these weights as a `torch.nn.Module`, which `higher` needs."""
    from torch import nn

    layers = [nn.Linear(*weights[f"w{i}"].shape) for i in range(LAYERS)]
    for i, layer in enumerate(layers):
        layer.weight.data.copy_(weights[f"w{i}"].T)
        layer.bias.data.copy_(weights[f"b{i}"])
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


def _torch_hypergradient(response: Callable[[Any], Any]) -> Hypergradient:
    import torch

    def hypergradient(array: np.ndarray) -> np.ndarray:
        hypers = torch.tensor(array, requires_grad=True)
        return torch.autograd.grad(response(hypers), hypers)[0].numpy()

    return hypergradient

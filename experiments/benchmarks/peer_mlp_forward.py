"""The network of `peer_mlp` by forward mode.

JAX: `jax.jacfwd`, vectorised over the three columns of the sensitivity Z = ds/dh, and a scan that linearises the step and
pushes the columns one after the other. PyTorch: `torch.func.jacfwd`. `higher` and TorchOpt have no forward mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rfho2 as rf
from experiments.benchmarks.peer_case import Hypergradient
from experiments.benchmarks.peer_mlp import HYPERS, Mlp, Peer, jax_gradient


class MlpForward(Mlp):
    """The hypergradient by forward mode."""

    memory = False  # no trajectory is kept, and a few states are less than the noise of the measurement

    def contestants(self) -> dict[str, Callable[[], Hypergradient]]:
        """Functions that build the contestants, by name; rfho2 first."""
        return {
            "rfho2": lambda: self.rfho2(rf.forward),
            "JAX, jacfwd": self.jax,
            "JAX, columns in turn": self.jax_columns,
            "PyTorch, jacfwd": self.torch,
        }

    def jax(self) -> Hypergradient:
        """`jax.jacfwd` through `lax.scan`, jitted."""
        import jax

        return self.jitted(lambda peer, hypers: jax.jacfwd(self.jax_response(peer))(hypers))

    def jax_columns(self) -> Hypergradient:
        """Z <- A Z + B in a scan, by one linearisation of the step and one product per column."""
        import jax
        import jax.numpy as jnp

        def derivative(peer: Peer, hypers: Any) -> Any:
            def body(carry: Any, r: Any) -> tuple[Any, None]:
                state, columns = carry
                new, push = jax.linearize(lambda s, h: peer.step(jax_gradient, s, h, r), state, hypers)
                return (new, [push(z, e) for z, e in zip(columns, jnp.eye(len(HYPERS)), strict=True)]), None

            zeros = [jax.tree.map(jnp.zeros_like, peer.start) for _ in HYPERS]
            ((p, _), columns), _ = jax.lax.scan(body, (peer.start, zeros), peer.rows)
            _, push = jax.linearize(peer.validation_error, p)
            return jnp.stack([push(z) for z, _ in columns])

        return self.jitted(derivative)

    def torch(self) -> Hypergradient:
        """`torch.func.jacfwd` through a Python loop."""
        import torch

        peer = self.in_torch(requires_grad=False)

        def response(hypers: Any) -> Any:
            state = peer.start
            for r in peer.rows:
                state = peer.step(lambda loss, p: torch.func.grad(loss)(p), state, hypers, r)
            return peer.validation_error(state[0])

        return lambda array: torch.func.jacfwd(response)(torch.tensor(array)).numpy()

"""The network of `peer_mlp` by forward mode.

JAX: `jax.jacfwd`, vectorised over the three columns of the sensitivity Z = ds/dh, and a scan that linearises the step and
pushes the columns one after the other. PyTorch: `torch.func.jacfwd`. `higher` and TorchOpt have no forward mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rfho2 as rf
from experiments.benchmarks.peer_case import Hypergradient, InJax
from experiments.benchmarks.peer_mlp import Mlp


class MlpForward(Mlp):
    """The hypergradient by forward mode."""

    memory = False  # no trajectory is kept, and a few states are less than the noise of the measurement

    def rfho2(self) -> Hypergradient:
        """Builds ours."""
        return self.of_engine(rf.forward)

    def jax(self) -> dict[str, InJax]:
        """The contestants in JAX, by name."""
        return {
            "JAX, jacfwd": InJax("mlp_forward", {"columns_in_turn": False}),
            "JAX, columns in turn": InJax("mlp_forward", {"columns_in_turn": True}),
        }

    def torch(self) -> dict[str, Callable[[], Hypergradient]]:
        """Functions that build the contestants in PyTorch, by name."""
        return {"PyTorch, jacfwd": self._in_torch}

    def _in_torch(self) -> Hypergradient:
        """`torch.func.jacfwd` through a Python loop."""
        import torch

        peer = self.in_torch(requires_grad=False)

        def response(hypers: Any) -> Any:
            state = peer.start
            for r in peer.rows:
                state = peer.step(lambda loss, p: torch.func.grad(loss)(p), state, hypers, r)
            return peer.validation_error(state[0])

        return lambda array: torch.func.jacfwd(response)(torch.tensor(array)).numpy()

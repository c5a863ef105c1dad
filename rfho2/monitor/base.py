"""What a callback is."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rfho2.core.types import HyperGradient, Hypers, Result, Run


class Callback:
    """Watches a run. Override what is wanted; an object with any of these methods will do too."""

    def on_start(self, run: Run) -> None:
        """Before hyper-iteration `run.first`, which is not 0 when a run is taken up again."""

    def on_norms(self, k: int, norms: dict[str, float]) -> None:
        """Just before `on_hyper_iteration`: how large adjoint or sensitivity is, which tells of a divergence to come."""

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: HyperGradient, extra: dict[str, Any]) -> None:
        """After the hypergradient at `hypers`, with the metrics as `extra`."""

    def on_end(self, result: Result) -> None:
        """At the end, also when it is an error or Ctrl-C."""


def values(hypergradient: HyperGradient) -> dict[str, tf.Tensor]:
    """The objective's value as `value`, or several as `value/<name>`."""
    value = hypergradient.value
    return {f"value/{name}": v for name, v in value.items()} if isinstance(value, dict) else {"value": value}

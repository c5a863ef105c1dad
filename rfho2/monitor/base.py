"""The base class of callbacks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rfho2.core.types import HyperGradient, Hypers, Result, Run
from rfho2.core.warn import warn


class Callback:
    """Watches a run. Override the methods you need; any object with some of these methods works too.

    A class whose `on_hyper_iteration` never reads `hypergradient.state` should declare `needs_state = False`: several
    hyper-iterations may then run in one compiled call, after which `on_hyper_iteration` is called for each. All but the last
    of them have no state: it is None.
    """

    needs_state = False  # of the empty method below; a class that overrides it needs the state unless it declares otherwise

    def __init_subclass__(cls) -> None:
        if "on_norms" in vars(cls):
            warn("on_norms is deprecated; use hypergradient.norms.", DeprecationWarning)

    def on_start(self, run: Run) -> None:
        """Called before hyper-iteration `run.first`, which is not 0 in a resumed run."""

    def on_norms(self, k: int, norms: dict[str, float]) -> None:
        """Deprecated: use `hypergradient.norms` in `on_hyper_iteration`, before which this is called with the same norms."""

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: HyperGradient, extra: dict[str, Any]) -> None:
        """Called after the hypergradient at `hypers`, with the metrics as `extra`."""

    def on_end(self, result: Result) -> None:
        """Called at the end of the run, even after an error or Ctrl-C."""


def values(hypergradient: HyperGradient) -> dict[str, tf.Tensor]:
    """The value of the objective as `value`, or those of several objectives as `value/<name>`."""
    value = hypergradient.value
    return {f"value/{name}": v for name, v in value.items()} if isinstance(value, dict) else {"value": value}

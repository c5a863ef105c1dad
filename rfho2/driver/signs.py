"""Notices a hyper that started positive and became negative, as an unconstrained learning rate can."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from rfho2.core.types import HyperGradient, Hypers, Run
from rfho2.core.warn import warn


class SignMonitor:
    """A callback that warns once for each hyper whose entries were all positive at the start, when one is negative.

    Args:
      constrained: names of hypers whose range the user has set.
    """

    needs_state = False

    def __init__(self, constrained: Collection[str] = ()) -> None:
        self._constrained = constrained
        self._start: dict[str, np.ndarray] = {}

    def on_start(self, run: Run) -> None:
        """Notes which hypers are positive."""
        arrays = {name: np.asarray(value) for name, value in run.hypers.items() if name not in self._constrained}
        self._start = {name: array for name, array in arrays.items() if array.size and np.all(array > 0)}

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: HyperGradient, extra: dict[str, Any]) -> None:
        """Compares; what a tuner reports on another scale (`extra`) may be negative on the scale on which it is tuned."""
        rescaled = {name.partition("/")[0] for name in extra}
        for name in [name for name in self._start if name not in rescaled and np.any(np.asarray(hypers[name]) < 0)]:
            start, now = self._start.pop(name), np.asarray(hypers[name])
            began = f"at {start:g}" if start.ndim == 0 else f"with all entries at {np.min(start):g} or above"
            warn(
                f"hyper '{name}' started {began}, and has become negative ({np.min(now):g}) at "
                f"hyper-iteration {k}. If that makes no sense, as for a learning rate, keep it positive: "
                f"rf.projected_adam(rate, constraints={{'{name}': rf.NonNegative()}}), or log_scale=['{name}']."
            )

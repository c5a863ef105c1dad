"""The table of engines: every test of what all engines have in common is parametrised over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import rfho2 as rf

HYPER_BATCH = 3  # of real time on a problem without an end


class Method(NamedTuple):
    """(problem, jit_compile=...) -> engine, and what carries the derivatives: "adjoint" or "sensitivity"."""

    make: Callable[..., rf.Engine]
    carrier: str


def _real_time(**settings: Any) -> Callable[..., rf.Engine]:
    """One hyper-batch of all the steps, whose hypergradient is then that of forward mode."""
    return lambda problem, **options: rf.real_time(problem, problem.steps or HYPER_BATCH, **settings, **options)


ENGINES = {
    "reverse": Method(rf.reverse, "adjoint"),
    "checkpointed": Method(lambda problem, **options: rf.reverse(problem, checkpoints=1, **options), "adjoint"),
    "forward": Method(rf.forward, "sensitivity"),
    "chunked": Method(lambda problem, **options: rf.forward(problem, chunk=2, **options), "sensitivity"),
    "real_time": Method(_real_time(), "sensitivity"),
    "real_time_without_carry": Method(_real_time(carry=False), "sensitivity"),
    "average": Method(lambda problem, **options: rf.average(rf.reverse(problem, **options), 2), "adjoint"),
    "together": Method(lambda problem, **options: rf.average(rf.reverse(problem, **options), 2, together=True), "adjoint"),
    "real_time_in_reverse": Method(_real_time(mode="reverse"), "adjoint"),
}

every_engine = pytest.mark.parametrize("method", ENGINES.values(), ids=ENGINES)

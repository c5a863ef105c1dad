"""The table of engines: every test of what all engines have in common is parametrised over it.

`rf.auto` is missing because it becomes one of these: tests/planning/test_auto.py compares it with the engine that it chose.
On a mesh the data has to be placed on it, in processes with several devices: tests/distribute.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container
from typing import Any, NamedTuple

import pytest

import rfho2 as rf

HYPER_BATCH = 3  # of real time on a problem without an end


class Method(NamedTuple):
    """One row.

    make: (problem, jit_compile=...) -> engine
    carrier: which norm the driver records: "adjoint" or "sensitivity", or the "residual" of the training
    whole: whether the hypergradient of a call is that of all the steps
    rates: whether it differentiates with respect to the learning rate, which does not affect the solution of a training
    """

    make: Callable[..., rf.Engine]
    carrier: str
    whole: bool = True
    rates: bool = True


def _real_time(**settings: Any) -> Callable[..., rf.Engine]:
    """One hyper-batch of all the steps, whose hypergradient is then that of forward mode."""
    return lambda problem, **options: rf.real_time(problem, problem.steps or HYPER_BATCH, **settings, **options)


def _mesh() -> Any:
    rf.distribute.initialize()
    return rf.distribute.mesh()


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
    "columns": Method(lambda problem, **options: rf.distribute.forward_columns(problem, _mesh(), **options), "sensitivity"),
    "one_step": Method(_real_time(discount=0.0), "adjoint", whole=False),
    "implicit": Method(rf.implicit, "residual", whole=False, rates=False),
    "warm_implicit": Method(
        lambda problem, **options: rf.implicit(problem, warm_start=True, **options), "residual", whole=False, rates=False
    ),
    "single_loop": Method(
        lambda problem, **options: rf.implicit(dataclasses.replace(problem, steps=1), single_loop=True, **options),
        "residual",
        whole=False,
        rates=False,
    ),
}

COMMON = ("reverse", "forward", "real_time", "implicit", "average")  # the quick ones, where engines share what is tested


def _rows(whole: bool, quick: Container[str]) -> pytest.MarkDecorator:
    rows = [
        pytest.param(method, id=name, marks=() if name in quick else pytest.mark.slow)
        for name, method in ENGINES.items()
        if method.whole or not whole
    ]
    return pytest.mark.parametrize("method", rows)


every_engine, every_whole_engine = (_rows(whole, ENGINES) for whole in (False, True))
common_engines, common_whole_engines = (_rows(whole, COMMON) for whole in (False, True))

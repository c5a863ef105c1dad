"""Checks one engine: its hypergradient along directions, compared with differences of what it claims to differentiate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from rfho2.core.types import Hypers, Nest, Norms
from rfho2.hypergradients.differences import compare, response, solved_response
from rfho2.hypergradients.engine import Engine
from rfho2.problem import Problem

RESIDUALS = 10.0  # times the linear residual: the error that an implicit hypergradient may have


class EngineComparison(NamedTuple):
    """For each hyper, the engine's derivative, the difference it is compared with and the error; and what is wrong."""

    columns: dict[str, tuple[float, float, float]]
    message: str


def compare_engine(engine: Engine, params: Nest, hypers: Hypers, rtol: float, seed: int) -> EngineComparison:
    """Compares the hypergradient of an engine with central differences.

    The differences are those of E(s_T); for real time, of E after the first hyper-batch; for `rf.implicit`, of E after a
    training that continues until it converges.
    """
    hypergradient = engine(params, hypers)
    value, limit = _reference(engine, params), rtol
    if engine.settings.get("method") == "implicit":
        limit = max(rtol, RESIDUALS * float(hypergradient.norms["linear residual"]))
    worst = compare(engine.problem, value, hypers, [hypergradient.grads], np.random.default_rng(seed))
    columns = {name: (one.numbers[0], one.numbers[1], one.error) for name, one in worst.items()}
    wrong = [name for name, (_, _, error) in columns.items() if not error <= limit]
    return EngineComparison(columns, _message(engine, hypergradient.norms, wrong, limit) if wrong else "")


def _reference(engine: Engine, params: Nest) -> Callable[[Hypers], dict[str, float]]:
    problem = engine.problem
    if engine.settings.get("method") == "implicit":
        return solved_response(problem, params)
    steps = int(Fraction(engine.settings["hyper_batch"])) if "hyper_batch" in engine.settings else problem.steps
    return response(dataclasses.replace(problem, steps=steps), params)


def _message(engine: Engine, norms: Norms, wrong: list[str], limit: float) -> str:
    method = engine.settings.get("method")
    text = f"the engine, {method}, disagrees with finite differences for {', '.join(wrong)}: see the table."
    if method != "implicit":
        return text
    residual, unsettled = (float(norms[name]) for name in ("linear residual", "unsettled"))
    return (
        f"{text} Errors up to {limit:.1e} are allowed, given its linear residual of {residual:.1e}. Its training was "
        f"{100 * unsettled:.2g} % of the objective away from a solution: use more steps if that is too much."
    )


def check_same_problem(engine: Engine, problem: Problem) -> None:
    """Requires an engine of the problem that is checked."""
    if engine.problem is not problem:
        raise ValueError("engine was made for another problem; pass the problem that it was made for, engine.problem.")

"""Recovery from divergence: repeats a hyper-iteration with other hypers instead of ending the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rfho2.core import errors, nest, rows
from rfho2.core.types import Hypers, Result
from rfho2.driver.calls import CallResult
from rfho2.driver.iteration import SPOILED
from rfho2.driver.projected_adam import HyperUpdate, with_rate_scaled
from rfho2.driver.run_state import PATIENCE, RunState
from rfho2.hypergradients.engine import Engine

Retry = Callable[[Hypers], Hypers]
"""hypers that diverged -> hypers with which to repeat the same hyper-iteration."""

MOST = 10  # setbacks in a row after which a run gives up
FIRST = "No earlier hyper-iteration finished."
GROWTH = 100.0  # times the largest norm so far that a hypergradient may have, where a run can step back


def retry_from(
    now: RunState, error: errors.DivergenceError, on_divergence: str | Retry, engine: Engine, optimizer: HyperUpdate
) -> RunState | None:
    """The state from which to repeat hyper-iteration k with other hypers; None if there is nothing left to try.

    Args:
      now: the state before the hyper-iteration that diverged.
      error: the divergence.
      on_divergence: that of `rf.HyperOptimizer`.
      engine, optimizer: those of the driver.
    """
    if on_divergence == "raise" or now.in_a_row >= MOST:
        return None
    retry = (
        _with_given_hypers(now, error, on_divergence, engine, optimizer)
        if callable(on_divergence)
        else _with_half_the_rate(now, optimizer)
    )
    return retry and retry._replace(setbacks=(*now.setbacks, error.what), in_a_row=max(retry.in_a_row, now.in_a_row + 1))


def _with_given_hypers(
    now: RunState, error: errors.DivergenceError, on_divergence: Retry, engine: Engine, optimizer: HyperUpdate
) -> RunState | None:
    """Repeats with the hypers that the user's function returns."""
    hypers = errors.checked_hypers(on_divergence(now.hypers), nest.flatten(now.state))
    if all(np.array_equal(hypers[name], now.hypers[name]) for name in hypers):  # the result would be the same
        return now._replace(in_a_row=PATIENCE) if error.finite else None
    # The optimiser's moments, and in real time Z, contain what led to the divergence.
    carry = engine.forget(now.carry)
    return now._replace(hypers=hypers, opt_state=optimizer.init(hypers), carry=carry, good=None)


def _with_half_the_rate(now: RunState, optimizer: HyperUpdate) -> RunState | None:
    """Repeats the last good update with half the hyper learning rate."""
    if now.good is None:
        return None
    opt_state = with_rate_scaled(now.good.opt_state, 1 / 2)
    if opt_state is None:
        return None
    good = now.good._replace(opt_state=opt_state)
    hypers, opt_state = optimizer.update(good.grads, good.opt_state, good.hypers)
    return now._replace(hypers=hypers, opt_state=opt_state, good=good)


def diverged(now: RunState, call: CallResult, limit: float) -> errors.DivergenceError:
    """The error for the hyper-iteration that failed; `now` is the state before it."""
    assert call.failed is not None
    hypergradient, numbers = call.failed.hypergradient, call.failed.numbers
    grads = {f"hypergradient of {name}": grad for name, grad in hypergradient.grads.items()}
    norms = {rows.norm_name(name): norm for name, norm in hypergradient.norms.items()}
    values = {name: number for name, number in numbers.items() if name.partition("/")[0] == "value"}
    first = {"optimiser's state": np.inf} if call.outcome == SPOILED else values
    return divergence(now.k, {**first, **grads, **norms}, now.result, np.inf if call.outcome == SPOILED else limit)


def divergence(
    iteration: int, quantities: Mapping[str, Any], result: Result | None = None, limit: float = np.inf
) -> errors.DivergenceError:
    """The error for a hyper-iteration whose value or hypergradient is not finite or exceeds its limit.

    `quantities` are those examined, by name.
    """
    norms = {name: float(np.linalg.norm(np.asarray(value, np.float64).ravel())) for name, value in quantities.items()}
    bad = [name for name, norm in norms.items() if not np.isfinite(norm)]
    if bad:
        wrong = f"not finite: {', '.join(bad)}"
    elif any(number > limit for name, number in quantities.items() if name == "value"):
        wrong = f"the value exceeds the limit, {limit:.6g}"
    else:
        wrong = f"the norm of a hypergradient is over {GROWTH:g} times the largest so far"
    shown = ", ".join(f"{name}: {norm:.6g}" for name, norm in norms.items())
    completed = f"Everything up to hyper-iteration {iteration - 1} is kept in .result." if iteration else FIRST
    what = f"hyper-iteration {iteration}: {wrong}. Norms: {shown}."
    value = [norm for name, norm in norms.items() if name.startswith("value")]
    advice = (
        "The objective is finite; the backward pass is not. Either the data have NaN or infinity, which a ReLU can hide "
        "from the value; or the adjoint overflows. Forward mode has no adjoint: rf.forward(problem), rf.real_time(..., "
        "mode='forward') or rf.tune(..., method='forward'). "
        if "norm of adjoint" in bad and np.all(np.isfinite(value))
        else ""
    )
    return errors.DivergenceError(
        f"{what} {advice}Try a smaller inner learning rate or an upper bound on it (rf.Box), a smaller hyper-rate, "
        f"fewer steps, or float64; look for log(0), 0/0 and sqrt at 0 in the loss, for NaN or infinity in data and hypers, "
        f"and for labels out of range. {completed}",
        iteration,
        result,
        not bad,
        what,
    )


def with_story(error: errors.DivergenceError, setbacks: tuple[str, ...]) -> errors.DivergenceError:
    """The error of a run that gives up, with a list of the setbacks from which it recovered before."""
    if not setbacks:
        return error
    story = "\n".join(f"  {number}. {text}" for number, text in enumerate(setbacks, 1))
    return errors.DivergenceError(
        f"{error} The run had recovered {len(setbacks)} times before:\n{story}",
        error.iteration,
        error.result,
        error.finite,
        error.what,
    )

"""Recovery from divergence: repeats a hyper-iteration with other hypers instead of ending the run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rfho2.core import errors, nest
from rfho2.core.types import Hypers
from rfho2.driver.projected_adam import HyperUpdate, with_rate_scaled
from rfho2.driver.run_state import RunState
from rfho2.hypergradients.engine import Engine

Retry = Callable[[Hypers], Hypers]
"""hypers that diverged -> hypers with which to repeat the same hyper-iteration."""

MOST = 10  # setbacks in a row after which a run gives up
PATIENCE = 2  # setbacks in a row after which a value above the limit is accepted as it is


def retry_from(
    now: RunState, error: errors.DivergenceError, how: str | Retry, engine: Engine, optimizer: HyperUpdate
) -> RunState | None:
    """The state from which to repeat hyper-iteration k with other hypers; None if there is nothing left to try.

    Args:
      now: the state before the hyper-iteration that diverged.
      error: the divergence.
      how: `on_divergence` of `rf.HyperOptimizer`.
      engine, optimizer: those of the driver.
    """
    if how == "raise" or now.in_a_row >= MOST:
        return None
    back = _with_given_hypers(now, error, how, engine, optimizer) if callable(how) else _with_half_the_rate(now, optimizer)
    return back and back._replace(setbacks=(*now.setbacks, error.what), in_a_row=max(back.in_a_row, now.in_a_row + 1))


def _with_given_hypers(
    now: RunState, error: errors.DivergenceError, how: Retry, engine: Engine, optimizer: HyperUpdate
) -> RunState | None:
    """Repeats with the hypers that the user's function returns."""
    hypers = errors.checked_hypers(how(now.hypers), nest.flatten(now.state))
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

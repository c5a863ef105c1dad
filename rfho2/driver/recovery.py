"""Going back where a hyper-iteration diverged, instead of ending."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rfho2.core import errors, nest
from rfho2.core.types import Hypers
from rfho2.driver.projected_adam import HyperUpdate
from rfho2.driver.run_state import Progress
from rfho2.hypergradients import Engine

Again = Callable[[Hypers], Hypers]
"""hypers -> hypers to try the same hyper-iteration with again, because those diverged."""

MOST = 10  # setbacks in a row, after which a run gives up
PATIENCE = 2  # setbacks in a row, after which a value above the limit is taken as it is


def again(
    now: Progress, error: errors.DivergenceError, how: str | Again, engine: Engine, optimizer: HyperUpdate
) -> Progress | None:
    """Hyper-iteration k once more, with other hypers; None if there is nothing left to try.

    Args:
      now: before the hyper-iteration that diverged.
      error: what it came to.
      how: `on_divergence` of `rf.HyperOptimizer`.
      engine, optimizer: the driver's.
    """
    if how == "raise" or now.in_a_row >= MOST:
        return None
    back = _elsewhere(now, error, how, engine, optimizer) if callable(how) else _less_far(now, optimizer)
    return back and back._replace(setbacks=(*now.setbacks, error.what), in_a_row=max(back.in_a_row, now.in_a_row + 1))


def _elsewhere(
    now: Progress, error: errors.DivergenceError, how: Again, engine: Engine, optimizer: HyperUpdate
) -> Progress | None:
    """With the hypers that the user's function says."""
    hypers = errors.checked_hypers(how(now.hypers), nest.flatten(now.state))
    if all(np.array_equal(hypers[name], now.hypers[name]) for name in hypers):  # it would come to the same
        return now._replace(in_a_row=PATIENCE) if error.finite else None
    # What led astray is in the optimiser's moments, and in real time in Z.
    carry = getattr(engine, "forget", lambda carry: carry)(now.carry)
    return now._replace(hypers=hypers, opt_state=optimizer.init(hypers), carry=carry, good=None)


def _less_far(now: Progress, optimizer: HyperUpdate) -> Progress | None:
    """From the last good hypers again, with half of the hyper-rate."""
    if now.good is None or not hasattr(now.good.opt_state, "learning_rate"):
        return None
    rate = {name: r / 2 for name, r in now.good.opt_state.learning_rate.items()}
    good = now.good._replace(opt_state=now.good.opt_state._replace(learning_rate=rate))
    hypers, opt_state = optimizer.update(good.grads, good.opt_state, good.hypers)
    return now._replace(hypers=hypers, opt_state=opt_state, good=good)

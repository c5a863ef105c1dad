"""Protects real-time tuning from bad learning rates: before the first step, and while training runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from rfho2.core.types import Hypers
from rfho2.core.warn import warn
from rfho2.keras_bridge.training.tunables import LOWER, Tunables

Limit = Callable[[list[dict[str, float]]], float]
"""history -> the largest acceptable validation loss."""

RAISE = 8.0  # factor on the learning rate from one trial to the next, upwards
NO_WORSE = 0.01  # share of the first validation loss by which a trial may be worse than another
TRIAL = 3  # hyper-batches that a trial of an initial learning rate takes
LOST = 0.1  # tolerated loss of progress, as a share of the fall of the validation loss
BETTER = 0.05  # share of the first validation loss by which a trial has to be better than another
PLATEAU = 0.1  # share of the first validation loss; until more is gained, there is little to lose
EARLY = 0.25  # tolerated share of the first validation loss, until then
FLOOR = 1.01  # times the lower end of the range: values below count as being at the end
ERRORS = 3  # standard errors of the validation loss that count as noise
VARIANCE = 0.4  # of the losses of examples, divided by the mean and the first mean: a coefficient of variation of 0.6 at the
# beginning, and of 4 when a classifier has lowered the loss to a fortieth


Trial = Callable[[Hypers], float]
"""hypers -> the validation loss after `TRIAL` hyper-batches of training with them."""


def safe_start(trial: Trial, hypers: Hypers, tunables: Tunables, first: float) -> Hypers:
    """The given hypers, with a smaller learning rate if that does better in the first hyper-batches, or a larger one.

    Learning rates smaller by factors of 4 are tried until two in a row do no better than a finite one. If none does, larger
    ones, by factors of 8, are tried as long as they do no worse: where nothing has been learned yet at any rate, learning
    begins sooner at a large one. The first steps at a rate that is too large cause damage (dead units) that no hypergradient
    repairs, and the rate that does best in so few steps is often too large. So the start
    is a quarter of that rate; tuning raises it if needed.

    Args:
      first: the validation loss before training, of which `BETTER` and `NO_WORSE` are shares.
    """

    def finite(hypers: Hypers) -> float:
        loss = trial(hypers)
        return loss if np.isfinite(loss) else np.inf

    loss = finite(hypers)
    smaller = _smaller(finite, hypers, tunables, loss, BETTER * abs(first))
    chosen = _larger(finite, hypers, tunables, loss, NO_WORSE * abs(first)) if smaller is None else smaller
    return hypers if chosen is None else tunables.with_learning_rate_times(LOWER, chosen)


def _smaller(trial: Trial, hypers: Hypers, tunables: Tunables, lowest: float, margin: float) -> Hypers | None:
    """The hypers with the best smaller learning rate, if there is one that is better by the margin."""
    best, failures = None, 0
    while failures < 2:
        smaller = tunables.with_learning_rate_times(LOWER, hypers)
        if _same(smaller, hypers):  # not tuned, or at its lower bound
            break
        hypers = smaller
        loss = trial(hypers)
        if loss < lowest - margin:
            best, lowest, failures = hypers, loss, 0
        elif np.isfinite(lowest):
            failures += 1
    return best


def _larger(trial: Trial, hypers: Hypers, tunables: Tunables, lowest: float, margin: float) -> Hypers | None:
    """The hypers with the largest learning rate up to which none is worse than another by more than the margin."""
    best = None
    while True:
        larger = tunables.with_learning_rate_times(RAISE, hypers)
        if _same(larger, hypers):
            return best
        hypers = larger
        loss = trial(hypers)
        if not np.isfinite(loss) or loss > lowest + margin:
            return best
        best, lowest = hypers, min(lowest, loss)


def _same(a: Hypers, b: Hypers) -> bool:
    return all(np.array_equal(a[name], b[name]) for name in a)


def warn_at_the_floor(hypers: Mapping[str, np.ndarray], tunables: Tunables) -> None:
    """Warns if a learning rate has sunk to the lower end of its range, where training may have stopped."""
    low = tunables.ranges.get("learning_rate", (0.0, 0.0))[0]
    if "learning_rate" in hypers and np.any(hypers["learning_rate"] <= FLOOR * low):
        warn(
            f"a learning rate ended at the lower end of its range, {low:g}, where training may have come to a stop. A few "
            f"validation examples may dominate the validation loss (outliers, wrong labels): look at them, train with a "
            f"fixed rate, or pass ranges={{'learning_rate': (low, high)}} with a lower end that suits the model."
        )


def loss_limit(first: float, examples: int) -> Limit:
    """The validation loss above which a tenth of the progress since the start is lost, by more than noise explains.

    `examples` is their number in a validation batch.
    """

    def limit(history: list[dict[str, float]]) -> float:
        values = [row["value"] for row in history]
        best = min([first, *values])
        size = abs(first) if best > 0 else max(abs(first), first - best)  # a loss that may be negative may begin near 0
        noise = ERRORS * np.sqrt(VARIANCE * (best if best > 0 else size) * size / examples)
        return best + max(LOST * (first - best), noise if first - best > PLATEAU * size else EARLY * size)

    return limit

"""When a training ends before its budget of steps: functions from the history of a run to a decision."""

from __future__ import annotations

from collections.abc import Callable

from experiments.phone_classification.config import PhoneTraining

History = list[dict[str, float]]
"""One row per hyper-batch."""

Stop = Callable[[History], bool]

ZERO_RATES = 5  # hyper-batches with a learning rate of 0, after which real time ends


def any_of(*reasons: Stop) -> Stop:
    """Stops if any of these does."""
    return lambda history: any(reason(history) for reason in reasons)


def out_of_time(training: PhoneTraining) -> Stop:
    """Stops when the minutes are over, if the budget is in minutes."""
    return lambda history: training.minutes is not None and bool(history) and history[-1]["seconds"] >= 60 * training.minutes


def stalled(training: PhoneTraining) -> Stop:
    """Early stopping: ends after `patience` evaluations that did not improve the best accuracy enough."""

    def stop(history: History) -> bool:
        best, since = 0.0, 0
        for row in history:
            better = row["validation accuracy"] > best * (1 + training.improvement)
            best, since = (row["validation accuracy"], 0) if better else (best, since + 1)
        return since >= training.patience

    return stop


def learning_rate_gone(history: History) -> bool:
    """Whether eta, once positive, has been exactly 0 in the last hyper-batches: nothing changes any more."""
    rates = [row["eta"] for row in history]
    return len(rates) > ZERO_RATES and not any(rates[-ZERO_RATES:]) and any(rates)

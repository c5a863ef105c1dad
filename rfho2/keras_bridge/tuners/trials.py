"""Short trainings before a fit, which compare initial learning rates."""

from __future__ import annotations

import math
from fractions import Fraction

from rfho2.batches import Stream
from rfho2.core import errors
from rfho2.core.compiled import graph_function
from rfho2.core.types import Hypers, Nest
from rfho2.keras_bridge.training.keras_training import KerasTraining
from rfho2.keras_bridge.training.tunables import Tunables
from rfho2.keras_bridge.tuners.safeguards import TRIAL, Trial, safe_start
from rfho2.keras_bridge.tuners.stages import Stages
from rfho2.problem import Problem


def tried_start(trial: Trial, start: Hypers, tunables: Tunables, first: float, stages: Stages, scheduled: bool) -> Hypers:
    """The hypers from which a fit starts, after trials whose learning rates (or factors on a schedule) are printed."""
    if "learning_rate" not in tunables.start:
        return safe_start(trial, start, tunables, first)
    with stages(f"Trying {'factors on the learning rate' if scheduled else 'learning rates'}"):
        return safe_start(stages.telling(trial, tunables.rate_as_text), start, tunables, first)


def trial_steps(hyper_batch: Fraction, updates: int) -> int:
    """The steps of a trial: a few hyper-batches, but no more than a third of a short fit, and one hyper-batch at least."""
    hyper_batches = min(Fraction(TRIAL), max(Fraction(1), Fraction(updates, TRIAL)))
    return math.floor(hyper_batches * hyper_batch)


def make_trial(problem: Problem, objective_training: KerasTraining, params: Nest, batch: Nest, length: int) -> Trial:
    """hypers -> the validation loss after so many steps of training with them; in graph mode, because it is short."""
    train = graph_function(lambda hypers, streamed: problem.reading(streamed, 0).train(params, hypers, length))

    def trial(hypers: Hypers) -> float:
        streamed = problem.batches.take(length) if isinstance(problem.batches, Stream) else ()
        state = train(errors.checked_hypers(hypers, params), streamed)
        return float(objective_training.objective(problem.dynamics.params(state), {}, batch))

    return trial

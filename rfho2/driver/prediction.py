"""Whether the hypergradients of a run can be trusted: they have to predict how the objective changes with the hypers.

Between two hyper-iterations, at hypers a and b, the objective changes by f(b) - f(a); by the trapezoidal rule that is
(grad f(a) + grad f(b)) (b - a) / 2, up to the third power of b - a. All of these numbers are computed anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rfho2.batches import Stream, constant, of_episodes
from rfho2.core import graphs, nest
from rfho2.core.types import HyperGradient, Hypers, Nest, Result
from rfho2.core.warn import warn
from rfho2.hypergradients.engine import Engine, MethodEngine, Processes
from rfho2.hypergradients.episodes import ParamsFunction
from rfho2.problem import Problem

EVERY = 10  # changes that are checked together: a single one may be chance
FEWEST = 3  # changes that are enough at the end of a run
WRONG = 0.5  # the difference between a real and a predicted change, relative to the larger one, that counts as an error
GROWTH = 1e3  # of the adjoint from the last step to the first: "orders of magnitude"
ADVICE = (
    "Try a smaller learning rate, inner or hyper, or fewer steps; rf.reverse(problem, truncate=...), which leaves out early "
    "steps; rf.real_time(..., discount=...), which forgets them; or rf.HyperOptimizer(clip=...), which bounds the damage. "
    "In rf.tune: fewer steps, a smaller hyper_rate, narrower ranges. The best hypers so far are kept in any case."
)


class Change(NamedTuple):
    """The change of the objective between two hyper-iterations, and the change that the hypergradients predict."""

    real: float
    predicted: float

    @property
    def size(self) -> float:
        """The larger of the two."""
        return max(abs(self.real), abs(self.predicted))

    @property
    def wrong(self) -> bool:
        """Whether the prediction is wrong."""
        return abs(self.real - self.predicted) > WRONG * self.size


class PredictionMonitor:
    """A callback that warns once about hypergradients that do not predict the objective, and about chaotic training.

    The predictions are checked only if the objective is a function of the hypers alone (`repeats`). Otherwise the growth of
    the adjoint in reverse mode is checked.
    """

    def __init__(self, engine: Engine, start: Nest):
        self._engine = engine
        self._alone = isinstance(engine, MethodEngine) and type(engine.processes) is Processes  # not on a mesh
        self._repeats = repeats(engine, start)
        self._before: tuple[Hypers, HyperGradient] | None = None
        self._changes: list[Change] = []
        self._due: list[list[Change]] = []  # changes to be checked together
        self._warned = not engine.afresh

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: HyperGradient, extra: dict[str, Any]) -> None:
        """Records the change since the previous hyper-iteration."""
        if self._warned:
            return
        now = dict(hypers), hypergradient
        if self._before is not None:
            self._changes.append(change(self._before, now))
        self._before = now
        if len(self._changes) == EVERY:
            self._due, self._changes = [*self._due, self._changes], []
        if hypergradient.state is not None:  # the last one in a call
            self._judge()

    def on_end(self, result: Result) -> None:
        """Checks the changes that have not been checked yet."""
        if not self._warned and len(self._changes) >= FEWEST:
            self._due.append(self._changes)
            self._judge()

    def _judge(self) -> None:
        """Checks the changes that are due, until it has warned once."""
        due, self._due = self._due, []
        for changes in due:
            if self._before is not None:
                wrong = self._repeats and not predicted(changes, _smallest(self._before[1]))
                growth = self._growth() if wrong or not self._repeats else 0.0
                if wrong or growth > GROWTH:
                    warn(" ".join(_message(changes if wrong else [], growth)))
                    self._warned, self._before = True, None  # which holds a state

    def _growth(self) -> float:
        """|alpha_0| / |alpha_T| of the last hyper-iteration; 0 if it is not known."""
        assert self._before is not None
        problem, hypergradient = self._engine.problem, self._before[1]
        hypers = nest.map(tf.constant, self._before[0])
        adjoint = float(hypergradient.norms.get("adjoint", 0.0))
        if not self._alone or not adjoint:
            return 0.0
        terms = [term for term in problem.terms(hypers) if term.every is None]
        ends = [term.cost(problem.dynamics, hypergradient.state, hypers, term.batch(tf.constant(0))) for term in terms]
        last = float(nest.norm([end.state for end in ends])) if ends else 0.0
        return adjoint / last if last else 0.0


def repeats(engine: Engine, start: Nest) -> bool:
    """Whether each hyper-iteration computes the same function of the hypers: same params, batches and validation data."""
    problem = engine.problem
    if not engine.afresh or not isinstance(problem, Problem):
        return False
    if isinstance(start, ParamsFunction) and _differs(start.function, engine):
        return False
    batches = problem.batches
    if isinstance(batches, Stream) or (batches is not None and of_episodes(batches) and _differs(batches, engine)):
        return False
    if isinstance(problem.objective, Mapping):  # each of several objectives is differentiated by some of the hypers only
        return False
    validation = problem.validation
    return validation is None or constant(validation) or not graphs.depends(graphs.of_index(validation))


def _differs(function: Callable[..., Nest], engine: Engine) -> bool:
    """Whether a function of the episode differs between hyper-iterations; `function.period` is after how many it repeats."""
    episodes, period = engine.settings.get("n", 1), getattr(function, "period", None)
    return period is None or episodes % period != 0


def change(before: tuple[Hypers, HyperGradient], now: tuple[Hypers, HyperGradient]) -> Change:
    """The change between two hyper-iterations, each given by its hypers and hypergradient."""
    (a, first), (b, second) = before, now
    products = [
        np.vdot(np.asarray(first.grads[name], float) + np.asarray(second.grads[name], float), np.asarray(b[name] - a[name]))
        for name in a
    ]
    return Change(_total(second) - _total(first), 0.5 * float(sum(products)))


def _total(hypergradient: HyperGradient) -> float:
    return float(sum(map(float, nest.flatten(hypergradient.value))))


def predicted(changes: list[Change], smallest: float) -> bool:
    """Whether most of the changes were predicted; those below `smallest` may be rounding errors.

    A majority, and not a sum: a single large first step would outweigh all others.

    >>> predicted([Change(-0.2, -0.25), Change(0.1, 0.08), Change(0.1, 41.0)], smallest=1e-6)
    True
    >>> predicted([Change(-0.2, -30.0), Change(0.1, 0.08), Change(0.1, 41.0)], smallest=1e-6)
    False
    """
    visible = [change for change in changes if change.size > smallest]
    return len(visible) < FEWEST or sum(change.wrong for change in visible) <= len(visible) / 2


def _smallest(hypergradient: HyperGradient) -> float:
    """The smallest change that counts; a square root of the precision, because errors of thousands of steps add up."""
    value = np.asarray(hypergradient.value)
    return float(np.sqrt(np.finfo(value.dtype).eps)) * abs(float(value))


def _message(changes: list[Change], growth: float) -> list[str]:
    parts = []
    real, expected = (sum(abs(getattr(c, field)) for c in changes) for field in Change._fields)
    if changes:
        parts.append(
            f"the hypergradients do not predict the objective: {sum(c.wrong for c in changes)} of its last {len(changes)} "
            f"changes differ from the predictions. On average its changes have size {real / len(changes):.3g}, and the "
            f"predictions {expected / len(changes):.3g}."
        )
    if growth > GROWTH:
        parts.append(
            f"The adjoint grows {growth:.1g}-fold from the last training step to the first: training is chaotic, and tiny "
            f"changes of the hypers change its result. {ADVICE}"
        )
    elif expected > 10 * real:
        parts.append(f"Hypergradients that are far too large are a sign of chaotic training, or of large updates. {ADVICE}")
    else:
        parts.append(
            "Either the updates are too large (try a smaller hyper-rate), or training is not a deterministic, smooth "
            "function of the hypers, or the engine's approximation is poor (truncate, rf.implicit). The best hypers so far "
            "are kept in any case. rf.check_hypergradient compares the hypergradient of an rf.Problem with differences."
        )
    return parts

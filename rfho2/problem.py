"""The problem to solve: a dynamics that runs for T steps, and the objectives that the hypers minimise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.batches import Stream, of_episodes
from rfho2.core import errors, loops, nest
from rfho2.core.types import Batches, Hypers, Nest, Value
from rfho2.dynamics.base import Dynamics


class RunningCost(NamedTuple):
    """An objective summed along the trajectory: the sum of fn(w_t, hypers, batch) at t = every, 2 every, ... <= T.

    In real time the sum runs over the steps of one hyper-batch, the training steps between two hypergradients.
    """

    fn: Callable[[Nest, Hypers, Nest], tf.Tensor]
    every: int = 1


class Objective(NamedTuple):
    """One of several objectives, with the names of the hypers that it tunes.

    Attributes:
      fn: (params, hypers, batch) -> scalar, or a `RunningCost`.
      hypers: names; each hyper belongs to exactly one objective.
      batches: k -> batch for this objective; the problem's `validation` by default.
    """

    fn: Callable[[Nest, Hypers, Nest], tf.Tensor] | RunningCost
    hypers: Sequence[str]
    batches: Batches | None = None


@dataclass(frozen=True)
class Problem:
    """min over the hypers of E(s_T), where s_t = Phi_t(s_{t-1}, hypers), t = 1..T.

    Args:
      dynamics: the inner training, such as `rf.momentum(loss, "lr", "mu")`.
      objective: E, (params, hypers, batch) -> scalar; a `RunningCost`; or a dict of `Objective`s.
      steps: T; None for real time only.
      batches: t -> training batch, a pure function of t (see `rf.batches`); with None the loss receives None as its batch.
        A function (t, k) -> batch gives each hyper-iteration k its own episode: different data, order or task.
      validation: k -> batch for the objective at hyper-iteration k; with None the objective receives None.

    >>> import rfho2 as rf
    >>> loss = lambda w, hypers, batch: (w - 1.0) ** 2
    >>> problem = rf.Problem(rf.gradient_descent(loss, "lr"), loss, steps=10)
    """

    dynamics: Dynamics
    objective: Any
    steps: int | None
    batches: Batches | None = None
    validation: Batches | None = None

    def __post_init__(self) -> None:
        if self.steps is not None:
            object.__setattr__(self, "steps", errors.check_count("steps", self.steps))
        if not all(callable(getattr(self.dynamics, part, None)) for part in ("init", "step", "params")):
            raise TypeError(
                f"dynamics is {type(self.dynamics).__name__}; pass rf.gradient_descent(...), rf.adam(...), ... or an "
                f"rf.Dynamics(init, step, params) of three functions."
            )
        for argument in ("batches", "validation"):
            if getattr(self, argument) is not None:
                errors.check_callable(argument, getattr(self, argument), "index -> batch, such as rf.batches.full(data)")
        for term in self.terms(()):
            errors.check_callable(f"objective {term.name}".strip(), term.fn, "(params, hypers, batch) -> scalar")
            if term.every is not None:
                errors.check_count("every", term.every, most=self.steps)
            if term.batches is not None:
                errors.check_callable(f"batches of objective {term.name}".strip(), term.batches, "k -> batch")
            if isinstance(term.batches, Stream):
                raise TypeError("validation is a stream; only `batches` can be one. Use rf.batches.shuffled or full.")

    def terms(self, hypers: Sequence[str] | Hypers) -> list[Term]:
        """The objectives in a uniform form; a single objective tunes all the `hypers`."""
        if not isinstance(self.objective, Mapping):
            return [Term.of("", Objective(self.objective, tuple(hypers)), self.validation)]
        if not all(isinstance(o, Objective) for o in self.objective.values()) or not self.objective:
            raise TypeError("objective: the values of the dict have to be rf.Objective(fn, hypers=[...names]).")
        return [Term.of(name, objective, self.validation) for name, objective in self.objective.items()]

    def batch(self, t: tf.Tensor, k: int | tf.Tensor = 0) -> Nest:
        """The training batch of step t in hyper-iteration k."""
        if self.batches is None:
            return None
        return self.batches(t, tf.convert_to_tensor(k, tf.int32)) if of_episodes(self.batches) else self.batches(t)

    def step(self, state: Nest, hypers: Hypers, t: tf.Tensor, k: int | tf.Tensor = 0) -> Nest:
        """s_{t+1} from s_t, in hyper-iteration k."""
        return self.dynamics.step(state, hypers, self.batch(t, k), t)

    def train(self, params: Nest, hypers: Hypers, steps: int | tf.Tensor | None = None, k: int | tf.Tensor = 0) -> Nest:
        """Trains without derivatives: s_T, or s_steps, of hyper-iteration k; for use inside a graph."""
        start, steps = self.dynamics.init(params, hypers), self.steps if steps is None else steps
        return loops.fold(lambda state, t: self.step(state, hypers, t, k), start, 0, steps)

    def reading(self, streamed: Nest, begin: int | tf.Tensor) -> Problem:
        """The problem with batches that were already read from its stream: stacked, the first one for time `begin`.

        A problem whose batches do not come from a stream is returned unchanged.
        """
        if not isinstance(self.batches, Stream):
            return self
        return replace(self, batches=lambda t: nest.map(lambda leaf: tf.gather(leaf, t - begin), streamed))

    def value(self, terms: Sequence[Term], values: Sequence[tf.Tensor]) -> Value:
        """A scalar for one objective, a dict for several."""
        return {t.name: v for t, v in zip(terms, values, strict=True)} if isinstance(self.objective, Mapping) else values[0]

    def norm(self, adjoints: Nest) -> tf.Tensor:
        """The norm of adjoints of the state; its mean over episodes, if the problem consists of several."""
        return nest.norm(adjoints)

    def squares(self, sensitivity: Nest) -> tf.Tensor:
        """The sum of the squares of Z, whose columns lie along the first axis; one per episode, if there are several."""
        return nest.dot(sensitivity, sensitivity)


class Cost(NamedTuple):
    """An objective at one state: its value, dE/ds, and the direct derivative with respect to the hypers it tunes."""

    value: tf.Tensor
    state: Nest
    hypers: dict[str, tf.Tensor]


class Term(NamedTuple):
    """One objective in uniform form; `every` is None unless it is a running cost."""

    name: str
    fn: Callable[[Nest, Hypers, Nest], tf.Tensor]
    every: int | None
    hypers: tuple[str, ...]
    batches: Batches | None

    @classmethod
    def of(cls, name: str, objective: Objective, validation: Batches | None) -> Term:
        """Builds the term from the user's objective."""
        fn, every = objective.fn if isinstance(objective.fn, RunningCost) else (objective.fn, None)
        if isinstance(objective.hypers, str):
            raise TypeError(f"objective '{name}': hypers is the string '{objective.hypers}'; pass a list of names.")
        batches = validation if objective.batches is None else objective.batches
        return cls(name, fn, every, tuple(objective.hypers), batches)

    def batch(self, k: tf.Tensor) -> Nest:
        """The batch of hyper-iteration k."""
        return None if self.batches is None else self.batches(k)

    def tuned(self, hypers: Hypers) -> dict[str, tf.Tensor]:
        """The hypers that this objective tunes."""
        return {name: hypers[name] for name in self.hypers}

    def cost(self, dynamics: Dynamics, state: Nest, hypers: Hypers, batch: Nest) -> Cost:
        """Value and partial derivatives of the objective at `state`."""
        tuned = self.tuned(hypers)
        with tf.GradientTape() as tape:
            tape.watch((state, tuned))
            value = self.fn(dynamics.params(state), hypers, batch)
        errors.check_scalar(f"objective {self.name}".strip(), value, nest.flatten(state)[0].dtype)
        ds, dh = tape.gradient(value, (state, tuned), unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return Cost(value, nest.dense(ds), nest.dense(dh))

    def at_end(self, dynamics: Dynamics, state: Nest, hypers: Hypers, batch: Nest) -> Cost:
        """The cost at the last state; zero for a running cost."""
        if self.every is None:
            return self.cost(dynamics, state, hypers, batch)
        return self.nothing(state, hypers)

    def after(self, t: tf.Tensor, dynamics: Dynamics, state: Nest, hypers: Hypers, batch: Nest) -> Cost | None:
        """The running cost at s_t, computed only at t = every, 2 every, ...; None if this is not a running cost."""
        if self.every is None:
            return None
        return tf.cond(
            tf.logical_and(t > 0, t % self.every == 0),
            lambda: self.cost(dynamics, state, hypers, batch),
            lambda: self.nothing(state, hypers),
        )

    def nothing(self, state: Nest, hypers: Hypers) -> Cost:
        """The zero cost."""
        zero = tf.zeros([], nest.flatten(state)[0].dtype)
        return Cost(zero, nest.zeros_like(state), nest.zeros_like(self.tuned(hypers)))

"""Several episodes as one problem, whose every step, replay and objective is vectorised over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tensorflow as tf

from rfho2.batches import constant, of_episodes
from rfho2.core import nest
from rfho2.core.types import Batches, Hypers, Nest
from rfho2.dynamics.base import Dynamics, Gradient, Replay, gradient_of, replay_of
from rfho2.hypergradients.vectorise import Stacked, stack, vectorised
from rfho2.problem import Objective, Problem, RunningCost, Term


@dataclass(frozen=True)
class Together(Problem):
    """The mean over n episodes of a problem, as a problem whose state is n states along a new first axis."""

    n: int = 1
    single: Problem | None = None

    @classmethod
    def of(cls, problem: Problem, n: int) -> Together:
        """Hyper-iteration k covers episodes k n, ..., k n + n - 1 of `problem`."""
        objectives = {term.name: _objective(term, n) for term in problem.terms(())}
        several = isinstance(problem.objective, Mapping)
        return cls(
            _dynamics(problem.dynamics, n),
            objectives if several else objectives[""].fn,
            problem.steps,
            training_batches(problem.batches, n),
            None if several else objectives[""].batches,
            n,
            problem,
        )

    def norm(self, adjoints: Nest) -> tf.Tensor:
        """The mean norm of the episodes' adjoints; `adjoints` holds 1/n of each."""
        squares = [tf.reduce_sum(tf.reshape(leaf, [self.n, -1]) ** 2, axis=1) for leaf in nest.flatten(adjoints)]
        return tf.reduce_sum(tf.sqrt(tf.add_n(squares)))

    def squares(self, sensitivity: Nest) -> tf.Tensor:
        """The sum of the squares of each episode's Z."""
        columns = [tf.reshape(leaf, [leaf.shape[0], self.n, -1]) for leaf in nest.flatten(sensitivity)]
        return tf.add_n([tf.reduce_sum(leaf**2, axis=[0, 2]) for leaf in columns])


def training_batches(batches: Batches | None, n: int) -> Batches | None:
    """(t, k) -> the training batches of n episodes at step t; batches that do not depend on the episode stay as they are."""
    if batches is None or not of_episodes(batches):
        return batches
    return lambda t, k: stack(lambda episode: batches(t, episode), k, n)


def spread(batches: Batches | None, problem: Problem) -> Batches | None:
    """The batches that a method has besides those of the problem; for all episodes, if the problem consists of several."""
    if not isinstance(problem, Together) or problem.single is None:
        return batches
    return training_batches(spread(batches, problem.single), problem.n)


def _dynamics(dynamics: Dynamics, n: int) -> Dynamics:
    """The dynamics of n states."""

    def init(params: Nest, hypers: Hypers) -> Nest:
        if isinstance(params, Stacked):
            return vectorised(lambda w, h, _: dynamics.init(w, h), (params.each,), hypers, None)
        return nest.map(lambda leaf: tf.broadcast_to(leaf, [n, *leaf.shape]), dynamics.init(params, hypers))

    def step(state: Nest, hypers: Hypers, batch: Nest, t: tf.Tensor) -> Nest:
        return vectorised(lambda s, h, b: dynamics.step(s, h, b, t), (state,), hypers, batch)

    def params(state: Nest) -> Nest:
        return vectorised(lambda s, *_: dynamics.params(s), (state,), {}, None)

    one_replay, one_gradient = replay_of(dynamics), gradient_of(dynamics)
    if one_replay is not None:
        step.replay = _replay(one_replay)  # type: ignore[attr-defined]
    if one_gradient is not None:
        step.gradient = _gradient(one_gradient)  # type: ignore[attr-defined]
    return Dynamics(init, step, params)


def _replay(one: Replay) -> Replay:
    def replay(state: Nest, hypers: Hypers, batch: Nest, t: tf.Tensor, new: Nest) -> Nest:
        return vectorised(lambda s, new, h, b: one(s, h, b, t, new), (state, new), hypers, batch)

    return replay


def _gradient(one: Gradient) -> Gradient:
    def gradient(params: Nest, hypers: Hypers, batch: Nest, t: tf.Tensor) -> Nest:
        return vectorised(lambda w, h, b: one(w, h, b, t), (params,), hypers, batch)

    return gradient


def _objective(term: Term, n: int) -> Objective:
    """The mean of an objective over n episodes."""

    def mean(params: Nest, hypers: Hypers, batch: Nest) -> tf.Tensor:
        return tf.reduce_mean(vectorised(term.fn, (params,), hypers, batch))

    batches = term.batches
    stacked = batches if batches is None or constant(batches) else lambda k: stack(batches, k, n)
    return Objective(mean if term.every is None else RunningCost(mean, term.every), term.hypers, stacked)

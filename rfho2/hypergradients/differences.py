"""Central differences along directions in the space of hypers: the independent reference for a hypergradient."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from rfho2.core import loops, nest
from rfho2.core.types import Hypers, Nest
from rfho2.problem import Problem

ENTRIES = 10  # hypers up to this size are checked entry by entry, larger ones along random directions
DIRECTIONS = 5
SCALES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # difference steps, relative to the hyper
LEAST = 1e-4  # smaller hypers count as this size: steps proportional to 1e-10 would measure rounding
LONGEST = 100  # how long a training is continued until it converges, in multiples of T
STILL = 1e-15  # the relative change of a state in one step that counts as none
PATIENCE = 2  # seconds before a progress bar is shown
FLOOR = 1e-9  # relative to the value: smaller derivatives are lost in the rounding errors of differences


def difference(fn: Callable[[Hypers], float | np.ndarray], at: Hypers, direction: dict[str, np.ndarray]) -> np.ndarray:
    """d/dh fn(at + h direction) at h = 0: fourth-order central differences, at the step size where they vary least."""
    size = max(float(np.max(np.abs(at[name]))) for name in direction) or 1.0
    size = max(size, LEAST)

    def shifted(h: float) -> np.ndarray:
        return np.asarray(fn({**at, **{name: at[name] + h * d for name, d in direction.items()}}))

    tried, noise = [], []
    for h in [scale * size for scale in SCALES]:
        right, left = shifted(h), shifted(-h)
        tried.append((8 * (right - left) - (shifted(2 * h) - shifted(-2 * h))) / (12 * h))
        noise.append(np.finfo(float).eps * np.max(np.abs(right), initial=0.0) / h)
    moves = [np.max(np.abs(b - a), initial=0.0) for a, b in itertools.pairwise(tried)]
    unsteady = [move + rounding for move, rounding in zip(moves, noise[1:], strict=True)]
    return tried[int(np.nanargmin(unsteady)) + 1] if np.any(np.isfinite(unsteady)) else tried[-1]


class Compared(NamedTuple):
    """A derivative along one direction by each method, the last by differences; their relative error; the direction."""

    numbers: list[float]
    error: float
    direction: str


def directions(hyper: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The directions along which a hyper is checked: its entries, "[0]", "[1]" and so on, or random ones."""
    if hyper.ndim == 0:
        return {"": np.ones([])}
    if hyper.size <= ENTRIES:
        return {
            str(list(i)): unit.reshape(hyper.shape)
            for i, unit in zip(np.ndindex(hyper.shape), np.eye(hyper.size), strict=True)
        }
    draws = rng.normal(size=(DIRECTIONS, hyper.size))
    return {f", direction {i}": (d / np.linalg.norm(d)).reshape(hyper.shape) for i, d in enumerate(draws)}


def compare(
    problem: Problem,
    value: Callable[[Hypers], dict[str, float]],
    hypers: Hypers,
    grads: Sequence[Hypers],
    rng: np.random.Generator,
) -> dict[str, Compared]:
    """By hyper, where the hypergradients differ most from one another and from differences.

    Args:
      value: hypers -> the value of each objective by name.
      grads: hypergradients by several methods.
      rng: for the directions along which large hypers are compared.
    """
    base, worst = value(hypers), {}
    owner = {name: term.name for term in problem.terms(hypers) for name in term.hypers}
    each_along = {name: directions(np.asarray(hypers[name]), rng) for name in hypers}
    bar = tqdm(
        total=sum(map(len, each_along.values())),
        desc="differences",
        unit="direction",
        delay=PATIENCE,
        leave=False,
        disable=None,
    )
    for name, named in each_along.items():
        along, near = list(named.values()), []
        for d in along:
            near.append(float(difference(functools.partial(_pick, value, owner[name]), hypers, {name: d})))
            bar.update()
        columns = np.array([*([float(np.sum(each[name] * d)) for d in along] for each in grads), near])
        spread = np.max(columns, axis=0) - np.min(columns, axis=0)
        at, floor = int(np.argmax(spread)), abs(base[owner[name]]) * FLOOR
        error = float(spread[at] / max(np.max(np.abs(columns)), floor, np.finfo(float).tiny))
        error = error if np.all(np.isfinite(columns)) else float("nan")
        worst[name] = Compared(columns[:, at].tolist(), error, list(named)[at])
    bar.close()
    return worst


def _pick(value: Callable[[Hypers], dict[str, float]], objective: str, hypers: Hypers) -> float:
    return value(hypers)[objective]


def response(problem: Problem, params: Nest) -> Callable[[Hypers], dict[str, float]]:
    """hypers -> the value of each objective after plain training."""

    @tf.function(autograph=False)
    def train(hypers: Hypers) -> list[tf.Tensor]:
        assert problem.steps is not None
        dynamics, terms = problem.dynamics, problem.terms(hypers)
        batches = [term.batch(tf.constant(0)) for term in terms]

        def costs(t: tf.Tensor, state: Nest) -> list[tf.Tensor]:
            p = dynamics.params(state)
            due = [t == problem.steps if term.every is None else (t % term.every == 0) for term in terms]
            zero = tf.zeros([], nest.flatten(state)[0].dtype)
            return [
                tf.cond(now, lambda term=term, b=b: term.fn(p, hypers, b), lambda: zero)
                for now, term, b in zip(due, terms, batches, strict=True)
            ]

        def body(carry: Nest, t: tf.Tensor) -> Nest:
            state, values = carry
            state = problem.step(state, hypers, t)
            return state, nest.add(values, costs(t + 1, state))

        state = dynamics.init(params, hypers)
        zeros = [tf.zeros([], nest.flatten(state)[0].dtype) for _ in terms]
        return loops.fold(body, (state, zeros), 0, problem.steps)[1]

    return _named(problem, train)


def solved_response(problem: Problem, params: Nest) -> Callable[[Hypers], dict[str, float]]:
    """hypers -> the value of each objective after a training that continues until it converges, or for `LONGEST` T steps."""

    @tf.function(autograph=False)
    def train(hypers: Hypers) -> list[tf.Tensor]:
        assert problem.steps is not None
        most = LONGEST * problem.steps

        def unfinished(carry: Nest) -> tf.Tensor:
            i, _, moving = carry
            return (i < most) & moving

        def iterate(carry: Nest) -> Nest:
            i, old, _ = carry
            new = problem.step(old, hypers, i)
            change = nest.norm(nest.map(tf.subtract, new, old))
            return i + 1, new, change > STILL * nest.norm(new)

        start = problem.dynamics.init(params, hypers)
        _, state, _ = loops.repeat(unfinished, iterate, (tf.constant(0), start, tf.constant(True)))
        terms = problem.terms(hypers)
        return [term.fn(problem.dynamics.params(state), hypers, term.batch(tf.constant(0))) for term in terms]

    return _named(problem, train)


def _named(problem: Problem, train: Callable[[Hypers], list[tf.Tensor]]) -> Callable[[Hypers], dict[str, float]]:
    def value(hypers: Hypers) -> dict[str, float]:
        names = [term.name for term in problem.terms(hypers)]
        return dict(zip(names, map(float, train(dict(hypers))), strict=True))

    return value

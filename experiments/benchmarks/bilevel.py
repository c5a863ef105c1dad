"""Two problems of the bilevel-optimisation benchmark (Dagréou et al., 2022): quadratics, and data cleaning.

min_x f(z*(x), x) with z*(x) = argmin_z g(z, x). As in the benchmark, z starts at 0 and x at -2; quadratics are measured by
|dh/dx|^2, where h(x) = f(z*(x), x), data cleaning by the share of wrong predictions. The data are generated, or are the
embedded digits: 10,000 for training instead of 20,000, 2,500 instead of 5,000 for validation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data import mnist
from rfho2.core.types import Hypers

Level = Callable[[tf.Tensor, tf.Tensor, Any], tf.Tensor]
"""(z, x, examples) -> mean loss."""

Measure = Callable[[tf.Tensor, tf.Tensor], dict[str, float]]
"""(z, x) -> metrics; the benchmark compares by "value"."""


class Bilevel(NamedTuple):
    """A bilevel problem.

    Attributes:
      inner, outer: g and f; their examples have one row for each example.
      train, validation: all examples of g and of f.
      rate: of gradient descent on g, below 1 / L.
      adam: whether our methods move x by Adam, because its gradients are tiny.
    """

    inner: Level
    outer: Level
    train: Any
    validation: Any
    z: tf.Tensor
    x: tf.Tensor
    rate: float
    adam: bool
    measure: Measure

    def problem(self, steps: int) -> rf.Problem:
        """`steps` steps of gradient descent on g with all examples, judged by f; the hyper is "x"."""
        return self._problem(steps, self.rate, rf.batches.full(self.train), rf.batches.full(self.validation))

    def problem_on_batches(self, rate: float, batch_size: int, seed: int) -> rf.Problem:
        """One step, on consecutive examples at a random place; the rate falls with the square root of the time."""

        def drawn(data: Any, level: int) -> Callable[[tf.Tensor], Any]:
            number = tf.nest.flatten(data)[0].shape[0] // batch_size

            def batch(t: tf.Tensor) -> Any:
                start = batch_size * tf.random.stateless_uniform((), (seed + level, t), 0, number, tf.int32)
                return tf.nest.map_structure(lambda column: _rows(column, start, batch_size), data)

            return batch

        def falling(hypers: Hypers, t: tf.Tensor) -> tf.Tensor:
            return rate / tf.sqrt(tf.cast(t + 1, tf.float32))

        return self._problem(1, falling, drawn(self.train, 0), drawn(self.validation, 1))

    def _problem(self, steps: int, rate: Any, train: Any, validation: Any) -> rf.Problem:
        inner = rf.gradient_descent(lambda z, hypers, batch: self.inner(z, hypers["x"], batch), rate)
        return rf.Problem(inner, lambda z, hypers, batch: self.outer(z, hypers["x"], batch), steps, train, validation)


def _rows(column: tf.Tensor, start: tf.Tensor, number: int) -> tf.Tensor:
    """`number` rows; column[start : start + number] would have a length that XLA does not know."""
    rest = column.shape[1:].as_list()
    return tf.slice(column, [start, *(0 for _ in rest)], [number, *rest])


# ---- Quadratics ----------------------------------------------------------------------------------------------------------

SAMPLES, SIZE = 1024, 100
LEAST, LARGEST = 0.1, 1.0  # eigenvalues of the mean Hessians, before sampling; that in x also has a 0
CROSS = 0.1  # singular values of the mean cross term, before sampling


class Samples(NamedTuple):
    """Row i is (u z)^2 / 2 + (w x)^2 / 2 + (l x) (r z) + a z + b x, with its own vectors u, w, l, r, a, b."""

    u: Any
    w: Any
    left: Any
    right: Any
    a: Any
    b: Any


def mean_of(z: tf.Tensor, x: tf.Tensor, rows: Samples) -> tf.Tensor:
    """The mean over the rows."""
    dot = tf.linalg.matvec
    squares = 0.5 * (dot(rows.u, z) ** 2 + dot(rows.w, x) ** 2)
    return tf.reduce_mean(squares + dot(rows.left, x) * dot(rows.right, z) + dot(rows.a, z) + dot(rows.b, x))


def samples(rng: np.random.Generator, number: int = SAMPLES, size: int = SIZE) -> Samples:
    """Random rows whose mean Hessians have eigenvalues between LEAST and LARGEST, up to sampling."""

    def rows(eigenvalues: np.ndarray) -> np.ndarray:  # times a square root of the mean Hessian
        basis = np.linalg.qr(rng.normal(size=(size, size)))[0]
        return rng.normal(size=(number, size)) @ (basis * np.sqrt(eigenvalues)) @ basis.T

    u, w = rows(np.geomspace(LEAST, LARGEST, size)), rows(np.r_[0.0, np.geomspace(LEAST, LARGEST, size - 1)])
    shared = rng.normal(size=(number, size))  # so that the mean of l r^T is CROSS times an orthogonal matrix
    left, right = (shared @ np.linalg.qr(rng.normal(size=(size, size)))[0] for _ in range(2))
    return Samples(u, w, CROSS * left, right, *(rng.normal(size=(number, size)) for _ in range(2)))


class Means(NamedTuple):
    """The mean of the rows: z A z / 2 + x B x / 2 + x C z + a z + b x."""

    zz: np.ndarray
    xx: np.ndarray
    xz: np.ndarray
    z: np.ndarray
    x: np.ndarray

    @classmethod
    def of(cls, rows: Samples) -> Means:
        """In float64."""
        n = len(rows.u)
        return cls(
            rows.u.T @ rows.u / n, rows.w.T @ rows.w / n, rows.left.T @ rows.right / n, rows.a.mean(0), rows.b.mean(0)
        )


def quadratics(seed: int) -> Bilevel:
    """g and f are means of 1,024 random quadratic functions of 100 + 100 variables; h has to be convex."""
    rng = np.random.default_rng(seed)
    while True:
        rows = samples(rng), samples(rng)
        g, f = map(Means.of, rows)
        slope = -np.linalg.solve(g.zz, g.xz.T)  # dz*/dx
        curvature = slope.T @ f.zz @ slope + f.xx + f.xz @ slope + slope.T @ f.xz.T
        if np.linalg.eigvalsh(curvature)[0] > 0:
            break

    def measure(z: tf.Tensor, x: tf.Tensor) -> dict[str, float]:
        at = np.asarray(x, np.float64)
        solved = -np.linalg.solve(g.zz, g.z + g.xz.T @ at)
        gradient = f.xx @ at + f.xz @ solved + f.x + slope.T @ (f.zz @ solved + f.xz.T @ at + f.z)
        return {"value": float(np.sum(gradient**2)), "distance of z": float(np.sum((np.asarray(z) - solved) ** 2))}

    inner, outer = (Samples(*(tf.constant(column, tf.float32) for column in one)) for one in rows)
    rate = 0.9 / float(np.linalg.eigvalsh(g.zz)[-1])
    return Bilevel(mean_of, mean_of, inner, outer, tf.zeros(SIZE), tf.fill(SIZE, -2.0), rate, False, measure)


# ---- Data cleaning -------------------------------------------------------------------------------------------------------

TRAIN, VALIDATION = 10_000, 2_500
NOISE, L2 = 0.5, 0.2


class Digits(NamedTuple):
    """Examples with their indices in the whole set, by which training examples find their weights."""

    images: Any
    labels: Any
    places: Any


def cleaning(seed: int, train: int = TRAIN, validation: int = VALIDATION) -> Bilevel:
    """Softmax regression on digits whose labels are random with probability 1/2; sigmoid(x_i) is the weight of digit i."""
    digits, rng = mnist.load(), np.random.default_rng(seed)
    parts = np.split(rng.permutation(len(digits.labels)), [train, train + validation])
    middle, spread = (getattr(digits.images[parts[0]], name)(0) for name in ("mean", "std"))
    scaled = (digits.images - middle) / np.where(spread > 0, spread, 1.0)
    sets = [
        Digits(scaled[rows].astype(np.float32), digits.labels[rows].astype(np.int32), np.arange(len(rows))) for rows in parts
    ]
    noisy = rng.random(train) < NOISE
    sets[0].labels[noisy] = rng.integers(0, mnist.CLASSES, noisy.sum())
    train_set, validation_set, test_set = (Digits(*map(tf.constant, one)) for one in sets)

    def losses(z: tf.Tensor, rows: Digits) -> tf.Tensor:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(rows.labels, rows.images @ z)

    def inner(z: tf.Tensor, x: tf.Tensor, rows: Digits) -> tf.Tensor:
        return tf.reduce_mean(tf.sigmoid(tf.gather(x, rows.places)) * losses(z, rows)) + L2 * tf.reduce_sum(z**2)

    def outer(z: tf.Tensor, x: tf.Tensor, rows: Digits) -> tf.Tensor:
        return tf.reduce_mean(losses(z, rows))

    @tf.function(autograph=False)
    def wrong(z: tf.Tensor, rows: Digits) -> tf.Tensor:
        return tf.reduce_mean(tf.cast(tf.argmax(rows.images @ z, 1, tf.int32) != rows.labels, tf.float32))

    def measure(z: tf.Tensor, x: tf.Tensor) -> dict[str, float]:
        return {"value": float(wrong(z, validation_set)), "test error": float(wrong(z, test_set))}

    # The Hessian of the cross-entropy is at most half of X^T X / n, when all weights are 1.
    largest = 0.5 * np.linalg.eigvalsh(sets[0].images.T @ sets[0].images / train)[-1] + 2 * L2
    z, x = tf.zeros((sets[0].images.shape[1], mnist.CLASSES)), tf.fill(train, -2.0)
    return Bilevel(inner, outer, train_set, validation_set, z, x, 0.9 / float(largest), True, measure)


PROBLEMS = {"quadratics": quadratics, "data cleaning": cleaning}
GOALS = {"quadratics": (1e-2, 1e-4, 1e-6), "data cleaning": (0.20, 0.16, 0.14)}

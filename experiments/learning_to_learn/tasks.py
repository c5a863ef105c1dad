"""Sinusoid regression: task k is y = a sin(x + p), with amplitude, phase and points that are a pure function of k."""

from __future__ import annotations

import math
from typing import NamedTuple

import tensorflow as tf

import rfho2 as rf

AMPLITUDES = (0.1, 5.0)
PHASES = (0.0, math.pi)
INPUTS = (-5.0, 5.0)
PARTS = ("training", "calibration", "test")

Points = tuple[tf.Tensor, tf.Tensor]
"""x and y, [points, 1] each."""


class Task(NamedTuple):
    """The points to learn from, the points to be judged on, and the curve that all of them lie on."""

    support: Points
    queries: Points
    amplitude: tf.Tensor
    phase: tf.Tensor


class Family(NamedTuple):
    """Tasks numbered 0, 1, ...; families of other seeds or other parts share no task.

    Attributes:
      part: "training" tasks, "calibration" tasks to choose a learning rate on, or "test" tasks.
      seed: of the experiment.
      shots: points to learn from.
      queries: points to be judged on.
      dtype: of all numbers.
    """

    part: str
    seed: int
    shots: int
    queries: int
    dtype: tf.DType = tf.float32

    def task(self, k: int | tf.Tensor) -> Task:
        """Task k: amplitude, phase and inputs are uniform in their ranges."""
        key = tf.stack([self.seed * len(PARTS) + PARTS.index(self.part), tf.convert_to_tensor(k, tf.int32)])
        draws = rf.batches.uniform(key, (2 + self.shots + self.queries,), self.dtype)
        amplitude, phase = _scaled(draws[0], AMPLITUDES), _scaled(draws[1], PHASES)
        x = _scaled(draws[2:, None], INPUTS)
        y = amplitude * tf.sin(x + phase)
        return Task((x[: self.shots], y[: self.shots]), (x[self.shots :], y[self.shots :]), amplitude, phase)

    def joint(self, k: tf.Tensor, count: int) -> Points:
        """All points of tasks k count, ..., k count + count - 1 as one batch."""
        tasks = [self.task(k * count + i) for i in range(count)]
        parts = [part for task in tasks for part in (task.support, task.queries)]
        return tf.concat([x for x, _ in parts], 0), tf.concat([y for _, y in parts], 0)


def _scaled(draws: tf.Tensor, ends: tuple[float, float]) -> tf.Tensor:
    low, high = ends
    return low + (high - low) * draws

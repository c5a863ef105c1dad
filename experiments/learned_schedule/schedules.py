"""Schedules of the learning rate that people use, with random parameters."""

from __future__ import annotations

import numpy as np

PEAKS = (1e-3, 1.0)  # the interval of the largest rate, on a logarithmic scale
WARM_UP = (0.05, 0.5)  # the interval of the share of steps until the peak of one-cycle
FIRST, LAST = 1 / 25, 1e-4  # the first and the last rate of one-cycle, relative to the peak


def constant(steps: int, rng: np.random.Generator) -> np.ndarray:
    """One rate."""
    return np.full(steps, _peak(rng), np.float32)


def cosine(steps: int, rng: np.random.Generator) -> np.ndarray:
    """Half a cosine from the peak to 0."""
    return (_peak(rng) * _fall(steps)).astype(np.float32)


def one_cycle(steps: int, rng: np.random.Generator) -> np.ndarray:
    """Half a cosine from FIRST to the peak, and half of one to LAST."""
    peak, rising = _peak(rng), max(1, round(rng.uniform(*WARM_UP) * steps))
    up = 1 - (1 - FIRST) * _fall(rising)
    down = LAST + (1 - LAST) * _fall(steps - rising)
    return (peak * np.concatenate([up, down])).astype(np.float32)


KINDS = {"constant": constant, "cosine": cosine, "one-cycle": one_cycle}


def smoothed(schedule: np.ndarray, width: int) -> np.ndarray:
    """The geometric mean over `width` steps around each step, fewer at the ends."""
    logs, half = np.log(schedule), width // 2
    sums = np.concatenate([[0.0], np.cumsum(logs, dtype=np.float64)])
    steps = np.arange(len(logs))
    low, high = np.maximum(steps - half, 0), np.minimum(steps + half + 1, len(logs))
    return np.exp((sums[high] - sums[low]) / (high - low)).astype(np.float32)


def _peak(rng: np.random.Generator) -> float:
    return float(np.exp(rng.uniform(*np.log(PEAKS))))


def _fall(steps: int) -> np.ndarray:
    """From 1 towards 0."""
    return 0.5 + 0.5 * np.cos(np.pi * np.arange(steps) / max(steps, 1))

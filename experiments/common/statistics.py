"""Means with confidence intervals, and paired comparisons of accuracies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats


class Interval(NamedTuple):
    """A mean, and the half-width of its 95 % interval (NaN for one value)."""

    mean: float
    half: float


class Difference(NamedTuple):
    """The mean of paired differences in percentage points, and the half-width of its 95 % interval (NaN for one pair)."""

    mean: float
    half: float

    def __str__(self) -> str:
        return f"{self.mean:+.2f}" + ("" if np.isnan(self.half) else f" ± {self.half:.2f}")


def interval(values: np.ndarray) -> Interval:
    """The mean of independent values, with Student's 95 % confidence interval."""
    n = len(values)
    half = float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return Interval(float(np.mean(values)), half)


def difference(accuracies: np.ndarray, baseline: np.ndarray) -> Difference:
    """The mean of accuracies - baseline, pair by pair, with Student's 95 % confidence interval."""
    return Difference(*interval(100 * (accuracies - baseline)))

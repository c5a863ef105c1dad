"""Paired differences and their intervals."""

import numpy as np
import pytest

from experiments.common.statistics import difference


def test_the_interval_is_students():
    result = difference(np.array([0.52, 0.61, 0.72]), np.array([0.5, 0.6, 0.7]))
    assert result.mean == pytest.approx(100 * (0.02 + 0.01 + 0.02) / 3)
    assert result.half == pytest.approx(4.302653 * np.std([2, 1, 2], ddof=1) / np.sqrt(3), rel=1e-5)
    assert str(result) == "+1.67 ± 1.43"


def test_one_pair_has_no_interval():
    assert str(difference(np.array([0.5]), np.array([0.6]))) == "-10.00"

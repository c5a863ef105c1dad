"""The benchmark of calls: its worker, and its table."""

import math

import pytest

from experiments.benchmarks import calls


@pytest.mark.slow
def test_a_case_runs_in_every_way():
    case = calls.windows(1)._replace(iterations=3)
    assert all(math.isfinite(calls.run_once(case, way)) for way in (calls.CALLS, calls.SINGLE, calls.LOGGED))
    assert calls.compiled_alone(case)() > 0


def test_the_table_has_a_column_for_each_checkout_and_way():
    row = {"case": "ridge", "this, in calls": 1.234567, "other, in calls": 20.0, "this, first": 5.0}
    assert calls.table([row]).splitlines()[0] == "| ms per hyper-iteration | this, in calls | other, in calls |"
    assert calls.table([row]).splitlines()[-1] == "| ridge | 1.23 | 20 |"

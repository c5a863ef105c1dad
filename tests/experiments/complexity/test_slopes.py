"""Log-log slopes, and what they are fitted to."""

import math

import numpy as np
import pytest

from experiments.common import timing
from experiments.complexity import slopes


def test_the_slope_of_a_power_law_is_its_power():
    x = np.array([10, 20, 50, 1000])
    for power in (0.0, 1.0, 1.7):
        assert slopes.slope(x, 0.3 * x**power) == pytest.approx(power, abs=1e-12)
    assert math.isnan(slopes.slope(x, [1.0, 1.0, 0.0, 2.0]))


def test_slopes_do_not_count_what_a_call_costs_once(monkeypatch):
    def seconds(method, steps, m):
        return 7.0 + (steps - 1) * (m if method == "forward" else 3.0)

    monkeypatch.setattr(slopes, "problem", lambda steps, hypers, batch, validation: steps)
    monkeypatch.setattr(slopes, "caller", lambda method, steps, hidden, m: lambda: seconds(method, steps, m))
    monkeypatch.setattr(timing, "seconds_of", lambda call: call())
    rows = slopes.measure_slopes(slopes.SlopeConfig())
    fitted = {(r["method"], r["against"]): r["slope"] for r in rows}
    assert fitted.pop(("forward", "m")) == pytest.approx(1.0)
    assert fitted.pop(("reverse", "m")) == pytest.approx(0.0, abs=1e-9)
    assert set(fitted) == {(m, "T") for m in ("plain", "reverse", "checkpointed", "forward", "real time")}
    assert all(slope == pytest.approx(1.0, abs=0.005) for slope in fitted.values())
    table = slopes.table(rows)
    assert "| reverse, m from 10 to 5,000 | 0.000 | < 0.1 | yes |" in table
    assert "| no |" not in table
    assert "| 1.061 | 0.95 .. 1.05 | no |" in slopes.table([{**rows[0], "slope": 1.061}])

"""What averages over episodes cost: the table, and that every mode runs."""

import pytest

from experiments.benchmarks import averages
from experiments.benchmarks.averages import MODES, Config


def test_the_table_has_ratios_within_a_row():
    row = {"network": "a net", "compiler": "XLA", "seconds": dict(zip(MODES, (0.01, 0.04, 0.02), strict=True))}
    with_peaks = row | {"peak_bytes": dict(zip(MODES, (5e6, 5.5e6, 2e7), strict=True))}
    lines = averages.table([row | {"peak_bytes": {}}, with_peaks]).splitlines()
    assert lines[2] == "| a net | XLA | 10.00 | 4.00 | 2.00 | 0.50 | - | - | - |"
    assert lines[3] == "| a net | XLA | 10.00 | 4.00 | 2.00 | 0.50 | 5.0 | 5.5 | 20.0 |"


@pytest.mark.slow
def test_everything_runs_on_short_trainings(monkeypatch):
    monkeypatch.setattr(averages, "COMPILERS", {"graph": False})
    rows = averages.run(Config(steps=2, episodes=2, rounds=1, memory=False))
    assert [row["network"] for row in rows] == list(averages.CASES)
    for row in rows:
        assert all(row["seconds"][mode] > 0 for mode in MODES)

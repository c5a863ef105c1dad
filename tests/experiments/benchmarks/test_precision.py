"""The table of relative errors: which arithmetic rounds most, and what a CPU leaves out."""

import pytest
import tensorflow as tf

from experiments.benchmarks import precision
from tests.support.devices import ON_GPU

NAMES = [one.name for one in precision.ROUNDED]


@pytest.mark.slow
def test_bfloat16_rounds_more_than_float32_and_hypergradients_survive_both():
    errors = precision.relative_errors(3)
    assert set(errors) == {"float32", "bfloat16 layers"} | ({"TF32"} if ON_GPU else set())
    for hyper in ("lr", "l2"):
        assert 0 < errors["float32"][hyper] < 1e-4 < errors["bfloat16 layers"][hyper] < 0.1


def test_the_table_has_a_row_for_each_hyper_and_length(monkeypatch):
    monkeypatch.setattr(
        precision, "relative_errors", lambda steps: dict.fromkeys(NAMES, dict.fromkeys(precision.HYPERS, steps * 1e-7))
    )
    rows = list(precision.table(precision.Config((2, 3))))
    assert len({row.count("|") for row in rows}) == 1, "all rows have the same columns"
    assert [row.split(" | ")[1:3] for row in rows[2:]] == [[h, f"{t}.0e-07"] for t in (2, 3) for h in precision.HYPERS]


def test_tf32_is_measured_where_there_is_a_gpu(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert "TF32" in [one.name for one in precision.rounded()]

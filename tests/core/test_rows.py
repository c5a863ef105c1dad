"""Rows of the history: metrics are added, but hide neither the objective nor the number of the hyper-iteration."""

import numpy as np

from rfho2.core import rows


def test_a_metric_hides_neither_the_objectives_nor_the_iteration():
    quantities = {"value": 3.0, "value/a": 1.0, "value/b": 2.0, "lr": 0.1}
    metrics = {"value": 9, "value/a": 8, "iteration": 7, "lr": 0.5, "accuracy": np.float32(0.25), "curve": np.ones(3)}
    expected = {"iteration": 4, "value": 3.0, "value/a": 1.0, "value/b": 2.0, "lr": 0.5, "accuracy": 0.25}
    assert rows.row(4, quantities, metrics) == expected


def test_entries_that_a_metric_names_are_left_to_it():
    quantities = {"value": 1.0, "rate/0": 0.1, "rate/1": 0.2}
    assert rows.row(0, quantities, {"rate/first": 5.0}) == {"iteration": 0, "value": 1.0, "rate/first": 5.0}

"""The report of the hyper-cleaning experiment: the table, and the record of what was discarded first."""

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.data_hyper_cleaning import report


def test_the_table_has_the_papers_column():
    rows = [
        {"method": "DH-1000", "seed": s, "accuracy": 0.9 + 0.01 * s, "f1": 0.95, "accuracy_weighted": 0.9, "discarded": 2400}
        for s in (0, 1)
    ]
    assert report.table_1(rows).splitlines()[2] == "| DH-1000 | 90.50 ± 0.50 | 0.9500 | 2400 | 90.00 | 90.07 | 0.9137 |"


def test_the_record_of_first_discarded_examples_continues_after_a_resume(tmp_path):
    def observe(callback, first, weights_by_iteration):
        callback.on_start(rf.Run(first, 9, {"weights": tf.ones(3)}, {}))
        for k, weights in weights_by_iteration.items():
            callback.on_hyper_iteration(k, {"weights": tf.constant(weights)}, None, {})

    path = tmp_path / "first.npy"
    observe(report.FirstDiscarded(path), 0, {0: [1.0, 1.0, 1.0], 1: [0.0, 1.0, 1.0], 2: [1.0, 0.0, 1.0]})
    observe(report.FirstDiscarded(path), 2, {2: [1.0, 0.0, 1.0], 3: [1.0, 1.0, 1.0]})
    assert np.load(path).tolist() == [1, 2, -1]

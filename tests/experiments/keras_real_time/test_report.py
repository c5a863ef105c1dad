"""The table of the comparison with random search."""

from experiments.keras_real_time import report


def test_the_table_has_means_over_the_seeds_compared_with_the_search():
    rows = [
        {
            "seed": seed,
            "number_of_hypers": 1,
            "method": method,
            "test": test + (1 + method.startswith("random")) * seed / 100,
            "seconds": seconds,
            "ratio": seconds / 100,
        }
        for seed in (0, 1)
        for method, test, seconds in (("random search, 20 trials", 0.95, 100.0), ("real time, a start", 0.94, 20.0))
    ]
    lines = report.table(rows).splitlines()
    assert lines[2] == "| 1 | random search, 20 trials | 96.00 | +0.00 | +0.00 | 100.0 | 1.00 |"
    assert lines[3] == "| 1 | real time, a start | 94.50 | -1.50 | -2.00 | 20.0 | 0.20 |"

"""The table of learning to learn."""

from experiments.learning_to_learn import report
from experiments.learning_to_learn.experiment import LEARNED, PRETRAINED, Config


def row(name, after, ratio):
    return {
        "shots": 5,
        "adapted_by": name,
        "rates": [0.0123, 0.1, 1e-5],
        "error": [3.0, 2.0, after, 9.0],
        "half_interval": [0.3, 0.2, 0.1, 0.9],
        "ratio_to_pretrained": ratio,
        "less_than_pretrained": [1.5, 0.25],
    }


def test_the_table_has_errors_before_and_after_the_steps(tmp_path):
    rows = [row(LEARNED, 0.5, 0.25), row(PRETRAINED, 2.0, 1.0)]
    lines = report.tables(Config(steps=2), rows, tmp_path)["table.md"].splitlines()
    assert "error after 2 steps" in lines[0]
    assert lines[2].startswith(
        "| 5 | learned initialisation and rates | 0.012, 0.1, 1e-05 | 3.000 ± 0.300 | 0.500 ± 0.100 |"
    )
    assert lines[2].endswith("| 0.250 | 1.500 ± 0.250 |")
    assert lines[3].endswith("| 2.000 ± 0.100 | 1.000 | - |")

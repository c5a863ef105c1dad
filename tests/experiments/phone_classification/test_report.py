"""Tables of phone classification, and the differences and minutes in them."""

import numpy as np
import pytest

from experiments.phone_classification import report
from experiments.phone_classification.config import METHODS, PhoneTraining


def curve(accuracies):
    return [{"steps": 10 * i, "seconds": float(i), "validation accuracy": a} for i, a in enumerate(accuracies, 1)]


@pytest.fixture(scope="module")
def records():
    """Every method on two folds."""
    row = {"seed": 0, "accuracy": 0.3, "last_accuracy": 0.31, "validation_accuracy": 0.4, "steps": 30}
    return [{**row, "method": m, "fold": f, "curve": curve((0.1, 0.4, 0.3))} for f in (0, 1) for m in METHODS]


def test_the_tables_have_the_papers_columns(records):
    lines = report.table_3(records).splitlines()
    assert lines[0].startswith("| method | runs | best state % | last state % |")
    assert lines[2].startswith("| Vanilla | 2 |")
    assert lines[2].endswith("| 59.81 | 12 |")
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == list(METHODS)
    assert report.table_5(records, PhoneTraining()).splitlines()[-1].endswith("| 56.51 | 60.91 | 62.11 |")
    assert len(report.comparisons(records).splitlines()) == 2 + len(report.COMPARISONS)


def test_the_best_accuracy_within_a_fraction_of_the_budget():
    rows = curve((0.1, 0.4, 0.3))
    assert report.best_until(rows, "steps", 10) == 0.1
    assert report.best_until(rows, "seconds", 3.0) == 0.4
    assert report.best_until(rows, "steps", 5) == 0.0


def test_the_budget_of_plain_training_has_more_steps(records):
    training = PhoneTraining(steps=6, plain_factor=5)
    rows = {line.split(" | ")[0].strip("| "): line for line in report.table_5(records, training).splitlines()[2:]}
    assert rows["Vanilla"].startswith("| Vanilla | 0.00 | 10.00 | 40.00 | 30.00 |")
    assert rows["RTHO"].startswith("| RTHO | 0.00 | 0.00 | 0.00 | 30.00 |")
    in_time = report.table_5(records, PhoneTraining(minutes=0.05)).splitlines()
    assert in_time[-1].startswith("| RTHO-NT | 0.00 | 10.00 | 40.00 | 30.00 |")


def test_compiling_does_not_count_as_time():
    rows = [{"seconds": seconds} for seconds in (30.0, 36.0, 42.0, 54.0)]
    assert report.minutes(rows) == pytest.approx((6 + 6 + 12 + 6) / 60)
    assert report.minutes([]) == 0.0


def test_differences_are_paired_and_folds_count_once():
    def row(method, fold, seed, accuracy):
        return {"method": method, "fold": fold, "seed": seed, "accuracy": accuracy, "last_accuracy": accuracy - 0.1}

    more = np.array([[0.01, 0.03], [0.00, 0.08]])  # of RTHO, by fold and seed: folds have means of 2 and 4 points
    records = [row("Vanilla", f, s, 0.3 + 0.1 * f + 0.02 * s) for f in range(2) for s in range(3)]
    records += [row("RTHO", f, s, 0.3 + 0.1 * f + 0.02 * s + more[f, s]) for f in range(2) for s in range(2)]
    pairs = report._pairs(records, "RTHO", "Vanilla")
    assert len(pairs) == 4
    points = report.difference(pairs, "accuracy", "accuracy")
    assert points.mean == pytest.approx(3.0)
    assert points.half == pytest.approx(12.706 * np.sqrt(2) / np.sqrt(2), rel=1e-4)
    assert report.difference(pairs, "last_accuracy", "accuracy").mean == pytest.approx(-7.0)
    assert "| RTHO, last | Vanilla, best | -7.00" in report.comparisons(records)

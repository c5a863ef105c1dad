"""Tables and conclusion of the comparison of discounts."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments.discounts import report
from experiments.discounts.experiment import DEFAULT, DIGITS, FIRST, LATER, PHONES, Config, Setting, settings

CONFIG = Config(discounts=(0.9, 1.0))
CHALLENGER = Setting(0.9, True)


def records(digits=0.8, phones=0.9, best=1.0):
    """Losses of 2 in the first problem and 1 elsewhere, more for later seeds; the challenger's are smaller by factors."""
    rows = []
    for problem, seed in [*((p, s) for p in DIGITS for s in (0, 1, 2)), (PHONES, 0), (PHONES, 1)]:
        for choice in settings(CONFIG):
            factor, kept = 1.0, 1.0
            if choice == CHALLENGER:
                factor, kept = (digits if problem in DIGITS else phones) * (1 + 0.01 * seed), best
            scale = (2.0 if problem == next(iter(DIGITS)) else 1.0) + 0.1 * seed
            curves = {"values": [scale, scale * factor], "rates": [0.1, 0.2]}
            row = {"problem": problem, "seed": seed, **choice._asdict(), "final": scale * factor, "best": scale * kept}
            rows.append({**row, "test": 0.5, **curves})
    return rows


def test_changes_are_relative_to_the_default_on_the_same_problem_and_seed():
    logs = report.log_ratios(records(), CHALLENGER, "digits")
    np.testing.assert_allclose(np.exp(logs), 0.8 * np.array([1, 1.01, 1.02] * 2))
    assert not np.any(report.log_ratios(records(), DEFAULT))
    line = next(line for line in report.changes(records()).splitlines() if f"| {CHALLENGER} |" in line)
    assert line.split(" | ")[1:4] == ["-19.2 (-20.0 to -18.4)", "+0.0", "-9.6 (-10.0 to -9.1)"]


@pytest.mark.parametrize(
    ("factors", "changed"),
    [
        ({}, True),
        ({"digits": 0.99}, False),  # within the spread
        ({"phones": 1.01, "digits": 0.5}, False),  # better on one of the two
        ({"best": 1.1}, False),  # the state that is kept says otherwise
        ({"digits": 1.2, "phones": 1.2}, False),  # worse
    ],
)
def test_the_default_changes_only_by_the_rule(factors, changed):
    verdict = "should change to discount 0.9, carry." if changed else "should stay."
    assert report.conclusion(records(**factors)).endswith(verdict)


@pytest.mark.parametrize(("factor", "default"), [(1.2, "stay discount 0.99"), (1.001, "be discount 0.999")])
def test_a_discount_that_was_chosen_elsewhere_must_not_be_clearly_worse(factor, default):
    rows = [{"problem": "digits", "seed": s, **FIRST._asdict(), "final": 1.0} for s in range(3)]
    rows += [row | LATER._asdict() | {"final": factor + 0.01 * (row["seed"] - 1)} for row in rows]
    assert f"should {default}, carry." in report.later_conclusion(rows)


def test_the_tables_and_the_figure(tmp_path):
    texts = report.tables(CONFIG, records(), tmp_path)
    assert f"| {next(iter(DIGITS))} | {CHALLENGER} | 1.697 ± 0.098 | 2.100 ± 0.100 | 50.00 ± 0.00 |" in texts["table.md"]
    (figure,) = report.figures(CONFIG, records()).values()
    assert [len(axis.lines) for axis in figure.axes] == [len(settings(CONFIG))] * 6
    assert figure.axes[0].lines[1].get_label() == str(CHALLENGER)
    plt.close(figure)

"""Tables and figures from rows as the parts leave them."""

import pytest

from experiments.error_against_cost import report
from experiments.error_against_cost.tasks import METHODS, Config, Task

CONFIG = Config(digits=10, features=(20,), steps=(25, 100), solved_steps=100, iterations=(1, 20))


def rows_of_everything():
    """One row of each kind, and two of each method."""
    rows = []
    for problem in ("cleaning", "logistic 20"):
        for i, method in enumerate(METHODS):
            for number in (1, 20):
                task = Task(problem, method, 100, None if method.along == "T" and not method.solver else number)
                cost = {"error": 0.1 / number, "seconds": 0.5 * number + i, "peak_bytes": 1e6 * number, "missing": None}
                rows.append({**task.key, "along": method.along, "framework": method.framework, **cost})
    absent = {"error": None, "seconds": None, "peak_bytes": None, "missing": "forward mode with 5,000 hypers"}
    rows.append({**rows[0], "method": "forward", **absent})
    rows += [
        {"solver": "rfho2: CG", "iterations": 60, "error": 9e-4, "seconds": 0.3, "missing": None},
        {"solver": "hypertorch: CG", "iterations": 60, "error": 9e-4, "seconds": 0.75, "missing": None},
        {
            "solver": "hypertorch: CG, transposed copy",
            "iterations": 400,
            "error": None,
            "seconds": None,
            "missing": "not reached",
        },
        {"solver": "jaxopt: CG", "iterations": 60, "error": 9e-4, "seconds": 0.2, "missing": None},
        {"solver": "jaxopt: CG, transposed copy", "iterations": 60, "error": 9e-4, "seconds": 0.25, "missing": None},
        {"solver": "hypertorch: fixed point", "iterations": 1000, "error": 0.03, "seconds": 0.1, "missing": None},
        {"timed": "reverse", "steps": 100, "products": None, "error": 0.07, "seconds": 1.0},
        {"timed": "implicit", "steps": 100, "products": 50, "error": 0.004, "seconds": 0.55},
        {"memory": "plain step", "steps": None, "state_bytes": 10, "peak_bytes": 20},
        {"memory": "implicit", "steps": 1000, "state_bytes": 10, "peak_bytes": 95},
        {"honesty": "identity", "peer": "a", "theirs": "0", "truth": "2", "ours": "2", "says": "nothing", "how": "run"},
        {"missing": "killed by SIGKILL", "failed": "times {}"},
    ]
    return rows


@pytest.fixture(scope="module")
def rows():
    return rows_of_everything()


def test_every_measurement_is_a_line(rows):
    lines = report.table("logistic 20", rows).splitlines()
    assert len(lines) == 4 + 2 * len(METHODS)
    assert "| implicit: CG | 100 | K = 20 | 5.0e-03 | 15 | 20 |" in lines
    assert "| truncated | 100 | k = 1 | 1.0e-01 | 2.5 | 1 |" in lines
    assert "| reverse | 100 | - | 1.0e-01 | 0.5 | 1 |" in lines


def test_aims_are_compared_with_what_was_measured(rows):
    found = {what: (value, most) for what, value, most in report.targets(rows)}
    assert found["linear solve alone: rfho2's time / that of hypertorch's CG, the better of two"] == (
        pytest.approx(0.4),
        0.5,
    )
    assert found["linear solve alone: rfho2's time / that of jaxopt's CG, the better of two"] == (pytest.approx(1.5), 1.0)
    assert found["implicit, T = 100: time / that of reverse"] == (pytest.approx(0.55), 0.6)
    assert found["implicit, T = 1000: states above one plain training step"] == (7.5, 10)
    text = report.bounds(rows)
    assert "| 0.40 | 0.5 | yes |" in text
    assert "| 1.50 | 1 | no |" in text


def test_aims_without_measurements_are_left_out(rows):
    only = [row for row in rows if not str(row.get("solver")).startswith(("hypertorch", "jaxopt")) and "timed" not in row]
    assert [what for what, *_ in report.targets(only)] == ["implicit, T = 1000: states above one plain training step"]


def test_what_is_missing_is_listed_once_with_its_reason(rows):
    text = report.missing([*rows, rows[-1]])
    assert "- cleaning: forward: forward mode with 5,000 hypers" in text
    assert text.count("killed by SIGKILL") == 1
    assert "hypertorch: CG, transposed copy: not reached" in text
    assert report.missing(rows[:3]) == ""


def test_everything_is_written(rows, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(report, "save_figure", lambda canvas, path: drawn.update({path.name: canvas}))
    printed = report.write(tmp_path, CONFIG, rows)
    assert "| identity | a | 0 | 2 | 2 | nothing | run |" in (tmp_path / "honesty.md").read_text()
    assert "hypertorch: CG | 60" in printed
    assert (tmp_path / "table.md").read_text() in printed
    assert [len(drawn[name].axes) for name in ("error_against_seconds", "error_against_memory")] == [4, 2]
    above, _, below, _ = drawn["error_against_seconds"].axes
    labels = [line.get_label() for axis in (above, below) for line in axis.lines]
    assert {label.rpartition(" (")[0] for label in labels} == {method.name for method in METHODS}
    (curve,) = [line for line in below.lines if line.get_label() == "jaxopt: CG (K)"]
    assert list(curve.get_ydata()) == [0.1, 0.005]
    drawn["error_against_memory"].savefig(tmp_path / "figure.png", dpi=30)


def test_every_method_has_a_style():
    assert set(report.STYLES) == {method.name for method in METHODS}
    assert len({(*report.STYLES[m.name], report.DASHES[m.framework]) for m in METHODS}) == len(METHODS)

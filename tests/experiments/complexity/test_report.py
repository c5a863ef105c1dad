"""Tables and figure of the measurements."""

import pytest

from experiments.complexity import report
from experiments.complexity.experiment import Config, plan, refused, shortened
from experiments.complexity.tasks import predicted_bytes
from tests.support.complexity_rows import measured


@pytest.fixture(scope="module")
def rows():
    """Plausible results of the paper preset."""
    made = []
    for task in plan(Config()):
        task = shortened(task, 40.0, made)
        seconds = 0.0015 * 1000 * task.hypers if task.method == "forward" else 8.0
        peak = predicted_bytes(task) if task.panel == "memory" else None
        made.append(measured(task, seconds, peak) | (refused(task, 8.0) or {}))
    return made


def test_the_table_marks_what_is_extrapolated_and_has_the_papers_columns(rows):
    lines = report.table(rows).splitlines()
    assert lines[0] == "Seconds per hypergradient, T = 1000, 199,210 weights"
    assert lines[2].startswith("| hypers m | reverse | reverse, 64 checkpoints | reverse, last 100 steps | forward |")
    assert "| 22 | 8 | 8 | 8 | 33 | 27 | 133 |" in lines
    assert "| 200 | 8 | 8 | 8 | ≈ 300 | - | - |" in lines
    assert "Plain training: 8 s." in lines
    assert "| 165,367 | 1.32 | 0.0847 | 0.132 | 0.00265 | 1.2 |" in lines
    assert "| 1,300,870 | ≈ 10.4 | 0.666 | 1.04 | 0.0208 | - |" in lines
    assert "- memory, reverse, m = 2, h = 810: not run: needs about 10.4 GB, more than --memory_limit=8" in lines


def test_the_figure_is_written_and_hollow_where_extrapolated(rows, tmp_path, monkeypatch):
    drawn = []
    save = report.save_figure
    monkeypatch.setattr(report, "save_figure", lambda figure, path: (drawn.append(figure), save(figure, path)))
    report.write(tmp_path, rows)
    for name in ("table.md", "figure_a.png", "figure_a.pdf"):
        assert (tmp_path / name).stat().st_size > 500, name
    hollow = [
        sum(len(line.get_xdata()) for line in axis.lines if line.get_markerfacecolor() == "white") for axis in drawn[0].axes
    ]
    assert hollow == [7, 1]  # forward from m = 50 on, which is predicted to exceed the budget, and reverse of 1.3 M weights

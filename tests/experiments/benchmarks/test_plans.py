"""The check of the planner: what its tables say, with the fresh processes replaced."""

import json

from experiments.benchmarks import plans
from experiments.common import processes


def test_choices_are_compared_with_what_was_measured(monkeypatch):
    choices = [
        {"method": "reverse", "settings": {"checkpoints": 9}, "seconds": 2.0, "bytes": 4e6},
        {"method": "forward", "settings": {}, "seconds": 1.0, "bytes": 1e6},
        {"method": "forward", "settings": {}, "seconds": 2 * plans.BUDGET, "bytes": 1e6},
    ]
    asked = []

    def last_line(name, flag, env):
        assert name == "plan_benchmark"
        assert env["MALLOC_MMAP_THRESHOLD_"] == "65536"
        asked.append(json.loads(flag.removeprefix("--child=")))
        measured = {"seconds": 4.0, "bytes": 0 if asked[-1].get("method") == "forward" else 2e6}
        return json.dumps(measured if "method" in asked[-1] else {"text": "the plan", "choices": choices})

    monkeypatch.setattr(processes, "last_line", last_line)
    text, _, table = plans.compare("network").partition("\n\n")
    assert text == "the plan"
    assert table.splitlines()[2:] == [
        "| reverse checkpoints=9 | 2.00 | 4.00 | 0.50 | 4 | 2 | 2.00 |",
        "| forward | 1.00 | 4.00 | 0.25 | 1 | 0 | - |",
    ], "a choice that would take too long is left out"
    assert [question.get("method") for question in asked] == [None, "reverse", "forward"]


def test_a_long_training_is_compared_with_the_faster_of_two_short_ones(monkeypatch):
    seconds = iter([6.0, 800.0, 3.0])
    monkeypatch.setattr(plans, "in_fresh_process", lambda **arguments: {"seconds": next(seconds), "bytes": 5e8})
    assert plans.measure_long() == (
        "T = 20000, 283 states: 800 s, 40.00 ms a step, 4.00 x plain reverse (10.00 ms); peak 500 MB"
    )

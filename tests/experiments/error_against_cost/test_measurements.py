"""How errors, times and memory are taken."""

import numpy as np
import pytest
import tensorflow as tf

from experiments.common import timing
from experiments.error_against_cost import alone, bounds, measure, problems
from experiments.error_against_cost.tasks import Config, tasks
from rfho2.planning import peaks

CONFIG = Config(digits=10, features=(3,), steps=(2, 4), solved_steps=4, iterations=(1, 8), rounds=2)
TRUTH = np.array([3.0, 4.0])


@pytest.fixture
def bytes_used(monkeypatch):
    """A call adds 7 bytes; the order of the readings."""
    order = []
    monkeypatch.setattr(peaks, "watch", lambda: order.append("watch") or (lambda: order.append("peak") or 7))
    return order


def write_reference(path):
    np.savez(path, w=np.zeros(2), gradient=TRUTH, curvature=2.0)
    return path


def test_a_row_has_the_error_the_best_time_and_the_memory_of_a_call(bytes_used, monkeypatch):
    times = iter([0.3, 0.2])
    monkeypatch.setattr(timing, "seconds_of", lambda call: call() is None or next(times))
    task = tasks(CONFIG, "cleaning", "rfho2")[0]

    def call():
        bytes_used.append("call")
        return np.array([3.0, 4.5])

    row = measure.measure(task, lambda task: call, problems.Reference(np.zeros(2), TRUTH, 2.0), rounds=2)
    assert row["error"] == pytest.approx(0.1)
    assert row["peak_bytes"] == 7
    assert row["seconds"] == 0.2
    assert bytes_used == ["call", "watch", "call", "call", "peak"], "the first call compiles and does not count"


def test_quick_calls_are_repeated(monkeypatch):
    seconds = [0.1, 0.05, 0.2, 0.3, 0.4, 0.5]
    monkeypatch.setattr(timing, "seconds_of", lambda call: call())
    assert measure.best_seconds(iter(seconds).__next__, 2) == 0.05
    assert measure.best_seconds(iter([9.0, 8.0, 7.0]).__next__, 2) == 8.0, "two rounds of slow calls"


def test_only_missing_rows_are_measured(bytes_used, monkeypatch, tmp_path):
    kept, solved = tmp_path / "parts" / "rows.jsonl", write_reference(tmp_path / "solved.npz")
    built = []
    monkeypatch.setattr(measure, "builder", lambda *_: lambda task: built.append(task) or (lambda: TRUTH))
    wanted = tasks(CONFIG, "cleaning", "rfho2")
    measure.append_row(kept, {**wanted[0].key, "error": 0.5})
    measure.measure_all(CONFIG, "cleaning", "rfho2", None, kept, solved)
    assert built == wanted[1:]
    assert [row["error"] for row in measure.read_rows(kept)] == [0.5] + [0.0] * len(built)
    measure.measure_all(CONFIG, "cleaning", "rfho2", None, kept, solved)
    assert len(built) == len(wanted) - 1


def test_the_smallest_number_of_iterations_is_found():
    asked = []

    def build(k):
        asked.append(k)
        return lambda: np.array(1.0 / k)

    grid = tuple(range(5, 105, 5))
    for accuracy, expected in ((1 / 30, 30), (1 / 31, 35), (1.0, 5), (1 / 100, 100), (1e-3, None)):
        assert alone.smallest(grid, build, float, accuracy) == expected
    assert len(asked) < 5 * 6


def test_solvers_are_timed_at_their_own_number_of_iterations(monkeypatch):
    def solver(speed):
        return lambda k: lambda: TRUTH * (1 + speed / k)

    found = {"rfho2: CG": solver(0.01), "jaxopt: CG": solver(0.05), "hypertorch: fixed point": solver(1.5)}
    found["hypertorch: CG"] = solver(1000.0)
    monkeypatch.setattr(alone, "solvers", lambda *_: (found, {"Betty": "not installed"}))
    rows = alone.compare(None, problems.Reference(np.zeros(2), TRUTH, 2.0), 1e-3, 2, None)
    by_name = {row["solver"]: row for row in rows}
    assert by_name["rfho2: CG"]["iterations"] == 10
    assert by_name["jaxopt: CG"]["iterations"] == 50
    assert by_name["hypertorch: fixed point"]["iterations"] == 1000
    assert by_name["hypertorch: fixed point"]["error"] == pytest.approx(1.5e-3), "it need not be good enough"
    assert by_name["hypertorch: CG"]["missing"] == "not reached"
    assert by_name["Betty: CG"]["missing"] == "not installed"
    assert all(row["seconds"] >= 0 for row in rows if not row["missing"])


@pytest.mark.slow
def test_rfho2_alone_starts_from_the_solution():
    case = problems.logistic(40, 3, seed=0)
    reference = problems.reference(case, jit_compile=False)
    assert reference.error(alone.rfho2_solver(case, reference.w)(20)()) < 1e-4


def test_the_memory_of_a_call_leaves_out_graph_and_code(monkeypatch, bytes_used):
    network = bounds.network(2, 1)
    monkeypatch.setattr(bounds, "network", lambda hidden, steps: network)
    monkeypatch.setattr(bounds.tf, "function", lambda *_, **__: lambda *_: bytes_used.append("call"))
    row = bounds.measure_memory(2, None)
    weights = 785 * 2 + 3 * 2 + 3 * 10
    assert row == {"memory": "plain step", "steps": None, "state_bytes": 4 * weights, "peak_bytes": 7}
    assert bytes_used == ["call", "watch", "call", "peak"]


def test_the_network_can_be_differentiated_implicitly():
    problem, params, hypers = bounds.network(2, 1)
    state = problem.dynamics.init(params, hypers)
    gradient = problem.dynamics.step.gradient(params, hypers, None, tf.constant(0))
    assert len(tf.nest.flatten(gradient)) == len(tf.nest.flatten(state)) == 6


def test_a_reference_survives_being_written(monkeypatch, tmp_path):
    found = problems.Reference(np.arange(3.0), TRUTH, 2.0)
    monkeypatch.setattr(problems, "reference", lambda case: found)
    measure.solve_reference(CONFIG, "logistic 3", tmp_path / "reference" / "a.npz")
    read = measure.read_reference(tmp_path / "reference" / "a.npz")
    np.testing.assert_array_equal(read.gradient, TRUTH)
    assert [path.name for path in (tmp_path / "reference").iterdir()] == ["a.npz"]

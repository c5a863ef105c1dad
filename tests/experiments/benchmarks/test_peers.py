"""The comparison with other frameworks: what counts as equal, the table, the files, and the memory."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

from data.errors import DataError
from experiments.benchmarks import peers
from rfho2.planning import memory

SAME = {"rfho2": lambda x: 2 * x, "other": lambda x: x + x}


def test_equal_contestants_are_compared():
    outcomes = peers.compare(SAME, np.ones(3), rounds=2)
    assert list(outcomes) == ["rfho2", "other"]
    assert outcomes["other"].difference == 0
    assert all(0 < outcome.seconds < 1 and outcome.peak is None for outcome in outcomes.values())


def test_the_best_of_the_rounds_counts(monkeypatch):
    clock = iter([0.0, 5.0, 10.0, 11.0, 20.0, 23.0, 30.0, 32.0])
    monkeypatch.setattr(peers.timing.time, "perf_counter", lambda: next(clock))
    outcomes = peers.compare(SAME, np.ones(3), rounds=2)
    assert {name: outcome.seconds for name, outcome in outcomes.items()} == {"rfho2": 3.0, "other": 1.0}


@pytest.mark.parametrize("wrong", [lambda x: 3 * x, lambda x: 2 * x + 3e-4, lambda x: x * np.nan])
def test_different_hypergradients_are_not_compared(wrong):
    with pytest.raises(AssertionError, match=r"other differs from rfho2 by .*: nothing to compare"):
        peers.compare({**SAME, "other": wrong}, np.ones(3), rounds=1)


def test_a_difference_in_a_small_entry_is_seen_where_entries_count():
    argument, shift = np.array([1.0, 1e-3]), np.array([0.0, 1e-5])
    contestants = {**SAME, "other": lambda x: 2 * x + shift}
    peers.compare(contestants, argument, rounds=1)
    peers.compare(contestants, argument, rounds=1, entry_tolerance=6e-3)
    with pytest.raises(AssertionError, match=r"other differs from rfho2 by 5.0e-03 in one entry"):
        peers.compare(contestants, argument, rounds=1, entry_tolerance=1e-3)


def test_the_table_has_the_ratios_of_our_costs_to_theirs():
    outcomes = {"rfho2": peers.Outcome(0.0, 1.0, 50_000_000), "other": peers.Outcome(1e-6, 4.0, 200_000_000)}
    title, _, ours, other = peers.report("case", outcomes).splitlines()
    assert title == "| case | seconds | rfho2's time / its time | peak MB | rfho2's peak / its peak |"
    assert ours == "| rfho2 | 1.000 | 1.00 | 50 | 1.00 |"
    assert other == "| other | 4.000 | 0.25 | 200 | 0.25 |"


def test_the_table_has_dashes_where_no_memory_was_measured():
    table = peers.report("case", {"rfho2": peers.Outcome(0.0, 1.0), "other": peers.Outcome(0.0, 2.0)})
    assert table.splitlines()[-1] == "| other | 2.000 | 0.50 | - | - |"


def test_the_results_keep_costs_separate(tmp_path):
    record = peers.Record(("case",), rounds=1, memory=True, peers={"jax": "1.2.3"})
    peers.write(tmp_path / "results.json", record, {"case": {"rfho2": peers.Outcome(0.0, 1.5, 7)}})
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["config"]["peers"] == {"jax": "1.2.3"}
    assert written["results"] == [{"case": "case", "contestant": "rfho2", "difference": 0.0}]
    assert written["timing"] == {"case": {"rfho2": {"seconds": 1.5, "peak_bytes": 7}}}


def test_differences_are_reported_also_where_they_are_not_checked():
    contestants = {**SAME, "other": lambda x: 2.002 * x}
    with pytest.raises(AssertionError, match=r"differs from rfho2 by 1\.0e-03"):
        peers.compare(contestants, np.ones(3), rounds=1)
    assert peers.compare(contestants, np.ones(3), rounds=1, check=False)["other"].difference == pytest.approx(1e-3)


def test_on_a_gpu_pytorch_is_refused_and_on_a_cpu_remote_memory(monkeypatch):
    monkeypatch.setattr(peers.tf.config, "list_physical_devices", lambda kind: [])
    with pytest.raises(DataError, match="leave --jax_command out"):
        peers.prepare(peers.Config(memory=True), jax_command="python3")
    monkeypatch.setattr(peers.tf.config, "list_physical_devices", lambda kind: [kind])
    with pytest.raises(DataError, match="on a GPU, pass --frameworks=jax"):
        peers.prepare(peers.Config(), jax_command=None)


class Hoarder:
    """Holds 256 MB while it runs: other memory of a long process comes and goes by some MB."""

    STEPS, entry_tolerance, memory, argument = 1, None, True, np.ones(1)

    def __init__(self, steps):
        self.megabytes = 256 if steps > 2 else 1

    def rfho2(self):
        return lambda x: np.ones(self.megabytes * 2**20, np.uint8)[:1] * x

    def jax(self):
        return {}

    torch = jax


@pytest.mark.skipif(not memory.CLEAR_REFS.exists(), reason="Linux only")
def test_the_peak_is_that_of_the_call():
    assert 240 * 2**20 < peers.peak_memory(Hoarder, 10, "rfho2") < 280 * 2**20


def test_a_fresh_process_does_not_wait_for_the_directory_of_this_one(monkeypatch):
    def last_line(name, *flags):
        (place,) = [flag.partition("=")[2] for flag in flags if flag.startswith("--output_dir=")]
        assert Path(place).is_dir()
        assert not Path(place).samefile(tempfile.gettempdir())
        return "7"

    monkeypatch.setattr(peers.processes, "last_line", last_line)
    assert peers.peak_memory_in_fresh_process("mlp_reverse", 30, "rfho2") == 7


@pytest.mark.slow
@pytest.mark.skipif(not memory.CLEAR_REFS.exists(), reason="Linux only")
def test_reverse_mode_holds_the_trajectory_in_a_fresh_process():
    for package in ("jax", "torch", "higher", "torchopt"):
        pytest.importorskip(package)
    states = 30 * 2 * 4 * 199_210  # T states of weights and velocities, float32
    assert 0.9 * states < peers.peak_memory_in_fresh_process("mlp_reverse", 30, "rfho2") < 2 * states

"""The comparison with other frameworks: what counts as equal, the table, the memory, and each contestant on a few steps."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from experiments.benchmarks import costs as benchmark
from experiments.benchmarks import peer_mlp, peers
from rfho2.planning import memory

SAME = {"rfho2": lambda x: 2 * x, "other": lambda x: x + x}
NEEDS = {"higher": "higher", "TorchOpt": "torchopt", "PyTorch": "torch", "JAX": "jax"}  # the most particular first


def test_equals_are_compared():
    found = peers.compare(SAME, np.ones(3), rounds=2)
    assert list(found) == ["rfho2", "other"]
    assert found["other"].difference == 0
    assert all(0 < outcome.seconds < 1 and outcome.peak is None for outcome in found.values())


def test_the_best_of_the_rounds_counts(monkeypatch):
    clock = iter([0.0, 5.0, 10.0, 11.0, 20.0, 23.0, 30.0, 32.0])
    monkeypatch.setattr(peers.time, "perf_counter", lambda: next(clock))
    found = peers.compare(SAME, np.ones(3), rounds=2)
    assert {name: outcome.seconds for name, outcome in found.items()} == {"rfho2": 3.0, "other": 1.0}


@pytest.mark.parametrize("wrong", [lambda x: 3 * x, lambda x: 2 * x + 3e-4, lambda x: x * np.nan])
def test_what_differs_is_not_compared(wrong):
    with pytest.raises(AssertionError, match=r"other differs from rfho2 by .*: nothing to compare"):
        peers.compare({**SAME, "other": wrong}, np.ones(3), rounds=1)


def test_a_small_entry_that_differs_is_seen_where_entries_count():
    argument, shift = np.array([1.0, 1e-3]), np.array([0.0, 1e-5])
    contestants = {**SAME, "other": lambda x: 2 * x + shift}
    peers.compare(contestants, argument, rounds=1)
    peers.compare(contestants, argument, rounds=1, each=6e-3)
    with pytest.raises(AssertionError, match=r"other differs from rfho2 by 5.0e-03 in one entry"):
        peers.compare(contestants, argument, rounds=1, each=1e-3)


def test_the_table_has_the_ratios_of_ours_to_theirs():
    outcomes = {"rfho2": peers.Outcome(0.0, 1.0, 50_000_000), "other": peers.Outcome(1e-6, 4.0, 200_000_000)}
    title, _, ours, other = peers.report("case", outcomes).splitlines()
    assert title == "| case | seconds | rfho2's time / its time | peak MB | rfho2's peak / its peak |"
    assert ours == "| rfho2 | 1.000 | 1.00 | 50 | 1.00 |"
    assert other == "| other | 4.000 | 0.25 | 200 | 0.25 |"


def test_the_table_has_dashes_where_no_memory_was_measured():
    table = peers.report("case", {"rfho2": peers.Outcome(0.0, 1.0), "other": peers.Outcome(0.0, 2.0)})
    assert table.splitlines()[-1] == "| other | 2.000 | 0.50 | - | - |"


def test_the_results_keep_costs_apart(tmp_path):
    config = peers.Config(("case",), None, 1, True, {"jax": "1.2.3"})
    peers.write(tmp_path / "results.json", config, {"case": {"rfho2": peers.Outcome(0.0, 1.5, 7)}})
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["config"]["peers"] == {"jax": "1.2.3"}
    assert written["results"] == [{"case": "case", "contestant": "rfho2", "difference": 0.0}]
    assert written["timing"] == {"case": {"rfho2": {"seconds": 1.5, "peak_bytes": 7}}}


class Hoarder:
    """Holds 256 MB while it runs: other memory of a long process comes and goes by some MB."""

    STEPS, each, memory, argument = 1, None, True, np.ones(1)

    def __init__(self, steps):
        self.megabytes = 256 if steps > 2 else 1

    def contestants(self):
        return {"hoarder": lambda: lambda x: np.ones(self.megabytes * 2**20, np.uint8)[:1] * x}


@pytest.mark.skipif(not memory.CLEAR_REFS.exists(), reason="Linux only")
def test_the_peak_is_that_of_the_call():
    assert 240 * 2**20 < peers.peak_memory(Hoarder, 10, "hoarder") < 280 * 2**20


def test_peers_train_on_the_same_batches():
    rows, (images, labels), problem = peer_mlp.order(51), peer_mlp.examples(), benchmark.problem(51)
    for t in (0, 1, 50):  # 50 is in the second epoch
        x, y = problem.batch(tf.constant(t))
        np.testing.assert_array_equal(images[rows[t]], x)
        np.testing.assert_array_equal(labels[rows[t]], y)
    x, y = problem.validation(tf.constant(0))
    np.testing.assert_array_equal(images[peer_mlp.VALIDATION], x)
    np.testing.assert_array_equal(labels[peer_mlp.VALIDATION], y)


@pytest.fixture(scope="module")
def ours():
    case = peer_mlp.MlpReverse(3)
    return case.rfho2(functools.partial(rf.reverse, jit_compile=False))(case.argument)


@pytest.mark.parametrize(
    ("case", "contestant"),
    [
        ("mlp_reverse", "JAX"),
        ("mlp_reverse", "PyTorch"),
        ("mlp_reverse", "PyTorch, higher"),
        ("mlp_reverse", "PyTorch, TorchOpt"),
        ("mlp_forward", "PyTorch, jacfwd"),
    ],
)
def test_a_peer_gives_the_hypergradient_of_the_network(ours, case, contestant):
    skip_without(contestant)
    built = peers.CASES[case](3)
    both = {"rfho2": lambda _: ours, contestant: built.contestants()[contestant]()}
    assert built.each == 1e-3
    peers.compare(both, built.argument, rounds=1, each=built.each)


@pytest.mark.parametrize("contestant", ["JAX, transposed copy", "PyTorch, transposed copy"])
def test_a_peer_gives_the_hypergradient_of_hyper_cleaning(contestant):
    skip_without(contestant)
    case = peers.CASES["hyper_cleaning"](2)
    peers.compare({name: case.contestants()[name]() for name in ("rfho2", contestant)}, case.argument, rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(peers.CASES))
def test_all_contestants_of_a_case_give_the_same(name):
    for package in peers.PEERS:
        pytest.importorskip(package)
    config = peers.Config((name,), steps=3, rounds=1, memory=False, peers={})
    assert len(peers.run(name, config)) >= 4


@pytest.mark.slow
@pytest.mark.skipif(not memory.CLEAR_REFS.exists(), reason="Linux only")
def test_reverse_mode_holds_the_trajectory_in_a_fresh_process():
    for package in peers.PEERS:
        pytest.importorskip(package)
    states = 30 * 2 * 4 * 199_210  # T states of weights and velocities, float32
    assert 0.9 * states < peers.peak_memory_elsewhere("mlp_reverse", 30, "rfho2") < 2 * states


def skip_without(contestant):
    pytest.importorskip(next(package for word, package in NEEDS.items() if word in contestant))

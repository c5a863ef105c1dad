"""Each contestant of the comparison with other frameworks, on a few steps."""

import functools
import sys

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from data.errors import DataError
from experiments.benchmarks import mlp_problem, peer_mlp, peers
from experiments.benchmarks.peer_mlp_reverse import MlpReverse
from experiments.benchmarks.peer_phones import SmallPhones

NEEDS = {"higher": "higher", "TorchOpt": "torchopt", "PyTorch": "torch", "JAX": "jax"}  # the most specific first


def skip_without(contestant):
    module = pytest.importorskip(next(package for word, package in NEEDS.items() if word in contestant))
    if module.__name__ == "jax":
        module.config.update("jax_default_matmul_precision", "highest")  # on a GPU, as TensorFlow in tests


def test_all_frameworks_train_on_the_same_batches():
    rows, (images, labels), problem = peer_mlp.batch_rows(51), mlp_problem.examples(), mlp_problem.problem(51)
    for t in (0, 1, 50):  # 50 is in the second epoch
        x, y = problem.batch(tf.constant(t))
        np.testing.assert_array_equal(images[rows[t]], x)
        np.testing.assert_array_equal(labels[rows[t]], y)
    x, y = problem.validation(tf.constant(0))
    np.testing.assert_array_equal(images[mlp_problem.VALIDATION], x)
    np.testing.assert_array_equal(labels[mlp_problem.VALIDATION], y)


@pytest.fixture(scope="module")
def ours():
    case = MlpReverse(3)
    return case.of_engine(functools.partial(rf.reverse, jit_compile=False))(case.argument)


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
def test_a_contestant_gives_the_hypergradient_of_the_network(request, case, contestant):
    skip_without(contestant)
    ours, built = request.getfixturevalue("ours"), peers.CASES[case](3)
    both = {"rfho2": lambda _: ours, contestant: peers.contestants(built)[contestant]()}
    assert built.entry_tolerance == 1e-3
    peers.compare(both, built.argument, rounds=1, entry_tolerance=built.entry_tolerance)


@pytest.mark.parametrize("contestant", ["JAX, transposed copy", "PyTorch, transposed copy"])
def test_a_contestant_gives_the_hypergradient_of_hyper_cleaning(contestant):
    skip_without(contestant)
    case = peers.CASES["hyper_cleaning"](2)
    peers.compare({name: peers.contestants(case)[name]() for name in ("rfho2", contestant)}, case.argument, rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", peers.SMALL)
def test_all_contestants_of_a_case_agree(name):
    for package in ("jax", "torch", "higher", "torchopt"):
        pytest.importorskip(package)
    assert len(peers.run(name, peers.Config((name,), steps=3, rounds=1))) >= 4


@pytest.mark.parametrize("contestant", ["JAX, columns in turn", "JAX, columns together"])
def test_a_contestant_gives_the_hypergradient_of_the_phone_network(contestant):
    skip_without(contestant)
    case = SmallPhones(SmallPhones.STEPS)
    assert case.width < peers.Phones.width
    both = {name: peers.contestants(case)[name]() for name in ("rfho2", contestant)}
    peers.compare(both, case.argument, rounds=1, entry_tolerance=case.entry_tolerance)


@pytest.mark.slow
def test_jax_may_compute_in_a_separate_process():
    pytest.importorskip("jax")
    config = peers.Config(("mlp_forward",), ("jax",), "float32", steps=2, rounds=2)
    outcomes = peers.run("mlp_forward", config, jax_command=sys.executable)
    assert list(outcomes) == ["rfho2", "JAX, jacfwd", "JAX, columns in turn"]
    assert all(0 < outcome.seconds < 60 for outcome in outcomes.values())
    with pytest.raises(DataError, match="the process with JAX ended with code 3"):
        peers.run("mlp_forward", config, jax_command=f'{sys.executable} -c "raise SystemExit(3)"')

"""Several processes on loopback compute the hypergradients of one; if one dies, the others end; only one of them writes."""

import functools
import shutil

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.distribute import columns
from tests.support import processes
from tests.support.problems import build
from tests.support.processes import assert_agree

METHODS = ("reverse", "checkpointed", "online", "columns")
QUICK = ["reverse-float64", "online-float32", "columns-float64"]

launch = functools.partial(processes.launch, module="tests.distribute.distribute_child")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two processes that compare hypergradients; then one of them dies."""
    return launch(2, "agree_and_die", tmp_path_factory.mktemp("two"), *QUICK, timeout=300.0)


@pytest.mark.slow
def test_two_processes_compute_the_hypergradients_and_norms_of_one(two):
    assert_agree(two, QUICK)


@pytest.mark.slow
def test_a_process_that_dies_ends_the_others(two):
    survivor, killed = two
    assert killed.code == -9, survivor.err[-3000:]
    assert survivor.code == 75, survivor.err[-3000:]
    assert "process 1 (localhost:" in survivor.err
    assert "was lost, so process 0" in survivor.err
    assert survivor.at - float(killed.out.split("killed at ")[1]) < 60


@pytest.mark.slow
@pytest.mark.parametrize(("number", "methods"), [(2, ("checkpointed", "forward", "real_time", "columns")), (4, METHODS)])
def test_several_processes_compute_the_hypergradients_of_one(number, methods):
    kinds = [f"{method}-{dtype}" for method in methods for dtype in ("float64", "float32")]
    results = launch(number, "agree", *kinds, timeout=400.0)
    assert [process.code for process in results] == [0] * number, results[0].err[-3000:]
    assert_agree(results, kinds)


@pytest.mark.slow
def test_two_devices_of_one_process_compute_the_hypergradients_of_one():
    kinds = ["reverse-float64", "checkpointed-float64", "forward-float64", "real_time-float64"]
    results = launch(1, "agree", *kinds, DEVICES="2")
    assert results[0].code == 0, results[0].err[-3000:]
    assert_agree(results, kinds)


@pytest.mark.slow
def test_a_silent_process_ends_the_others(tmp_path):
    survivor, silent = launch(2, "freeze", tmp_path)
    assert silent.code == -9
    assert survivor.code == 75, survivor.err[-3000:]
    assert "process 1 (localhost:" in survivor.err
    assert survivor.at < silent.at - 5, "it does not wait until the other ends"


@pytest.mark.slow
def test_a_restarted_run_resumes_bit_identically_and_only_the_chief_writes(tmp_path):
    launch(2, "die", tmp_path / "killed")
    left = {path.name for path in (tmp_path / "killed" / "checkpoints").glob("ckpt-*")}
    assert left
    assert left <= {"ckpt-00000001", "ckpt-00000002"}
    resumed = launch(2, "run", tmp_path / "killed")
    straight = launch(2, "run", tmp_path / "straight")
    assert len({process.out for process in [*resumed, *straight]}) == 1, resumed[0].err[-3000:]
    assert [process.code for process in [*resumed, *straight]] == [0] * 4
    rows = [(tmp_path / name / "history.csv").read_text().splitlines() for name in ("killed", "straight")]
    assert [row.split(",")[0] for row in rows[0]] == [row.split(",")[0] for row in rows[1]], (
        "each hyper-iteration appears once"
    )


@pytest.mark.slow
def test_processes_with_columns_of_their_own_resume_from_a_checkpoint_that_all_have(tmp_path):
    launch(2, "die_columns", tmp_path / "killed")
    assert (tmp_path / "killed" / "1" / "ckpt-00000001").exists()
    ahead = tmp_path / "killed" / "0" / "ckpt-00000002"  # as if killed after one process had written it
    shutil.copytree(tmp_path / "killed" / "0" / "ckpt-00000001", ahead, dirs_exist_ok=True)
    results = launch(2, "run_columns", tmp_path / "killed")
    results += launch(2, "run_columns", tmp_path / "straight")
    assert len({process.out for process in results}) == 1, results[0].err[-3000:]
    assert results[0].out


def test_columns_in_chunks_on_one_device_are_those_of_forward_mode():
    arguments = build("quadratic", "momentum", steps=3)
    divided = rf.distribute.forward_columns(arguments[0], rf.distribute.mesh(), chunk=2, jit_compile=False)
    forward = rf.forward(arguments[0], jit_compile=False)
    for name, gradient in divided(*arguments[1:]).grads.items():
        np.testing.assert_allclose(gradient, forward(*arguments[1:]).grads[name], rtol=1e-10)


def test_a_process_without_checkpoints_makes_the_others_begin_again(tmp_path, monkeypatch):
    (tmp_path / "one" / "ckpt-00000001").mkdir(parents=True)
    told = []
    monkeypatch.setattr(columns, "gather", lambda own, mesh: told.append(int(own[0])) or np.array([0, 1]))
    columns.same_checkpoint(tmp_path / "none", None)
    columns.same_checkpoint(tmp_path / "one", None)
    assert told == [0, 1]
    assert not list((tmp_path / "one").iterdir())


@pytest.mark.slow
def test_ctrl_c_in_one_process_ends_all_of_them(tmp_path):
    stopped = launch(2, "stop", tmp_path, SIGNAL="SIGINT")
    assert [process.code for process in stopped] == [-2, -2], stopped[0].err[-3000:]  # 130 in a shell
    assert (tmp_path / "checkpoints" / "ckpt-00000003").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "places"), [("", ["checkpoints"]), ("_columns", ["0", "1"])])
def test_a_signal_to_one_process_ends_all_after_the_same_hyper_iteration(kind, places, tmp_path):
    stopped = launch(2, f"stop{kind}", tmp_path / "stopped")
    assert [process.code for process in stopped] == [143, 143], stopped[0].err[-3000:]
    newest = {max(path.name for path in (tmp_path / "stopped" / place).glob("ckpt-*")) for place in places}
    assert newest == {"ckpt-00000003"}
    results = launch(2, f"run{kind}", tmp_path / "stopped") + launch(2, f"run{kind}", tmp_path / "straight")
    assert [process.code for process in results] == [0] * 4
    assert len({process.out for process in results}) == 1
    assert results[0].out


@pytest.mark.slow
def test_a_process_that_ends_too_early_is_noticed():
    waiting, early = launch(2, "leave")
    assert early.code == 0
    assert waiting.code != 0
    assert "process 1 (localhost:" in waiting.err or "UnavailableError" in waiting.err


@pytest.mark.slow
def test_hypers_that_differ_between_processes_are_rejected():
    for process in launch(2, "differ"):
        assert process.code not in (0, -9)
        assert "hypers or k differ between the processes" in process.err or "was lost" in process.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "rate", "times"), [("reverse", "fixed", 2), ("reverse", "tuned", 3), ("forward", "tuned", 3)]
)
@pytest.mark.parametrize("number", [2, 4])
def test_the_processes_exchange_as_many_bytes_as_the_documentation_says(number, method, rate, times):
    """A step all-reduces the weights `times` times; over a ring of R processes each costs 2 (R - 1) times their size."""
    results = launch(number, "traffic", method, rate, timeout=300.0)
    assert all(process.code == 0 for process in results), results[0].err[-3000:]
    measured = min(float(process.out) for process in results)
    model = times * 2 * (number - 1) * 8000 * 8
    print(f"{method}, learning rate {rate}, {number} processes: {measured:.0f} bytes per step, {model} in the model")
    assert 0.95 * model < measured < 1.2 * model, f"{measured} bytes, {model} in the model"


def test_a_solver_that_crashes_on_a_mesh_is_refused():
    loss = lambda w, hypers, batch: tf.reduce_sum(w**2) * hypers["l2"]  # noqa: E731
    problem = rf.Problem(rf.gradient_descent(loss, 0.1), loss, 3)
    with pytest.raises(ValueError, match=r"solver is 'bicgstab'.*solver='normal'"):
        rf.distribute.on_mesh(rf.implicit(problem, solver="bicgstab"), rf.distribute.mesh())

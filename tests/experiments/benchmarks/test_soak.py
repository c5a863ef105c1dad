"""The checks of `make soak`: on a short run that is killed and a short one that is watched, and on logs that are spoiled."""

import os
import shutil
import subprocess
import sys
import threading
import time

import pytest
import tensorflow as tf

from experiments.benchmarks import mixed_soak, soak, soak_checks
from experiments.common import processes
from tests.support.processes import ROOT

ITERATIONS = 40
TINY = ["--hidden=2", "--batch_size=5", "--hyper_batch=1", "--deterministic"]
AS_GRAPHS = """
import functools, runpy, sys, rfho2
rfho2.real_time = functools.partial(rfho2.real_time, jit_compile=False)
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def soaked(tmp_path_factory):
    """A directory with a run that was killed and one that was not, and the growth of the latter.

    The processes run without XLA, whose compilation takes longer than everything else.
    """
    output, growths = tmp_path_factory.mktemp("soak"), {}

    def command(name, *flags):
        return [sys.executable, "-c", AS_GRAPHS, f"experiments.{name}", *flags]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "command", command)
        patch.setattr(soak, "WATCH", 0.02)  # enough samples of a short run
        watched = threading.Thread(target=lambda: growths.update(soak.long_run(output / "whole", ITERATIONS, TINY)))
        watched.start()
        kills = soak.killed_run(output / "killed", ITERATIONS, 1, TINY, seed=1)
        watched.join()
    assert kills == 1
    assert growths, "the watched run failed"
    return output, growths


@pytest.mark.slow
def test_a_killed_run_loses_nothing(soaked):
    output, _ = soaked
    assert soak_checks.differences(output / "killed", output / "whole", ITERATIONS) == []


@pytest.mark.slow
def test_losses_and_repetitions_are_reported(soaked, tmp_path):
    output, _ = soaked
    spoiled = tmp_path / "spoiled"
    shutil.copytree(output / "killed", spoiled)
    table = (spoiled / "history.csv").read_text().splitlines(keepends=True)
    (spoiled / "history.csv").write_text("".join([*table, table[-1]]))
    writer = tf.summary.create_file_writer(str(spoiled / "tensorboard"))
    with writer.as_default(step=3):
        tf.summary.scalar("objective/value", 17.0)
    writer.close()
    results = (spoiled / "results.json").read_text()
    (spoiled / "results.json").write_text(results.replace('"iteration": 3,', '"iteration": 2,'))
    last, before = (spoiled / "checkpoints" / f"ckpt-{k:08d}" for k in (ITERATIONS, ITERATIONS - 1))
    shutil.copytree(before, last, dirs_exist_ok=True)
    wrong = soak_checks.differences(spoiled, output / "whole", ITERATIONS + 1)
    assert [what.split(" ")[0] for what in wrong] == [
        "results.json",
        "the",
        "history.csv",
        "history.csv",
        "TensorBoard:",
        "TensorBoard",
    ]
    assert "TensorBoard: objective/value at 3 has two values" in wrong
    assert f"TensorBoard lacks [{ITERATIONS}]" in wrong


@pytest.mark.slow
def test_each_hyper_iteration_has_a_moment(soaked):
    output, _ = soaked
    moments = soak_checks.log_times(output / "whole" / "tensorboard")
    assert len(moments) == ITERATIONS
    assert moments == sorted(moments)


@pytest.mark.slow
def test_a_run_does_not_grow(soaked):
    _, growths = soaked
    assert growths[soak.FILES].ratio == 1.0
    assert growths[soak.MEMORY].ratio < soak.LIMITS[soak.MEMORY]
    assert growths[soak.TIME].last > 0


def test_growth_is_the_last_quarter_compared_with_the_second():
    samples = [(k, 10.0 if k < 60 else 11.0) for k in range(80)]
    assert soak.growth(samples, 80) == (10.0, 11.0)
    assert soak.growth(samples, 80).ratio == pytest.approx(1.1)


def test_a_process_that_ends_by_itself_was_not_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "command", lambda name, *flags: [sys.executable, "-c", "pass"])
    child = soak.start(tmp_path, 4, [])
    assert not soak.kill(child, tmp_path, goal=2, wait=0.0)


def test_a_failed_run_and_an_earlier_one_are_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "command", lambda name, *flags: [sys.executable, "-c", "raise SystemExit(3)"])
    config = soak.Config(output_dir=str(tmp_path))
    with pytest.raises(soak.DataError, match=r"whole ended with 3; see .*log\.txt"):
        soak.run_kills(config)
    with pytest.raises(soak.DataError, match="whole has an earlier run; remove it"):
        soak.run_kills(config)


def test_a_large_disk_is_not_filled(tmp_path, monkeypatch):
    monkeypatch.setattr(mixed_soak, "DISK", 1)
    with pytest.raises(soak.DataError, match="make a small one"):
        mixed_soak.run_mixed(soak.Config("mixed", output_dir=str(tmp_path)))
    assert not (tmp_path / "whole").exists()


def test_the_clock_of_a_module_stands_still(tmp_path):
    code = "import time\na = time.time(), time.perf_counter()\ntime.sleep(0.05)\n"
    (tmp_path / "looks.py").write_text(code + "print(a == (time.time(), time.perf_counter()), time.time())\n")
    command = [sys.executable, "-m", "experiments.benchmarks.still_clock", "5000", "looks"]
    path = f"{ROOT}:{tmp_path}"
    printed = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    ).stdout
    assert printed.split()[0] == "True"
    assert time.time() - float(printed.split()[1]) > 4000


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root, to make a small disk")
def test_a_mixed_soak_loses_nothing(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", tmp_path], check=True)
    try:
        assert mixed_soak.run_mixed(soak.Config("mixed", output_dir=str(tmp_path / "soak"), hyper_iterations=20, kills=3))
    finally:
        subprocess.run(["umount", tmp_path], check=True)

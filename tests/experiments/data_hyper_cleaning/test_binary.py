"""The hyper-cleaning binary: what it writes; what happens when it is stopped, killed or started twice."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.support.binaries import run_binary

ROOT = Path(__file__).parents[3]
NAME = "data_hyper_cleaning"
FAST = ["--hyper_iterations=6", "--steps=3", "--fit_steps=10", "--radius=1000", "--seeds=0"]
RUN = Path("runs") / "DH-1000-seed-0"


@contextlib.contextmanager
def started(output, *flags):
    """The binary as a process, after its first checkpoint."""
    child = subprocess.Popen(
        [sys.executable, "-m", f"experiments.{NAME}", f"--output_dir={output}", *FAST, *flags],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.time() + 240
        while time.time() < deadline and child.poll() is None and not list((output / RUN / "checkpoints").glob("ckpt-*")):
            time.sleep(0.005)
        assert child.poll() is None, child.stderr.read()[-2000:]
        yield child
    finally:
        child.kill()


def content(output):
    """results.json without the times."""
    results = json.loads((output / "results.json").read_text())
    results.pop("timing")
    return results


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """What the binary printed, and the directory that it wrote."""
    output = tmp_path_factory.mktemp("finished")
    ended = run_binary(NAME, f"--output_dir={output}", *FAST)
    assert ended.code == 0, ended.err[-2000:]
    return ended.out, output


def test_it_writes_table_figures_results_and_logs(finished):
    printed, output = finished
    assert "| DH-1000 |" in printed
    for name in ("table_1.md", "figure_2.png", "figure_2.pdf", "discarded_first.png", "results.json"):
        assert (output / name).stat().st_size > 100, name
    command = json.loads((output / "results.run.json").read_text())["command"]
    assert command == f"python -m experiments.{NAME} --output_dir={output} {' '.join(FAST)}"

    tags = EventAccumulator(str(output / RUN / "tensorboard"), size_guidance={"scalars": 0}).Reload().Tags()
    metrics = ("validation accuracy", "test accuracy", "TP", "FP", "F1", "discarded", "sum of weights", "R")
    assert {"objective/value", *(f"metrics/{name}" for name in metrics)} <= {*tags["scalars"], *tags["tensors"]}
    assert {"metrics/weights/noisy", "metrics/weights/clean", "hypers/weights"} <= {*tags["histograms"], *tags["tensors"]}


@pytest.mark.slow  # tests/experiments/test_soak.py kills another binary
def test_it_resumes_after_a_kill(finished, tmp_path):
    with started(tmp_path) as child:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert list((tmp_path / RUN / "checkpoints").glob("ckpt-*")), "killed before the first checkpoint"
    assert not (tmp_path / "results.json").exists(), "finished before it was killed"
    resumed = run_binary(NAME, f"--output_dir={tmp_path}", *FAST)
    assert resumed.code == 0, resumed.err[-2000:]
    assert content(tmp_path) == content(finished[1])
    histories = [(output / RUN / "history.csv").read_text() for output in (finished[1], tmp_path)]
    assert histories[0] == histories[1]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "sigterm"])
def test_when_stopped_it_tells_how_to_go_on_and_no_second_one_runs_beside_it(number, code, tmp_path):
    with started(tmp_path, "--hyper_iterations=5000") as child:
        second = run_binary(NAME, f"--output_dir={tmp_path}", *FAST)
        assert second.code == 1
        assert f"process {child.pid} on" in second.err
        child.send_signal(number)
        _, stderr = child.communicate(timeout=120)
    assert child.returncode == code, stderr[-2000:]
    assert f"To go on, run again: python -m experiments.{NAME} --output_dir={tmp_path}" in stderr
    assert "Traceback" not in stderr

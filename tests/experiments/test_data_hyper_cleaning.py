"""The hyper-cleaning experiment: on few digits in this process, and the binary killed and resumed."""

import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from data import mnist
from experiments.data_hyper_cleaning import experiment as cleaning
from experiments.data_hyper_cleaning import report

ROOT = Path(__file__).parents[2]
BINARY = [sys.executable, "-m", "experiments.data_hyper_cleaning"]
SMALL = cleaning.Config(radius=(30.0, 60.0), seeds=(0, 1), steps=20, hyper_iterations=25, hyper_rate=0.05, fit_steps=50)


def few(seed):
    split = mnist.noisy_split(mnist.load(), seed, train=200, validation=400)
    return split._replace(test=mnist.Digits(split.test.images[:500], split.test.labels[:500]))


@pytest.fixture(scope="module")
def outcome():
    return cleaning.run(SMALL, few)


def test_the_results_have_a_row_for_each_method_and_seed(outcome):
    rows = {(row["method"], row["seed"]): row for row in outcome.results}
    assert set(rows) == {(m, s) for m in ("oracle", "baseline", "DH-30", "DH-60") for s in (0, 1)}
    assert all(0 <= row["accuracy"] <= 1 for row in outcome.results)
    assert rows["baseline", 0]["f1"] is None
    assert rows["oracle", 0]["f1"] == 1.0
    assert rows["DH-30", 0]["accuracy_weighted"] is not None
    assert not any("seconds" in row for row in outcome.results)
    assert json.loads(json.dumps(outcome.results)) == outcome.results


def test_it_finds_corrupted_labels(outcome):
    """Half of them are wrong: a coin would have F1 = 0.5."""
    found = [row["f1"] for row in outcome.results if row["method"] == "DH-60"]
    assert min(found) > 0.7


def test_the_sum_of_the_weights_stays_within_the_radius(outcome):
    for (radius, _), history in outcome.histories.items():
        assert len(history) == SMALL.hyper_iterations
        assert all(row["sum of weights"] <= radius * (1 + 1e-5) for row in history)


def test_the_validation_error_falls(outcome):
    for history in outcome.histories.values():
        assert history[-1]["value"] < history[0]["value"]


def test_the_same_seed_gives_the_same(outcome):
    again = cleaning.run(SMALL, few)
    assert again.results == outcome.results
    assert again.histories == outcome.histories


def test_detection_counts_exact_zeros_only():
    noisy = np.array([True, True, True, False, False])
    found = cleaning.detection(np.array([0.0, 0.0, 1e-9, 0.0, 1.0]), noisy)
    assert (found["TP"], found["FP"], found["discarded"]) == (2, 1, 3)
    assert found["F1"] == pytest.approx(2 * 2 / (3 + 3))


def test_the_table_has_the_papers_column():
    rows = [
        {"method": "DH-1000", "seed": s, "accuracy": 0.9 + 0.01 * s, "f1": 0.95, "accuracy_weighted": 0.9, "discarded": 2400}
        for s in (0, 1)
    ]
    assert report.table_1(rows).splitlines()[2] == "| DH-1000 | 90.50 ± 0.50 | 0.9500 | 2400 | 90.00 | 90.07 | 0.9137 |"


def test_first_discarded_goes_on_after_a_resume(tmp_path):
    import tensorflow as tf

    import rfho2 as rf

    def tell(watcher, first, rows):
        watcher.on_start(rf.Run(first, 9, {"weights": tf.ones(3)}, {}))
        for k, weights in rows:
            watcher.on_hyper_iteration(k, {"weights": tf.constant(weights)}, None, {})

    path = tmp_path / "first.npy"
    tell(report.FirstDiscarded(path), 0, [(0, [1.0, 1.0, 1.0]), (1, [0.0, 1.0, 1.0]), (2, [1.0, 0.0, 1.0])])
    tell(report.FirstDiscarded(path), 2, [(2, [1.0, 0.0, 1.0]), (3, [1.0, 1.0, 1.0])])
    assert np.load(path).tolist() == [1, 2, -1]


FAST = ["--hyper_iterations=6", "--steps=3", "--fit_steps=10", "--radius=1000", "--seeds=0"]


def run_binary(output, *flags, **kwargs):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [*BINARY, f"--output_dir={output}", *flags]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, **kwargs)


def content(output):
    """results.json up to times."""
    whole = json.loads((output / "results.json").read_text())
    whole.pop("timing")
    return whole


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What the binary says, and the directory that it wrote."""
    place = tmp_path_factory.mktemp("whole")
    ended = run_binary(place, *FAST)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout, place


def test_the_binary_writes_everything(whole):
    said, place = whole
    assert "| DH-1000 |" in said
    for name in ("table_1.md", "figure_2.png", "figure_2.pdf", "discarded_first.png", "results.json"):
        assert (place / name).stat().st_size > 100, name

    log = EventAccumulator(str(place / "runs" / "DH-1000-seed-0" / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    tags = log.Tags()
    wanted = {"value", "validation accuracy", "test accuracy", "TP", "FP", "F1", "discarded", "sum of weights", "R"}
    assert wanted <= {*tags["scalars"], *tags["tensors"]}
    assert {"weights/noisy", "weights/clean", "hyper/weights"} <= {*tags["histograms"], *tags["tensors"]}


@pytest.mark.slow  # tests/test_soak.py does the same with another binary
def test_the_binary_resumes_after_a_kill(whole, tmp_path):
    killed = tmp_path / "b"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    child = subprocess.Popen(
        [*BINARY, f"--output_dir={killed}", *FAST],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    checkpoints = killed / "runs" / "DH-1000-seed-0" / "checkpoints"
    deadline = time.time() + 240
    while time.time() < deadline and child.poll() is None and not list(checkpoints.glob("ckpt-*")):
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert list(checkpoints.glob("ckpt-*")), "killed before the first checkpoint"
    assert not (killed / "results.json").exists(), "finished before it was killed"
    again = run_binary(killed, *FAST)
    assert again.returncode == 0, again.stderr[-2000:]
    assert content(killed) == content(whole[1])
    histories = [(n / "runs" / "DH-1000-seed-0" / "history.csv").read_text() for n in (whole[1], killed)]
    assert histories[0] == histories[1]


@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGINT, 130, id="ctrl-c", marks=pytest.mark.slow), pytest.param(signal.SIGTERM, 143, id="sigterm")],
)
def test_a_stopped_binary_says_how_to_go_on(number, code, tmp_path):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [*BINARY, f"--output_dir={tmp_path}", *FAST, "--hyper_iterations=5000"]
    listening = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # tests in the background ignore it
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listening,
    )
    checkpoints = tmp_path / "runs" / "DH-1000-seed-0" / "checkpoints"
    deadline = time.time() + 240
    while time.time() < deadline and child.poll() is None and not list(checkpoints.glob("ckpt-*")):
        time.sleep(0.01)
    if number == signal.SIGTERM:  # once is enough
        second = run_binary(tmp_path, *FAST)
        assert second.returncode == 1
        assert f"where process {child.pid}" in second.stderr
    child.send_signal(number)
    _, stderr = child.communicate(timeout=120)
    assert child.returncode == code, stderr[-2000:]
    assert f"To go on, run again: python -m experiments.data_hyper_cleaning --output_dir={tmp_path}" in stderr
    assert "Traceback" not in stderr


def test_bad_flags_and_bad_data_end_without_a_traceback(tmp_path):
    stray = run_binary(tmp_path, "quick")
    assert stray.returncode == 1
    assert "flags look like --name=value" in stray.stdout + stray.stderr
    assert "Traceback" not in stray.stderr

"""Runs that are killed and taken up again, to the same bits; directories of other problems; damaged files; streams.

The killed runs are processes of their own, `python -m tests.test_checkpoints <case> <directory> <how>`.
"""

import csv
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.driver import locks

ROOT = Path(__file__).parents[2]
TARGET = np.array([1.0, -2.0, 0.5])
PARAMS = [0.0, 0.0, 0.0]
HYPERS = {"lr": 0.1, "weights": [1.0, 1.0, 1.0]}
TOTAL = 6
LONG = 20_000  # more than a run gets through before it is killed

# The runs: each case is built afresh in the process that runs it


def loss(w, hypers, batch):
    return tf.reduce_sum(hypers["weights"] * (w - batch) ** 2)


def objective(w, hypers, batch):
    return tf.reduce_sum((w - batch) ** 2)


def problem(dynamics=rf.gradient_descent, steps=3, batches=None, dtype=tf.float32):
    noise = np.random.default_rng(0).normal(size=(7, 3))
    batches = batches or rf.batches.shuffled(tf.constant(TARGET + noise, dtype), 1, seed=1)
    validation = rf.batches.shuffled(tf.constant(TARGET + 0.2 * noise, dtype), 1, seed=2)
    return rf.Problem(dynamics(loss, "lr"), objective, steps, batches, validation)


@functools.cache
def engine(case="simple"):
    """Compiled once for all tests of a process."""
    if case == "real_time":
        return rf.real_time(problem(rf.adam, steps=None), hyper_batch=2, jit_compile=False)
    return rf.reverse(problem(rf.gradient_descent if case == "simple" else rf.adam), jit_compile=case == "reverse_jit")


def adam(rate=0.02, high=1.0, **settings):
    return rf.projected_adam(rate, {"lr": rf.Box(0.0, high), "weights": rf.NonNegative()}, **settings)


usual = functools.cache(adam)


def run(directory=None, iterations=TOTAL, case="simple", callbacks=(), optimizer=None, hypers=None, params=None, **settings):
    params = tf.constant(PARAMS if params is None else params)
    tuner = rf.HyperOptimizer(case if not isinstance(case, str) else engine(case), optimizer or usual(), callbacks)
    return tuner.run(params, hypers or HYPERS, iterations, directory, **settings)


@functools.cache
def straight(case="simple", iterations=TOTAL):
    """The run that nothing interrupts."""
    return run(None, iterations, case)


class Killing:
    """Ends its own process, as the system would, at hyper-iteration n or at a later moment between two writes to disk."""

    def __init__(self, how, at):
        self.how, self.left = how, int(at)
        if how == "at_fsync":
            os.fsync = lambda descriptor, fsync=os.fsync: (self.count(), fsync(descriptor))

    def on_hyper_iteration(self, k, *_):
        if self.how == "at_iteration":
            self.count()

    def count(self):
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main(case, directory, how, at="0"):
    log = rf.CSVLogger(Path(directory).with_suffix(".csv"))
    run(directory, LONG if how == "by_parent" else TOTAL, case, [log, Killing(how, at)])


def start(case, directory, how, at=0):
    command = [sys.executable, "-m", "tests.test_checkpoints", case, str(directory), how, str(at)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def numbers(directory):
    """The hyper-iterations of which there are checkpoints."""
    return sorted(int(path.name.removeprefix("ckpt-")) for path in Path(directory).glob("ckpt-*"))


def checkpoint(directory, k):
    return Path(directory) / f"ckpt-{k:08d}"


def contents(directory):
    return {path.relative_to(directory): path.read_bytes() for path in Path(directory).rglob("*") if path.is_file()}


def assert_identical(a, b):
    """Two results to the bit, but for the time that they took."""
    pairs = ((a.hypers, b.hypers), (a.state, b.state), (a.best.hypers, b.best.hypers), (a.best.state, b.best.state))
    for x, y in pairs:
        tf.nest.assert_same_structure(x, y)
        for one, other in zip(tf.nest.flatten(x), tf.nest.flatten(y), strict=True):
            assert (one.dtype, one.shape, one.numpy().tobytes()) == (other.dtype, other.shape, other.numpy().tobytes())
    assert (a.best.value, a.best.iteration) == (b.best.value, b.best.iteration)
    without = lambda history: [{key: row[key] for key in row if key != "seconds"} for row in history]  # noqa: E731
    assert without(a.history) == without(b.history)


class Start:
    """Remembers where a run started."""

    def on_start(self, run):
        self.first = run.first


class Break:
    """Breaks a run off at hyper-iteration `at`, before its checkpoint."""

    def __init__(self, at):
        self.at = at

    def on_hyper_iteration(self, k, *_):
        if k == self.at:
            raise KeyboardInterrupt


def broken(at, *args, **settings):
    with pytest.raises(KeyboardInterrupt):
        run(*args, callbacks=[Break(at)], **settings)


# Broken off in this process, which is quicker


@pytest.mark.parametrize("at", range(TOTAL))
def test_a_run_may_be_broken_off_at_every_hyper_iteration(at, tmp_path):
    broken(at, tmp_path)
    assert_identical(run(tmp_path), straight())


def test_a_run_may_be_broken_off_again_and_again(tmp_path):
    for at in range(TOTAL):
        broken(at, tmp_path, case="real_time")
    assert_identical(run(tmp_path, case="real_time"), straight("real_time"))


def test_float64_is_kept_to_the_bit(tmp_path):
    in_double = rf.reverse(problem(dtype=tf.float64), jit_compile=False)
    params, hypers = np.zeros(3), {name: np.array(value) for name, value in HYPERS.items()}
    settings = {"case": in_double, "params": params, "hypers": hypers}
    broken(3, tmp_path, **settings)
    assert_identical(run(tmp_path, **settings), run(None, **settings))


def test_the_time_of_the_part_before_is_counted(tmp_path):
    before = run(tmp_path, 2).history
    after = run(tmp_path).history
    assert [row["seconds"] for row in after[:2]] == [row["seconds"] for row in before]
    assert after[2]["seconds"] > before[1]["seconds"]


# Another problem's directory


OTHERS = {  # `run` settings that differ in one thing
    "steps": lambda: {"case": rf.reverse(problem(steps=4), jit_compile=False)},
    "engine": lambda: {"case": rf.forward(problem(), jit_compile=False)},
    "truncate": lambda: {"case": rf.reverse(problem(), truncate=2, jit_compile=False)},
    "inner optimiser": lambda: {"case": rf.reverse(problem(rf.adam), jit_compile=False)},
    "initial hypers": lambda: {"hypers": {**HYPERS, "lr": 0.2}},
    "initial params": lambda: {"params": [0.0, 0.0, 1e-6]},
    "shape": lambda: {"hypers": {**HYPERS, "weights": [[1.0, 1.0, 1.0]]}},
    "dtype": lambda: {"case": rf.reverse(problem(dtype=tf.float64), jit_compile=False), "params": np.zeros(3)},
    "learning rate": lambda: {"optimizer": adam(rate=0.03)},
    "rates by name": lambda: {"optimizer": adam(rate={"lr": 0.02, "weights": 0.03})},
    "beta": lambda: {"optimizer": adam(beta_1=0.8)},
    "constraint": lambda: {"optimizer": adam(high=2.0)},
}

TOLD = {
    "steps": "steps", "engine": "forward", "truncate": "truncate", "inner optimiser": "first_moment",
    "initial hypers": "initial hypers", "initial params": "initial params", "shape": "[1, 3]", "dtype": "float64",
    "learning rate": "0.03", "rates by name": "0.03", "beta": "0.8", "constraint": "2.0",
}  # fmt: skip


@pytest.mark.parametrize("resume", [True, False], ids=["resume", "afresh"])
@pytest.mark.parametrize("what", TOLD)
def test_a_directory_of_another_problem_is_refused_and_left_alone(what, resume, tmp_path):
    run(tmp_path, 2)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="another problem") as caught:
        run(tmp_path, 4, resume=resume, **OTHERS[what]())
    assert TOLD[what] in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert contents(tmp_path) == before


def test_a_refused_run_does_not_touch_its_log(tmp_path):
    log = tmp_path / "log.csv"
    run(tmp_path / "run", 2, callbacks=[rf.CSVLogger(log)])
    before = log.read_bytes()
    with pytest.raises(ValueError, match="another problem"):
        run(tmp_path / "run", 2, callbacks=[rf.CSVLogger(log)], hypers={**HYPERS, "lr": 0.2})
    assert log.read_bytes() == before


def test_bounds_that_differ_in_the_middle_of_a_long_array_are_another_problem(tmp_path):
    many = 1500
    bounds = [np.ones(many), np.ones(many)]
    bounds[1][many // 2] = 0.5
    mean = lambda w, hypers, batch: tf.reduce_mean(hypers["x"]) * w**2  # noqa: E731
    one = rf.reverse(rf.Problem(rf.gradient_descent(mean, 0.1), mean, steps=1), jit_compile=False)
    tuners = [rf.HyperOptimizer(one, rf.projected_adam(0.1, {"x": rf.Box(0.0, bound)})) for bound in bounds]
    tuners[0].run(tf.constant(1.0), {"x": np.zeros(many)}, 1, tmp_path)
    with pytest.raises(ValueError, match="another problem"):
        tuners[1].run(tf.constant(1.0), {"x": np.zeros(many)}, 1, tmp_path)


def test_a_longer_run_is_the_same_problem(tmp_path):
    run(tmp_path, 2)
    assert_identical(run(tmp_path, 4), straight(iterations=4))


# Damage


def halve(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(file):
    data = bytearray(file.read_bytes())
    data[data.index(b"\x93NUMPY") + 128] ^= 0xFF  # the first number of the first array
    file.write_bytes(data)


DAMAGE = {
    "arrays truncated": lambda place: halve(place / "arrays.npz"),
    "arrays empty": lambda place: (place / "arrays.npz").write_bytes(b""),
    "arrays changed": lambda place: flip(place / "arrays.npz"),
    "arrays missing": lambda place: (place / "arrays.npz").unlink(),
    "record truncated": lambda place: halve(place / "record.json"),
    "record empty": lambda place: (place / "record.json").write_bytes(b""),
    "record not text": lambda place: (place / "record.json").write_bytes(b"\xff\xfe\x00garbage"),
    "record not json": lambda place: (place / "record.json").write_text("garbage"),
    "record of zeros": lambda place: (place / "record.json").write_bytes(bytes(100)),
    "record not a dict": lambda place: (place / "record.json").write_text("null"),
    "record missing": lambda place: (place / "record.json").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_of_a_damaged_newest_checkpoint_the_one_before_is_used(damage, tmp_path):
    run(tmp_path, 4)
    DAMAGE[damage](checkpoint(tmp_path, 4))
    began = Start()
    with pytest.warns(UserWarning, match="ckpt-00000004 is damaged"):
        result = run(tmp_path, callbacks=[began])
    assert began.first == 3
    assert_identical(result, straight())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_identical(run(tmp_path), straight())


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_does_not_hinder_a_fresh_start(damage, tmp_path):
    run(tmp_path, 4)
    DAMAGE[damage](checkpoint(tmp_path, 4))
    assert_identical(run(tmp_path, 2, resume=False), straight(iterations=2))
    assert numbers(tmp_path) == [1, 2]


def test_where_all_are_damaged_the_run_starts_again(tmp_path):
    run(tmp_path, 3)
    for k in (2, 3):
        halve(checkpoint(tmp_path, k) / "arrays.npz")
    began = Start()
    with pytest.warns(UserWarning, match="damaged"):
        result = run(tmp_path, callbacks=[began])
    assert began.first == 0
    assert_identical(result, straight())


def test_new_checkpoints_are_kept_beside_damaged_ones_of_later_hyper_iterations(tmp_path):
    run(tmp_path, 5)
    for k in (4, 5):
        halve(checkpoint(tmp_path, k) / "arrays.npz")
    with pytest.warns(UserWarning, match="damaged"):
        broken(3, tmp_path)
    began = Start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = run(tmp_path, callbacks=[began])
    assert began.first == 3
    assert_identical(result, straight())


# What is on the disk


def test_left_over_drafts_do_no_harm(tmp_path):
    for name in (".draft-abc", ".draft-00000009"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "arrays.npz").write_bytes(b"PK\x03\x04 half")
    run(tmp_path, 3)
    assert numbers(tmp_path) == [2, 3]
    (tmp_path / ".draft-xyz").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_identical(run(tmp_path), straight())


def test_old_checkpoints_that_were_not_dropped_do_no_harm(tmp_path):
    run(tmp_path / "run", 1)
    shutil.copytree(tmp_path / "run", tmp_path / "old")
    run(tmp_path / "run", 3)
    checkpoint(tmp_path / "old", 1).rename(checkpoint(tmp_path / "run", 1))
    assert_identical(run(tmp_path / "run"), straight())
    assert numbers(tmp_path / "run") == [TOTAL - 1, TOTAL]


def test_a_finished_run_leaves_no_drafts(tmp_path):
    run(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "ckpt-00000005", "ckpt-00000006"]


def test_an_error_while_writing_leaves_no_draft_and_the_checkpoint_before(tmp_path, monkeypatch):
    run(tmp_path, 3)

    def full(*args, **kwargs):
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(np, "savez", full)
        with pytest.raises(OSError, match="no space left"):
            run(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "ckpt-00000002", "ckpt-00000003"]
    assert_identical(run(tmp_path), straight())


def test_files_of_others_in_the_directory_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "ckpt-best").mkdir()
    run(tmp_path, 3)
    run(tmp_path, 3, resume=False)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "ckpt-best").is_dir()


def test_at_most_two_checkpoints_are_kept(tmp_path):
    seen = []
    watch = type("Watch", (), {"on_hyper_iteration": lambda self, k, *_: seen.append(numbers(tmp_path))})()
    run(tmp_path, 5, callbacks=[watch])
    assert seen == [[], [1], [1, 2], [2, 3], [3, 4]]
    assert numbers(tmp_path) == [4, 5]


def test_checkpoint_every_so_many_and_at_the_end(tmp_path):
    seen = []
    watch = type("Watch", (), {"on_hyper_iteration": lambda self, k, *_: seen.append(numbers(tmp_path))})()
    run(tmp_path, 8, callbacks=[watch], checkpoint_every=3)
    assert seen == [[], [], [], [3], [3], [3], [3, 6], [3, 6]]
    assert numbers(tmp_path) == [6, 8]


def test_between_two_checkpoints_the_run_goes_back_to_the_first(tmp_path):
    broken(5, tmp_path, checkpoint_every=3)
    began = Start()
    assert_identical(run(tmp_path, callbacks=[began], checkpoint_every=2), straight())
    assert began.first == 3


def test_resume_false_starts_afresh(tmp_path):
    run(tmp_path, 5)
    began = Start()
    assert_identical(run(tmp_path, 2, callbacks=[began], resume=False), straight(iterations=2))
    assert began.first == 0
    assert numbers(tmp_path) == [1, 2]


def test_the_directory_is_made(tmp_path):
    run(tmp_path / "a" / "b", 1)
    assert numbers(tmp_path / "a" / "b") == [1]


def test_another_version_warns_and_goes_on(tmp_path):
    run(tmp_path, 3)
    file = checkpoint(tmp_path, 3) / "record.json"
    record = json.loads(file.read_text())
    assert record["versions"]["tensorflow"] == tf.__version__
    record["versions"]["tensorflow"] = "2.0.0"
    file.write_text(json.dumps(record))
    with pytest.warns(UserWarning, match=r"written with .*2\.0\.0"):
        result = run(tmp_path)
    assert_identical(result, straight())


def test_the_same_version_does_not_warn(tmp_path):
    run(tmp_path, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(tmp_path)


# Streams


def examples(seed):
    data = tf.constant(TARGET + np.random.default_rng(5).normal(size=(5, 3)), tf.float32)
    return tf.data.Dataset.from_tensor_slices(data).shuffle(5, seed).repeat().batch(2, drop_remainder=True)


def streaming(dataset):
    """A real-time engine with its own iterator, as a new process would have."""
    batches, validation = rf.batches.stream(dataset), rf.batches.full(tf.constant(TARGET, tf.float32))
    streamed = rf.Problem(rf.gradient_descent(loss, "lr"), objective, None, batches, validation)
    return rf.real_time(streamed, hyper_batch=2, jit_compile=False)


def generated():
    def numbers():
        while True:
            yield np.float32(TARGET)

    dataset = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([3], tf.float32))
    return dataset.batch(2, drop_remainder=True)


@pytest.fixture(scope="module")
def streamed():
    """The run over a stream that nothing interrupts."""
    return run(None, case=streaming(examples(3)))


@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "damaged"])
def test_a_seeded_stream_goes_on_where_it_was(damaged, streamed, tmp_path):
    interrupted = streaming(examples(3))
    broken(4, tmp_path, case=interrupted)
    assert numbers(tmp_path) == [3, 4]
    fresh = streaming(examples(3))
    if damaged:
        for file in checkpoint(tmp_path, 4).glob("stream*"):
            halve(file)
        with pytest.warns(UserWarning, match="damaged"):
            result = run(tmp_path, case=fresh)
    else:
        result = run(tmp_path, case=fresh)
    assert_identical(result, streamed)


def test_a_stream_in_the_same_process_is_put_back(streamed, tmp_path):
    same = streaming(examples(3))
    broken(2, tmp_path, case=same)
    broken(5, tmp_path, case=same)
    assert_identical(run(tmp_path, case=same), streamed)


def test_a_stream_that_cannot_be_saved_is_refused_with_the_reason_and_works_without(tmp_path):
    from_generator = streaming(generated())
    with pytest.raises(ValueError, match=r"checkpoint_dir.*cannot checkpoint.*generator"):
        run(tmp_path / "run", case=from_generator)
    assert not (tmp_path / "run").exists()
    result = run(None, 3, case=from_generator)
    assert len(result.history) == 3
    assert result.history[-1]["value"] != result.history[0]["value"]


def test_a_shuffle_without_a_seed_is_refused_because_a_new_process_would_shuffle_otherwise(tmp_path):
    with pytest.raises(ValueError, match="seed"):
        run(tmp_path, 2, case=streaming(examples(None)))


# Killed


SUICIDES = {  # name: (case, how, at, the checkpoints that are left)
    "reverse": ("reverse", "at_iteration", 3, [2, 3]),
    "real_time": ("real_time", "at_iteration", 4, [3, 4]),
    # Each checkpoint waits for the disk three times: for two files in a draft and, when it is in place, for the directory.
    "reverse_jit_while_it_writes": ("reverse_jit", "at_fsync", 7, [1, 2]),
}


@pytest.fixture(scope="module", autouse=True)
def dying(tmp_path_factory):
    """The processes that kill themselves, started before the first test: they come to their end beside it."""
    places = {name: tmp_path_factory.mktemp("killed") / name for name in SUICIDES}
    children = {name: start(case, places[name], how, at) for name, (case, how, at, _) in SUICIDES.items()}
    yield {name: (child, places[name]) for name, child in children.items()}
    for child in children.values():
        with child:
            child.kill()


@pytest.mark.parametrize("name", SUICIDES)
def test_a_killed_run_goes_on_to_the_same_bits(dying, name):
    child, directory = dying[name]
    _, errors = child.communicate(timeout=300)
    assert child.returncode == -signal.SIGKILL, errors
    case, _, _, left = SUICIDES[name]
    assert numbers(directory) == left
    began, log = Start(), rf.CSVLogger(directory.with_suffix(".csv"))
    result = run(directory, case=case, callbacks=[began, log])
    assert began.first == left[-1]
    assert_identical(result, straight(case))
    assert numbers(directory) == [TOTAL - 1, TOTAL]
    with directory.with_suffix(".csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["iteration"]) for row in rows] == list(range(TOTAL))
    assert [float(row["value"]) for row in rows] == [row["value"] for row in result.history]


def test_a_run_killed_by_another_process_at_any_time_goes_on_to_the_same_bits(tmp_path):
    directory = tmp_path / "run"
    child, deadline = start("simple", directory, "by_parent"), time.monotonic() + 300
    try:
        while child.poll() is None and not numbers(directory) and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(locks.InUseError, match=f"process {child.pid}"):
            run(directory)
    finally:
        child.kill()
        _, errors = child.communicate()
    assert child.returncode == -signal.SIGKILL, errors
    began, last = Start(), numbers(directory)[-1]
    result = run(directory, last + 3, callbacks=[began])
    assert began.first == last
    assert_identical(result, run(None, last + 3))


if __name__ == "__main__":
    main(*sys.argv[1:])

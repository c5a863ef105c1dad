"""The faults of docs/faults.md, one test per row: what happens, and that nothing is lost."""

import csv
import functools
import itertools
import time

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.checkpoints import Start, numbers
from tests.support.devices import ON_GPU

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(8, 3)).astype(np.float32), RNG.integers(0, 3, 8)
ENGINES = {
    "reverse": rf.reverse,
    "forward": rf.forward,
    "real_time": lambda problem, jit_compile: rf.real_time(problem, 3, jit_compile=jit_compile),
}

every_engine = pytest.mark.parametrize("engine", ["reverse", pytest.param("forward", marks=pytest.mark.slow), "real_time"])


def cross_entropy(w, hypers, batch):
    x, y = batch
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ w))


def regression(train=(X, Y), validation=(X, Y), steps=3, engine="reverse", jit_compile=False):
    """An engine for softmax regression, with the learning rate as hyper."""
    sources = (data if callable(data) else rf.batches.full(data) for data in (train, validation))
    problem = rf.Problem(rf.gradient_descent(cross_entropy, "lr"), cross_entropy, steps, *sources)
    return ENGINES[engine](problem, jit_compile=jit_compile)


@functools.cache
def on_good_data(engine):
    """Compiled once for all tests."""
    return regression(engine=engine)


def tuner(*data, engine="reverse", callbacks=(), **changes):
    """A driver for softmax regression; other data and settings need another engine."""
    made = regression(*data, engine=engine, **changes) if data or changes else on_good_data(engine)
    return rf.HyperOptimizer(made, rf.projected_adam(0.01), callbacks)


def run(driver, iterations=2, lr=0.1, classes=3, **options):
    return driver.run(tf.zeros([X.shape[1], classes]), {"lr": lr}, iterations, **options)


def contents(directory):
    """The bytes of every file, by name."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("[!.]*")) if p.is_file()}


def at(step, good, bad):
    """Good data before `step`, bad data from there on."""
    good, bad = (tf.nest.map_structure(tf.constant, data) for data in (good, bad))
    return lambda t: tf.nest.map_structure(lambda a, b: tf.where(t < step, a, b), good, bad)


def spoiled(array, value):
    array = array.copy()
    array.flat[4] = value
    return array


# Bad data


@pytest.mark.parametrize(
    ("engine", "value"),
    [
        ("reverse", np.nan),
        ("real_time", np.inf),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("forward", np.nan), ("real_time", np.nan), ("reverse", np.inf))
        ),
    ],
)
def test_nan_or_infinity_in_the_data_is_reported_at_the_first_hyper_iteration(engine, value):
    with pytest.raises(rf.DivergenceError, match=r"hyper-iteration 0: not finite: value, .*NaN or infinity in data"):
        run(tuner((spoiled(X, value), Y), engine=engine))


def test_nan_that_appears_later_leaves_every_earlier_hyper_iteration(tmp_path):
    log = rf.CSVLogger(tmp_path / "log.csv")
    driver = tuner(at(6, (X, Y), (spoiled(X, np.nan), Y)), engine="real_time", callbacks=[log])
    with pytest.raises(rf.DivergenceError, match="hyper-iteration 2") as caught:
        run(driver, 5, checkpoint_dir=tmp_path / "run")
    expected = run(tuner(engine="real_time"), 2)
    assert [row["value"] for row in caught.value.result.history] == [row["value"] for row in expected.history]
    assert numbers(tmp_path / "run") == [1, 2]
    with (tmp_path / "log.csv").open(newline="") as file:
        assert [int(row["iteration"]) for row in csv.DictReader(file)] == [0, 1]
    with pytest.raises(ValueError, match=r"another problem \(graph of the training batches"):  # mended data are other data
        run(tuner(engine="real_time"), 5, checkpoint_dir=tmp_path / "run")


@pytest.mark.parametrize(
    ("where", "label", "jit_compile"),
    [
        ("train", 3, False),
        pytest.param("validation", -1, False, marks=pytest.mark.slow),
        ("train", -1, True),
        pytest.param("validation", 3, True, marks=pytest.mark.slow),
    ],
)
def test_a_label_out_of_range_never_gives_a_number(where, label, jit_compile):
    wrong = {where: (X, spoiled(Y, label))}
    with pytest.raises((tf.errors.InvalidArgumentError, rf.DivergenceError)) as caught:
        run(tuner(**wrong, jit_compile=jit_compile))
    if jit_compile or ON_GPU:  # where nothing can be raised, and the loss is NaN instead
        assert "labels out of range" in str(caught.value)
    else:
        assert f"Received a label value of {label} which is outside the valid range of [0, 3)" in str(caught.value)


def test_a_label_out_of_range_leaves_the_checkpoints_unchanged(tmp_path):
    wrong = at(6, (X, Y), (X, spoiled(Y, 3)))
    run(tuner(wrong, engine="real_time"), 2, checkpoint_dir=tmp_path)
    before = contents(tmp_path)
    with pytest.raises((tf.errors.InvalidArgumentError, rf.DivergenceError)):
        run(tuner(wrong, engine="real_time"), 3, checkpoint_dir=tmp_path)
    assert contents(tmp_path) == before


# Hypers and rates


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_hyper_that_starts_at_infinity_is_rejected(value):
    with pytest.raises(ValueError, match=rf"hyper 'lr' starts at {value} \(1 of 1 entries\); start from finite numbers"):
        run(tuner(), lr=value)


def quadratic(w, hypers, batch):
    return tf.reduce_sum(w**2)


@functools.cache
def exploding():
    """w <- (1 - 2 lr) w: above lr = 1 it grows, and after 100 steps with lr = 3 it exceeds float32."""
    problem = rf.Problem(rf.gradient_descent(quadratic, "lr"), quadratic, steps=100)
    return rf.reverse(problem, jit_compile=False)


def test_an_exploding_inner_rate_raises_and_keeps_the_earlier_results(tmp_path):
    start = tf.ones(2), {"lr": 1.001}  # the hypergradient is large and positive: the next lr is far below 0
    with pytest.raises(rf.DivergenceError, match=r"hyper-iteration 1: not finite: value.*smaller inner") as caught:
        rf.HyperOptimizer(exploding(), rf.projected_adam(20.0)).run(*start, 4, tmp_path)
    assert [row["iteration"] for row in caught.value.result.history] == [0]
    assert numbers(tmp_path) == [1]


def test_an_exploding_inner_rate_makes_the_run_return_and_move_half_as_far():
    start = tf.ones(2), {"lr": 1.001}
    result = rf.HyperOptimizer(exploding(), rf.projected_adam(20.0), on_divergence="backtrack").run(*start, 3)
    assert [row["iteration"] for row in result.history] == [0, 1, 2]
    assert all(np.isfinite(row["value"]) for row in result.history)
    halvings = np.log2(20 / abs(result.history[1]["lr"] - 1.001))
    assert halvings == pytest.approx(round(halvings), abs=1e-3)
    assert 1 <= round(halvings) <= 10


# Extreme sizes


@pytest.mark.parametrize("make", ["full", "cached", "shuffled", "stream", "own", "own validation"])
def test_an_empty_batch_is_rejected_because_training_would_do_nothing(make):
    nothing = tf.data.Dataset.from_tensors((X[:0], Y[:0])).repeat()
    sources = {
        "full": lambda: rf.batches.full((X[:0], Y[:0])),
        "cached": lambda: rf.batches.cached(nothing, 2),
        "shuffled": lambda: rf.batches.shuffled((X[:0], Y[:0]), 1, seed=0),
        "stream": lambda: run(tuner(rf.batches.stream(nothing), steps=None, engine="real_time")),
        "own": lambda: run(tuner(lambda t: (X[:0], Y[:0]))),
        "own validation": lambda: run(tuner(validation=lambda k: (X[:0], Y[:0]))),
    }
    with pytest.raises(ValueError, match=r"leaf '0' has shape \[0, 3\]: no examples|can be at most 0"):
        sources[make]()


@pytest.mark.parametrize("engine", ["reverse", pytest.param("real_time", marks=pytest.mark.slow)])
def test_one_step_one_example_and_one_class_are_ordinary(engine):
    one_step = run(tuner(steps=1, engine=engine))
    one_example = run(tuner((X[:1], Y[:1]), (X[:1], Y[:1]), engine=engine))
    for result in (one_step, one_example):
        assert result.history[1]["value"] < result.history[0]["value"]
    one_class = run(tuner((X, 0 * Y), (X, 0 * Y), engine=engine), classes=1)
    assert [row["value"] for row in one_class.history] == [0.0, 0.0]  # log 1: no prediction can be wrong
    np.testing.assert_allclose(one_class.hypers["lr"], 0.1)


def test_one_step_gives_the_derivative_known_in_closed_form():
    problem = rf.Problem(rf.gradient_descent(quadratic, "lr"), quadratic, steps=1)
    for method in (rf.reverse, rf.forward):  # d/dlr (1 - 2 lr)^2 w^2 = -4 (1 - 2 lr) w^2
        hypergradient = method(problem, jit_compile=False)(tf.constant([3.0], tf.float64), {"lr": 0.1})
        np.testing.assert_allclose(hypergradient.grads["lr"], -4 * 0.8 * 9, rtol=1e-12)


def with_nothing(w, hypers, batch):
    return tf.reduce_sum((w - 1) ** 2) + tf.reduce_sum(hypers["none"])


@pytest.mark.parametrize("engine", ["reverse", pytest.param("real_time", marks=pytest.mark.slow)])
def test_a_hyper_without_entries_changes_nothing(engine, tmp_path):
    results = []
    for loss, more in ((quadratic, {}), (lambda *a: quadratic(*a) + tf.reduce_sum(a[1]["none"]), {"none": np.zeros(0)})):
        problem = rf.Problem(rf.gradient_descent(loss, "lr"), loss, steps=2)
        driver = rf.HyperOptimizer(ENGINES[engine](problem, jit_compile=False), rf.projected_adam(0.01))
        for iterations in (1, 3):  # the second time from a checkpoint
            result = driver.run(tf.ones(2), {"lr": 0.1, **more}, iterations, tmp_path / str(len(results)))
        results.append(result)
    assert [row["value"] for row in results[0].history] == [row["value"] for row in results[1].history]
    assert results[1].hypers["none"].shape == [0]


@pytest.mark.parametrize("engine", ["forward", "real_time"])
def test_without_a_single_entry_there_is_nothing_to_push_forward(engine):
    problem = rf.Problem(rf.gradient_descent(with_nothing, 0.1), with_nothing, steps=2)
    value = rf.reverse(problem, jit_compile=False)(tf.ones(2), {"none": np.zeros(0)}).value
    np.testing.assert_allclose(value, 0.0, atol=1e-12)  # reverse mode needs none
    with pytest.raises(ValueError, match="no entries"):
        ENGINES[engine](problem, jit_compile=False)(tf.ones(2), {"none": np.zeros(0)})


def test_a_simplex_without_entries_is_rejected():
    with pytest.raises(
        ValueError, match=r"hyper 'none' has no entries, for which its constraint Simplex.* is empty\. Leave it out"
    ):
        rf.projected_adam(0.01, {"none": rf.Simplex()}).init({"none": tf.zeros(0)})


@pytest.mark.slow
def test_a_million_hypers_take_seconds_and_every_entry_is_correct():
    n = 10**6
    targets = np.linspace(-1, 1, n, dtype=np.float32)

    def loss(w, hypers, batch):  # gradient descent from 0: w_1 = lr mean(weights targets)
        return 0.5 * tf.reduce_mean(hypers["weights"] * (w - batch) ** 2)

    def objective(w, hypers, batch):
        return 0.5 * (w - 0.5) ** 2

    problem = rf.Problem(rf.gradient_descent(loss, 0.5), objective, 1, rf.batches.full(targets))
    engine = rf.reverse(problem, jit_compile=False)
    driver = rf.HyperOptimizer(engine, rf.projected_adam(0.01, {"weights": rf.BoxL1Ball(n / 2)}))
    start = tf.constant(0.0), {"weights": tf.fill([n], 0.5)}
    began = time.perf_counter()
    result = driver.run(*start, 2)
    assert time.perf_counter() - began < 60
    assert result.history[1]["value"] < result.history[0]["value"]
    grads = engine(*start).grads["weights"]
    np.testing.assert_allclose(grads, -0.5 * 0.5 * targets / n, rtol=1e-3, atol=1e-12)
    assert bool(rf.BoxL1Ball(n / 2).contains(result.hypers["weights"]))


# Truncated files


@pytest.mark.parametrize("file", ["arrays.npz", "record.json"])
def test_if_a_checkpoint_is_truncated_the_one_before_it_is_used(tmp_path, file):
    whole = run(tuner(), 4)
    run(tuner(), 3, checkpoint_dir=tmp_path)
    newest = tmp_path / "ckpt-00000003" / file
    newest.write_bytes(newest.read_bytes()[:-20])
    start = Start()
    with pytest.warns(UserWarning, match="ckpt-00000003 is damaged"):
        result = run(tuner(callbacks=[start]), 4, checkpoint_dir=tmp_path)
    assert start.first == 2
    assert float(result.hypers["lr"]) == float(whole.hypers["lr"])
    assert [row["iteration"] for row in result.history] == [0, 1, 2, 3]


# The clock


def test_a_clock_that_runs_backwards_changes_no_number_and_no_order(tmp_path, monkeypatch):
    expected = run(tuner(), 4)
    day, hour = itertools.count(2e9, -86_400.0), itertools.count(1e6, -3_600.0)
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: next(day))
        patched.setattr(time, "perf_counter", lambda: next(hour))
        run(tuner(), 2, checkpoint_dir=tmp_path)
        result = run(tuner(), 4, checkpoint_dir=tmp_path)
    assert [row["value"] for row in result.history] == [row["value"] for row in expected.history]
    assert [row["seconds"] for row in result.history] == [0.0] * 4
    assert numbers(tmp_path) == [3, 4]
    again = run(tuner(), 4, checkpoint_dir=tmp_path)
    assert again.history == result.history

"""A checkpoint directory that belongs to another problem is rejected, and nothing in it changes."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.driver import fingerprint
from tests.support.checkpoints import (
    HYPERS,
    TARGET,
    Start,
    adam,
    contents,
    engine,
    loss,
    objective,
    one_by_one,
    problem,
    run,
)

CHANGES = {  # name: (settings of `run` with one change, what the error names)
    "steps": (lambda: {"case": rf.reverse(problem(steps=4), jit_compile=False)}, "steps"),
    "engine": (lambda: {"case": rf.forward(problem(), jit_compile=False)}, "forward"),
    "truncate": (lambda: {"case": rf.reverse(problem(), truncate=2, jit_compile=False)}, "truncate"),
    "inner optimiser": (lambda: {"case": engine("reverse")}, "first_moment"),
    "initial hypers": (lambda: {"hypers": {**HYPERS, "lr": 0.2}}, "initial hypers"),
    "initial params": (lambda: {"params": [0.0, 0.0, 1e-6]}, "initial params"),
    "shape": (lambda: {"hypers": {**HYPERS, "weights": [[1.0, 1.0, 1.0]]}}, "[1, 3]"),
    "dtype": (lambda: {"case": rf.reverse(problem(dtype=tf.float64), jit_compile=False), "params": np.zeros(3)}, "float64"),
    "learning rate": (lambda: {"optimizer": adam(rate=0.03)}, "0.03"),
    "rates by name": (lambda: {"optimizer": adam(rate={"lr": 0.02, "weights": 0.03})}, "0.03"),
    "beta": (lambda: {"optimizer": adam(beta_1=0.8)}, "0.8"),
    "log scale": (lambda: {"optimizer": adam(log_scale=["lr"])}, "log_scale"),
    "constraint": (lambda: {"optimizer": adam(high=2.0)}, "2.0"),
}


def altered(**changes):
    """The usual problem with other functions, or other data."""
    return {"case": rf.reverse(dataclasses.replace(problem(), **changes), jit_compile=False)}


DATA = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
GRAPHS = {  # name: (settings with one change, what the error names)
    "another loss": (
        lambda: altered(dynamics=rf.gradient_descent(lambda w, h, batch: 1.001 * loss(w, h, batch), "lr")),
        "graph of a training step",
    ),
    "another objective": (lambda: altered(objective=lambda w, h, b: objective(w, h, b) ** 2), "graph of the objective"),
    "other data": (
        lambda: altered(batches=one_by_one(tf.constant(TARGET + DATA, tf.float32))),
        "graph of the training batches",
    ),
    "other validation data": (lambda: altered(validation=one_by_one(tf.constant(DATA))), "graph of the validation batches"),
    "another start": (
        lambda: altered(dynamics=problem().dynamics._replace(init=lambda params, hypers: 2.0 * params)),
        "graph of the initial state",
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_another_loss_or_other_data_are_another_problem(name, tmp_path):
    run(tmp_path, 2)
    before = contents(tmp_path)
    changed, reason = GRAPHS[name]
    with pytest.raises(ValueError, match=rf"another problem \({reason}: changed\)") as caught:
        run(tmp_path, 4, **changed())
    assert str(caught.value).count("graph of") == 1, "nothing else differs"
    assert contents(tmp_path) == before


def test_captured_text_is_compared_by_its_letters():
    def of(words):
        table = tf.constant(words)
        return fingerprint.of_function(lambda k: tf.strings.length(table[k]), tf.TensorSpec([], tf.int32))

    assert of(["one", "two"]) == of(["".join("one"), "two"])
    assert of(["one", "two"]) != of(["one", "too"])


def test_a_running_cost_at_other_steps_is_another_objective():
    def of(every):
        changed = dataclasses.replace(problem(), objective=rf.RunningCost(objective, every))
        return fingerprint.of_problem(changed, tf.zeros(3), {"lr": tf.constant(0.1), "weights": tf.ones(3)})

    assert {part for part, hashed in of(1).items() if of(2)[part] != hashed} == {"graph of the objective"}


def test_the_same_problem_built_anew_is_the_same(tmp_path):
    run(tmp_path, 2)
    start = Start()
    run(tmp_path, 4, **altered(), callbacks=[start])
    assert start.first == 2


def test_a_change_in_one_number_of_a_large_data_set_is_noticed():
    def of(data):
        batches = rf.batches.shuffled(tf.constant(data), 10, 0)
        changed = dataclasses.replace(problem(), batches=batches)
        return fingerprint.of_problem(changed, tf.zeros(3), {"lr": tf.constant(0.1), "weights": tf.ones(3)})

    data = np.zeros((5000, 3), np.float32)
    other = data.copy()
    other[4321, 1] = 1e-30
    assert of(data) == of(data.copy())
    differing = {part for part, hashed in of(data).items() if of(other)[part] != hashed}
    assert differing == {"graph of the training batches"}


def test_the_directory_of_another_problem_is_rejected_and_left_alone(tmp_path):
    run(tmp_path, 2)
    before = contents(tmp_path)
    for name, (changed, reason) in CHANGES.items():
        settings = changed()
        for resume in (True, False):
            with pytest.raises(ValueError, match="another problem") as caught:
                run(tmp_path, 4, resume=resume, **settings)
            assert reason in str(caught.value), name
            assert str(tmp_path) in str(caught.value), name
            assert contents(tmp_path) == before, name


def test_a_rejected_run_does_not_touch_its_log(tmp_path):
    log = tmp_path / "log.csv"
    run(tmp_path / "run", 2, callbacks=[rf.CSVLogger(log)])
    before = log.read_bytes()
    with pytest.raises(ValueError, match="another problem"):
        run(tmp_path / "run", 2, callbacks=[rf.CSVLogger(log)], hypers={**HYPERS, "lr": 0.2})
    assert log.read_bytes() == before


def test_bounds_that_differ_in_the_middle_of_a_long_array_belong_to_another_problem(tmp_path):
    many = 1500
    bounds = [np.ones(many), np.ones(many)]
    bounds[1][many // 2] = 0.5
    mean = lambda w, hypers, batch: tf.reduce_mean(hypers["x"]) * w**2  # noqa: E731
    one = rf.reverse(rf.Problem(rf.gradient_descent(mean, 0.1), mean, steps=1), jit_compile=False)
    tuners = [rf.HyperOptimizer(one, rf.projected_adam(0.1, {"x": rf.Box(0.0, bound)})) for bound in bounds]
    tuners[0].run(tf.constant(1.0), {"x": np.zeros(many)}, 1, tmp_path)
    with pytest.raises(ValueError, match="another problem"):
        tuners[1].run(tf.constant(1.0), {"x": np.zeros(many)}, 1, tmp_path)


@pytest.mark.parametrize("option", [{"best_by": "lr"}, {"clip": 1.0}], ids=["best_by", "clip"])
def test_another_criterion_or_clip_is_another_problem(option, tmp_path):
    run(tmp_path, 1)
    with pytest.raises(ValueError, match=f"another problem.*{next(iter(option))}"):
        rf.HyperOptimizer(engine(), adam(), **option).run(tf.zeros(3), HYPERS, 2, tmp_path)

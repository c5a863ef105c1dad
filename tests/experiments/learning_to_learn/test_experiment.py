"""Learning to learn with a tiny network."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from experiments.common import pool, study
from experiments.learning_to_learn import experiment, model
from experiments.learning_to_learn.experiment import METHODS, SHOWN_AMPLITUDE, Config, Method
from experiments.learning_to_learn.report import STUDY
from experiments.learning_to_learn.tasks import Family

TINY = Config(
    shots=(3,), queries=2, hidden=4, steps=2, tasks=2, hyper_iterations=4, rate_iterations=2, calibration_tasks=3,
    test_tasks=3, test_queries=4, shown_steps=3,
)  # fmt: skip


@pytest.fixture
def weights():
    return model.random_weights(4, seed=0)


def float64_case():
    """A problem, weights whose biases are not 0, where dead units would sit on a kink, and hypers."""
    rng = np.random.default_rng(0)
    weights = {
        name: tf.constant(w.numpy() + 0.1 * rng.normal(size=w.shape)) for name, w in model.random_weights(6, seed=0).items()
    }
    problem = model.adaptation(Family("training", 0, 3, 4, tf.float64), 2, learned_initialisation=True)
    return problem, weights, {**weights, **model.layer_rates(weights, 0.05)}


def test_the_hypergradient_is_that_of_differences_although_relu_has_kinks():
    problem, weights, hypers = float64_case()
    engine, rng = rf.reverse(problem, jit_compile=False), np.random.default_rng(1)
    direction = {name: rng.normal(size=h.shape) for name, h in hypers.items()}
    slope = sum(np.sum(direction[name] * grad) for name, grad in engine(weights, hypers).grads.items())
    ends = [
        engine(weights, {name: h + step * direction[name] for name, h in hypers.items()}).value for step in (1e-6, -1e-6)
    ]
    assert float(ends[0] - ends[1]) / 2e-6 == pytest.approx(slope, rel=1e-7)


@pytest.mark.slow
def test_reverse_forward_and_differences_agree_for_each_hyper():
    check = rf.check_hypergradient(*float64_case())
    assert check.ok, check.message


def test_errors_are_those_of_plain_gradient_descent(weights):
    family, rates = Family("test", 0, 3, 4), {f"rate {i}": tf.constant(rate) for i, rate in enumerate((0.1, 0.02, 0.03))}
    errors = experiment.errors_by_step(family, tasks=2, steps=2)(weights, rates)
    assert errors.shape == (2, 3)
    for k in range(2):
        task, w = family.task(k), dict(weights)
        for t in range(3):
            assert errors[k, t] == pytest.approx(float(model.error(w, {}, task.queries)), rel=1e-5)
            with tf.GradientTape() as tape:
                tape.watch(w)
                loss = model.error(w, {}, task.support)
            w = {name: w[name] - rates[f"rate {name[1]}"] * g for name, g in tape.gradient(loss, w).items()}


def test_the_rate_is_the_best_on_the_calibration_tasks(weights):
    config = dataclasses.replace(TINY, rates=(1e-9, 0.01, 100.0))
    errors = experiment.errors_by_step(config.family("calibration", 3), config.calibration_tasks, config.steps)
    after = {rate: errors(weights, model.layer_rates(weights, rate))[:, -1].mean() for rate in config.rates}
    assert not after[100.0] < after[0.01], "what diverges is not chosen"
    best = float(experiment.calibrated(config, 3, weights).rates["rate 0"])
    assert best == pytest.approx(min(config.rates[:2], key=after.get))


@pytest.mark.slow
def test_everything_is_learned_compared_and_drawn(weights, tmp_path, monkeypatch):
    monkeypatch.setattr(rf, "reverse", functools.partial(rf.reverse, jit_compile=False))
    average = rf.average
    monkeypatch.setattr(rf, "average", lambda engine, n, together: average(engine, n))  # quicker to trace
    rows = study.rows_of(STUDY, TINY, tmp_path)
    results = STUDY.results(TINY, rows)
    assert [row["adapted_by"] for row in results] == list(METHODS)
    for row in results:
        assert len(row["error"]) == len(row["half_interval"]) == TINY.shown_steps + 1
        assert len(row["rates"]) == 3
    directory = pool.checkpoints(*experiment.units(TINY, ()), tmp_path)
    learned, rates_only, pretrained, random = experiment.methods_for(TINY, 3, directory).values()
    tf.nest.map_structure(np.testing.assert_array_equal, random.weights, weights)
    tf.nest.map_structure(np.testing.assert_array_equal, rates_only.weights, pretrained.weights)
    assert results[2]["ratio_to_pretrained"] == 1.0
    for name in ("w0", "w1", "w2", "b2"):
        assert np.any(learned.weights[name] != weights[name])
        assert np.any(pretrained.weights[name] != weights[name])
    assert rates_only.rates["rate 0"] != pretrained.rates["rate 0"]
    assert "| 3 | learned initialisation and rates |" in study.write(STUDY, TINY, rows, tmp_path)
    assert (tmp_path / "adaptation.png").stat().st_size > 10_000


def test_predictions_before_and_after_the_steps(weights):
    task, x = Family("test", 0, 3, 4).task(0), np.linspace(-1, 1, 5, dtype=np.float32)
    method = Method(weights, model.layer_rates(weights, 0.0))
    before, after = experiment.predictions(method, task, 2, x)
    np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(before, model.outputs(weights, tf.constant(x[:, None]))[:, 0])
    assert np.any(experiment.predictions(method._replace(rates=model.layer_rates(weights, 0.1)), task, 2, x)[1] != before)


def test_the_task_shown_is_not_flat():
    family, k = experiment.shown_task(Config(), 5)
    amplitudes = [float(family.task(i).amplitude) for i in range(k + 1)]
    assert amplitudes[k] >= SHOWN_AMPLITUDE > max([*amplitudes[:k], 0])

"""The transformer: as many weights as its name says, causal, and derivatives that do not depend on what is recomputed."""

import json

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from experiments import gpt_benchmark
from experiments.benchmarks import gpt, gpt_numbers, gpt_precision, gpt_worker, precision
from experiments.benchmarks.gpt_numbers import SIZES
from rfho2.core.compiled import Compiled
from tests.support.problems import assert_agree

TINY = SIZES["tiny"]


def inputs(dtype, stacked=False):
    params = {name: tf.constant(w) for name, w in gpt_numbers.initial_params(TINY, dtype, stacked).items()}
    return params, {name: tf.constant(h) for name, h in gpt_numbers.hypers(dtype).items()}


@pytest.mark.parametrize("name", ["1M", "10M", "50M", "124M", "774M", "1010M"])
def test_sizes_are_what_their_names_say(name):
    assert SIZES[name].weights / 1e6 == pytest.approx(float(name[:-1]), rel=0.08)


def test_a_prediction_depends_on_earlier_tokens_only():
    network, (params, _) = gpt.Network(TINY, recompute=False, compute=None), inputs(np.float64)
    x = tf.constant(np.random.default_rng(0).normal(size=(1, TINY.context, TINY.width)))
    changed = tf.concat([x[:, :5], x[:, 5:] + 1], 1)
    w = {key.removeprefix("0/"): leaf for key, leaf in params.items() if key.startswith("0/")}
    before, after = network.block(w, x), network.block(w, changed)
    np.testing.assert_allclose(before[:, :5], after[:, :5], rtol=1e-12)
    assert np.all(np.abs(before[:, 5:] - after[:, 5:]) > 0)


@pytest.mark.slow
@pytest.mark.parametrize(("recompute", "loop"), [(False, False), (True, False), (True, True)])
def test_hypergradients_agree_with_differences(recompute, loop):
    params, hypers = inputs(np.float64, loop)
    problem = gpt.problem(TINY, gpt_numbers.text(TINY, 3), recompute, epsilon=1e-3, loop=loop)
    engine = rf.real_time(problem, 2, mode="reverse", jit_compile=False, checkpoints=1)
    grads = engine.advance(engine.start(params, hypers), hypers, 0)[0].grads

    @tf.function(autograph=False)
    def value(hypers):
        w = problem.dynamics.params(problem.train(params, hypers, steps=2))
        return problem.objective(w, hypers, problem.validation(0))

    numerical = {}
    for name, size in (("rate", 1e-6), ("sources", 1e-4)):
        entries = []
        for unit in np.eye(max(1, hypers[name].shape.num_elements())):
            shift = size * unit.reshape(hypers[name].shape)
            ends = [float(value(hypers | {name: hypers[name] + sign * shift})) for sign in (1, -1)]
            entries.append((ends[0] - ends[1]) / (2 * size))
        numerical[name] = np.reshape(entries, hypers[name].shape)
    assert_agree(grads, numerical, rtol=1e-6)


def test_a_table_has_a_row_for_each_variant_and_a_worker_that_fails_is_named(monkeypatch, capfd):
    answer = {"seconds": 1.0, "peak": None, "first": 2.0, "value": 3.0, "grads": {"rate": 3.0, "sources": [0.0, 4.0]}}
    asked = []
    monkeypatch.setattr(gpt_benchmark, "ask", lambda question, command: asked.append(question) or answer)
    text = str(gpt_benchmark.table(gpt_benchmark.Config(frameworks=("rfho2",)), "1M", 4))
    assert "| rfho2, blocks recomputed | 1.000 | - | 2 | 3.0000 | 5 |" in text
    assert [question.get("recompute") for question in asked] == [False, None, None]
    gpt_benchmark.table(gpt_benchmark.Config(least_memory=True), "1M", 4)
    assert [(question["framework"], question["loop"]) for question in asked[3:]] == [("rfho2", True), ("jax", True)]
    monkeypatch.undo()
    with pytest.raises(gpt_benchmark.DataError, match="ended without an answer"):
        gpt_benchmark.ask({"framework": "jax", "size": "none"}, "true")


@pytest.mark.slow
def test_a_resumed_run_has_the_same_bits(tmp_path):
    """On a GPU too, with XLA and deterministic operations."""
    gpu = bool(tf.config.list_physical_devices("GPU"))
    if gpu:
        tf.config.experimental.enable_op_determinism()
    params, hypers = inputs(np.float32, stacked=True)

    def run(iterations, directory):
        problem = gpt.problem(TINY, gpt_numbers.text(TINY, 3), loop=True)
        constraints = {"sources": rf.Simplex(gpt_numbers.SOURCES), "rate": rf.Box(1e-5, 1e-2)}
        optimizer = rf.projected_adam({"sources": 0.1, "rate": 0.1}, constraints, log_scale=["rate"])
        engine = rf.real_time(problem, 3, mode="reverse", checkpoints=2, jit_compile=gpu)
        return rf.HyperOptimizer(engine, optimizer).run(params, hypers, iterations, directory)

    run(2, tmp_path / "stopped")
    resumed, whole = run(4, tmp_path / "stopped"), run(4, tmp_path / "whole")
    tf.nest.map_structure(np.testing.assert_array_equal, (resumed.hypers, resumed.state), (whole.hypers, whole.state))
    np.testing.assert_allclose(whole.hypers["sources"].numpy().sum(), gpt_numbers.SOURCES, rtol=1e-5)


@pytest.mark.slow
def test_precision_is_measured_for_each_window(monkeypatch):
    monkeypatch.setattr(Compiled, "jit_compiled", False)
    rows = list(gpt_precision.table("tiny", (1, 2), precision.EXACT))
    assert [row.split(" | ")[:3] for row in rows[2:]] == [
        ["| tiny", str(window), hyper] for window in (1, 2) for hyper in ("sources", "rate")
    ]
    float32, bfloat16 = (float(rows[2].split("|")[column]) for column in (4, -2))
    assert 0 < float32 < bfloat16 < 1
    rows = list(gpt_precision.table("tiny", (1,), precision.EXACT, epsilon=1e-3))
    assert float(rows[2].split("|")[-2]) < bfloat16  # a small epsilon amplifies rounding


@pytest.mark.slow
def test_a_worker_answers(monkeypatch, capsys):
    monkeypatch.setattr(Compiled, "jit_compiled", False)
    question = {"framework": "rfho2", "size": "tiny", "window": 2, "rounds": 1, "jit": False, "compute": "bfloat16"}
    monkeypatch.setattr("sys.argv", ["gpt_worker", json.dumps(question)])
    gpt_worker.main()
    answer = json.loads(capsys.readouterr().out.splitlines()[-1].removeprefix(gpt_worker.ANSWER))
    assert np.isfinite(answer["value"])
    assert len(answer["grads"]["sources"]) == gpt_numbers.SOURCES
    question = {"framework": "plan", "size": "tiny", "window": 4, "loop": True}
    monkeypatch.setattr("sys.argv", ["gpt_worker", json.dumps(question)])
    gpt_worker.main()
    answer = json.loads(capsys.readouterr().out.splitlines()[-1].removeprefix(gpt_worker.ANSWER))
    assert answer["bytes"] > 4 * 3 * 4 * TINY.weights  # the states of the window, of three numbers for each weight

"""The driver: what a run does and returns, which hyper-iteration is the best, and when it ends."""

import json
import math
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support.tuning import (
    HYPERS,
    METHODS,
    PARAMS,
    Recorder,
    adam,
    engine,
    loss,
    objective,
    run,
    same_bits,
    shift,
    visit,
)


@pytest.mark.parametrize("method", METHODS)
def test_tuned_hypers_do_better_than_fixed_ones(method):
    tuned, fixed = run(adam(), 8, method), run(adam(rate=0.0), 8, method)
    assert tuned.history[-1]["value"] < 0.7 * fixed.history[-1]["value"]
    assert tuned.history[-1]["value"] < 0.7 * tuned.history[0]["value"]


@pytest.mark.parametrize("method", METHODS)
def test_each_hyper_iteration_is_an_advance_and_an_update(method):
    optimizer, hypers = adam(), {name: tf.constant(value) for name, value in HYPERS.items()}
    carry, opt_state = engine(method).start(PARAMS, hypers), optimizer.init(hypers)
    result, rows = run(optimizer, 3, method), []
    for k in range(3):
        hypergradient, carry = engine(method).advance(carry, hypers, k)
        rows.append({
            "iteration": k, "value": float(hypergradient.value), "lr": float(hypers["lr"]),
            "norm of weights": float(tf.norm(hypers["weights"])),
            **{f"weights/{i}": float(weight) for i, weight in enumerate(hypers["weights"])},
            "hypergradient/lr": float(hypergradient.grads["lr"]),
            "norm of hypergradient/weights": float(tf.norm(hypergradient.grads["weights"])),
            **{f"norm of {name}": float(norm) for name, norm in hypergradient.norms.items()},
        })  # fmt: skip
        hypers, opt_state = optimizer.update(hypergradient.grads, opt_state, hypers)
    assert [{key: value for key, value in row.items() if key != "seconds"} for row in result.history] == rows
    assert same_bits(result.hypers, hypers)
    assert same_bits(result.state, hypergradient.state)


def test_real_time_continues_one_training_and_reverse_starts_afresh():
    offline, online = (run(adam(rate=0.0), 4, method).history for method in ("reverse", "real_time"))
    assert offline[0]["value"] == offline[2]["value"]  # on the same validation batch
    assert online[3]["value"] < online[1]["value"] < online[0]["value"]


def test_the_history_has_one_flat_json_dict_per_hyper_iteration():
    history = run(adam(), 4).history
    norms = {"norm of weights", "norm of hypergradient/weights", "norm of adjoint"}
    keys = {"iteration", "value", "lr", "hypergradient/lr", "seconds", *norms, *(f"weights/{i}" for i in range(3))}
    assert [set(row) for row in history] == [keys] * 4
    assert list(history[0])[:2] == ["iteration", "value"], "the order of the columns of a table"
    assert [row["iteration"] for row in history] == [0, 1, 2, 3]
    assert {type(value) for row in history for value in row.values()} == {int, float}
    assert json.loads(json.dumps(history, allow_nan=False)) == history
    assert [row["seconds"] for row in history] == sorted(row["seconds"] for row in history)


def test_the_result_has_the_structure_shapes_and_dtypes_of_the_input():
    result = run(adam(), 2)
    assert result._fields == ("hypers", "state", "history", "best")
    assert {name: hyper.shape.as_list() for name, hyper in result.hypers.items()} == {"lr": [], "weights": [3]}
    assert all(leaf.dtype == tf.float32 for leaf in [*result.hypers.values(), result.state])
    assert result.state.shape == PARAMS.shape


def test_hypers_get_the_dtype_of_the_params():
    tuner = rf.HyperOptimizer(engine(), adam())
    result = tuner.run(tf.cast(PARAMS, tf.float64), {**HYPERS, "lr": tf.constant(0.1)}, 2)
    assert {leaf.dtype for leaf in [*result.hypers.values(), result.state, *result.best.hypers.values()]} == {tf.float64}


@pytest.mark.parametrize("method", METHODS)
def test_a_second_run_of_the_same_tuner_gives_the_same_bits(method):
    tuner = rf.HyperOptimizer(engine(method), adam())
    hypers = {name: tf.constant(value) for name, value in HYPERS.items()}
    first, second = (tuner.run(PARAMS, hypers, 3) for _ in range(2))
    assert same_bits([first.hypers, first.state, first.best], [second.hypers, second.state, second.best])


@pytest.mark.parametrize("argument", ["iterations", "checkpoint_every"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_counts_have_to_be_positive_integers(argument, value):
    with pytest.raises(ValueError, match=argument):
        rf.HyperOptimizer(engine(), adam()).run(PARAMS, HYPERS, **{"iterations": 2, argument: value})


# Several objectives


def several():
    objectives = {
        "training": rf.Objective(lambda w, hypers, batch: loss(w, hypers, None), ["lr"]),
        "validation": rf.Objective(objective, ["weights"]),
    }
    problem = rf.Problem(rf.gradient_descent(loss, "lr"), objectives, steps=3, validation=shift)
    return rf.reverse(problem, jit_compile=False)


def test_the_history_has_each_of_several_objectives_and_their_sum():
    recorder = Recorder()
    result = rf.HyperOptimizer(several(), adam(), [recorder], best_by="value/validation").run(PARAMS, HYPERS, 3)
    for row, (_, hypergradient, _) in zip(result.history, recorder.reports, strict=True):
        assert row["value/training"] == float(hypergradient.value["training"])
        assert row["value/validation"] == float(hypergradient.value["validation"])
        assert row["value"] == row["value/training"] + row["value/validation"]
    assert result.best.value == min(row["value/validation"] for row in result.history)
    assert result.history[-1]["value"] < result.history[0]["value"]


# The best hyper-iteration


def test_the_best_hyper_iteration_has_the_lowest_value_with_its_hypers_and_state():
    rates = [0.1, 0.4, 0.3, 0.05]
    result = visit(rates)
    values = [row["value"] for row in result.history]
    assert (result.best.iteration, result.best.value) == (1, min(values))
    assert float(result.best.hypers["lr"]) == np.float32(0.4)
    assert same_bits(result.best.state, engine()(PARAMS, result.best.hypers, 1).state)
    assert not same_bits(result.best.state, result.state)


def test_the_first_of_several_equal_values_is_the_best():
    assert visit([0.1, 0.3, 0.1, 0.3]).best.iteration == 1


def test_the_best_may_be_chosen_by_a_metric():
    result = visit([0.3, 0.1, 0.2, 0.25], metrics=lambda state, hypers, k: {"rate": hypers["lr"]}, best_by="rate")
    assert (result.best.iteration, result.best.value) == (1, float(np.float32(0.1)))


def test_nan_is_never_the_best():
    scores = [math.nan, 3.0, math.nan, 2.0]
    result = visit([0.1] * 4, metrics=lambda state, hypers, k: {"score": scores[k]}, best_by="score")
    assert (result.best.iteration, result.best.value) == (3, 2.0)


def test_an_unknown_best_by_is_rejected_with_the_choices():
    with pytest.raises(ValueError, match=r"best_by is 'accuracy'.*'hypergradient/lr'.*'score'.*'value'"):
        run(adam(), 2, metrics=lambda state, hypers, k: {"score": 1.0}, best_by="accuracy")


@pytest.mark.parametrize("name", ["value", "iteration"])
@pytest.mark.parametrize("what", ["metric", "hyper"])
def test_a_metric_or_hyper_cannot_hide_what_the_driver_reports_under_the_same_name(what, name):
    recorder = Recorder()
    if what == "metric":
        result = visit([0.1, 0.4, 0.3], callbacks=[recorder], metrics=lambda state, hypers, k: {name: -5.0 - k})
    else:
        problem = rf.Problem(rf.gradient_descent(lambda w, hypers, batch: (w - 1.0) ** 2, name), lambda w, *_: w**2, steps=1)
        tuner = rf.HyperOptimizer(rf.reverse(problem, jit_compile=False), rf.projected_adam(0.01), [recorder])
        result = tuner.run(tf.constant(0.0), {name: -3.0}, 3)
    values = [float(hypergradient.value) for _, hypergradient, _ in recorder.reports]
    assert [row["value"] for row in result.history] == values
    assert [row["iteration"] for row in result.history] == [0, 1, 2]
    assert (result.best.value, result.best.iteration) == (min(values), int(np.argmin(values)))


# When a run ends


@pytest.mark.parametrize("method", METHODS)
def test_iterations_is_the_total_of_a_resumed_run_too(method, tmp_path):
    recorder = Recorder()
    run(adam(), 2, method, checkpoint_dir=tmp_path)
    result = run(adam(), 5, method, checkpoint_dir=tmp_path, callbacks=[recorder])
    assert recorder.events == ["start", 2, 3, 4, "end"]
    assert (recorder.run.first, recorder.run.iterations) == (2, 5)
    straight = run(adam(), 5, method)
    assert [row["iteration"] for row in result.history] == [0, 1, 2, 3, 4]
    assert [row["value"] for row in result.history] == [row["value"] for row in straight.history]
    assert same_bits([result.hypers, result.state, result.best], [straight.hypers, straight.state, straight.best])


def test_a_finished_run_returns_its_result_at_once(tmp_path):
    first = run(adam(), 3, checkpoint_dir=tmp_path)
    recorder = Recorder()

    def never(*args):
        raise AssertionError("there is nothing left to do")

    again = run(adam(), 3, checkpoint_dir=tmp_path, callbacks=[recorder], metrics=never)
    assert recorder.events == ["start", "end"]
    assert again.history == first.history
    assert same_bits([again.hypers, again.state, again.best], [first.hypers, first.state, first.best])


def after_three(history):
    return len(history) >= 3


def test_stop_ends_a_run_early():
    recorder = Recorder()
    result = run(adam(), 9, stop=after_three, callbacks=[recorder])
    short = run(adam(), 3)
    assert recorder.events == ["start", 0, 1, 2, "end"]
    assert same_bits([result.hypers, result.state], [short.hypers, short.state])


def test_a_stopped_run_is_saved_and_stays_stopped(tmp_path):
    first = run(adam(), 9, stop=after_three, checkpoint_dir=tmp_path, checkpoint_every=5)
    recorder = Recorder()
    again = run(adam(), 9, stop=after_three, checkpoint_dir=tmp_path, checkpoint_every=5, callbacks=[recorder])
    assert recorder.events == ["start", "end"]
    assert again.history == first.history
    further = run(adam(), 5, checkpoint_dir=tmp_path)
    assert [row["iteration"] for row in further.history] == [0, 1, 2, 3, 4]
    assert same_bits(further.hypers, run(adam(), 5).hypers)


# Engines of the user's own


class Quadratic:
    """A user's own engine, with no more than the driver needs: E = (w - 1)^2 after one step w = 2 lr from 0."""

    problem = rf.Problem(rf.gradient_descent(lambda w, hypers, batch: (w - 1.0) ** 2, "lr"), lambda w, *_: (w - 1.0) ** 2, 1)
    settings: ClassVar = {"method": "quadratic"}

    def start(self, params, hypers):
        return tf.constant(0)

    def initial_state(self, params, hypers):
        return params

    def advance(self, calls, hypers, k):
        state = 2 * hypers["lr"]
        return rf.HyperGradient((state - 1) ** 2, {"lr": 4 * (state - 1)}, state), calls + 1


def test_an_engine_needs_only_five_members_to_be_driven_with_checkpoints(tmp_path):
    optimizer, start = rf.projected_adam(0.02), (tf.constant(0.0), {"lr": 0.1})
    whole = rf.HyperOptimizer(Quadratic(), optimizer).run(*start, 5)
    values = [row["value"] for row in whole.history]
    assert values == sorted(values, reverse=True)
    assert set(whole.history[0]) == {"iteration", "value", "lr", "hypergradient/lr", "seconds"}, "it has no norms"
    rf.HyperOptimizer(Quadratic(), optimizer).run(*start, 2, tmp_path)
    resumed = rf.HyperOptimizer(Quadratic(), optimizer, [recorder := Recorder()]).run(*start, 5, tmp_path)
    assert recorder.events == ["start", 2, 3, 4, "end"]
    assert same_bits([resumed.hypers, resumed.state, resumed.best], [whole.hypers, whole.state, whole.best])


def test_such_an_engine_recovers_from_divergence_as_an_ordinary_one_does(tmp_path):
    """Whatever else the driver asks of an engine has a default."""
    settings = {"on_divergence": lambda hypers: {"lr": hypers["lr"] / 2}, "limit": lambda history: 10.0}
    results = [
        rf.HyperOptimizer(one, rf.projected_adam(0.02), **settings).run(tf.constant(0.0), {"lr": 3.0}, 3, tmp_path / name)
        for name, one in (("own", Quadratic()), ("reverse", rf.reverse(Quadratic.problem, jit_compile=False)))
    ]
    assert [row["lr"] for row in results[0].history] == pytest.approx([row["lr"] for row in results[1].history], rel=1e-6)
    assert results[0].history[0]["lr"] == 1.5  # 3.0 exceeded the limit


def test_something_without_advance_is_no_engine():
    with pytest.raises(TypeError, match=r"engine is Problem; pass rf\.reverse"):
        rf.HyperOptimizer(Quadratic.problem, adam())

"""Recovery from divergence: a run repeats the hyper-iteration with other hypers instead of ending; and clipping."""

import functools
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.driver import recovery
from rfho2.driver.run_state import LastGood, RunState
from tests.support.tuning import same_bits

WALL = 1.5  # hypers above it give NaN


def objective(w, hypers, batch):
    h = hypers["h"]
    return tf.square(h - 1.4) + tf.math.log(WALL - h) * 0.0 + 0.0 * w


@functools.cache
def engine(method):
    problem = rf.Problem(rf.gradient_descent(lambda w, hypers, batch: w**2 + 0 * hypers["h"], 0.1), objective, steps=2)
    if method == "real_time":
        return rf.real_time(problem, 2, jit_compile=False)
    return rf.reverse(problem, jit_compile=False)


@functools.cache
def adam(rate):
    return rf.projected_adam(rate)


def tuner(rate=2.0, on_divergence="backtrack", method="reverse", **options):
    return rf.HyperOptimizer(engine(method), adam(rate), on_divergence=on_divergence, **options)


def run(tuner, iterations=6, start=0.0, **options):
    return tuner.run(tf.constant(1.0), {"h": start}, iterations, **options)


@pytest.mark.parametrize("method", ["reverse", "real_time"])
def test_backtracking_halves_the_step_until_the_numbers_are_finite(method):
    result = run(tuner(method=method), 2)
    assert [row["h"] for row in result.history] == pytest.approx([0.0, 1.0], abs=1e-5)  # 2.0 was beyond the wall
    assert [row["iteration"] for row in result.history] == [0, 1]


def test_backtracking_on_the_log_scale_halves_the_logarithm_of_the_factor():
    optimizer = rf.projected_adam(2.0, log_scale=["h"])
    result = run(rf.HyperOptimizer(engine("reverse"), optimizer, on_divergence="backtrack"), 2, start=0.5)
    assert [row["h"] for row in result.history] == pytest.approx([0.5, 0.5 * np.e], rel=1e-4)  # 0.5 e^2 was beyond the wall


def test_the_smaller_rate_is_kept():
    result = run(tuner(), 8)
    steps = np.abs(np.diff([row["h"] for row in result.history]))
    assert np.all(steps < 1.0 + 1e-5)
    assert all(np.isfinite(row["value"]) for row in result.history)


def test_by_default_a_run_ends_with_an_error():
    for driver in (tuner(on_divergence="raise"), rf.HyperOptimizer(engine("reverse"), adam(2.0))):
        with pytest.raises(rf.DivergenceError, match="hyper-iteration 1"):
            run(driver)


def test_there_is_nothing_to_return_to_at_the_first_hyper_iteration():
    with pytest.raises(rf.DivergenceError, match="hyper-iteration 0"):
        run(tuner(), start=1.6)


def test_a_run_that_gives_up_reports_every_setback():
    with pytest.raises(rf.DivergenceError) as caught:
        run(tuner(rate=1e6))  # ten halvings are not enough
    message = str(caught.value)
    assert "The run had recovered 10 times before:" in message
    assert message.count("hyper-iteration 1: not finite") == 11
    assert caught.value.iteration == 1
    assert caught.value.what in message
    assert not caught.value.finite
    assert len(caught.value.result.history) == 1


def test_a_run_that_gave_up_gives_up_again_when_it_is_resumed(tmp_path):
    for _ in range(2):
        with pytest.raises(rf.DivergenceError) as caught:
            run(tuner(rate=1e6), checkpoint_dir=tmp_path, checkpoint_every=2)
        assert str(caught.value).count("hyper-iteration 1: not finite") == 11


def test_the_report_includes_setbacks_from_which_the_run_recovered_before_it_was_resumed(tmp_path):
    run(tuner(on_divergence=lambda hypers: {"h": 1.0}), 1, start=3.0, checkpoint_dir=tmp_path)
    with pytest.raises(rf.DivergenceError, match="hyper-iteration 1") as caught:
        run(tuner(on_divergence=lambda hypers: hypers), 3, start=3.0, checkpoint_dir=tmp_path)
    assert str(caught.value).count("hyper-iteration 0: not finite") == 1


def test_a_function_may_choose_the_hypers_to_repeat_with():
    seen = []

    def lower(hypers):
        seen.append(float(hypers["h"]))
        return {"h": hypers["h"] - 1.0}

    result = run(tuner(rate=0.01, on_divergence=lower), start=3.0)
    assert seen == [3.0, 2.0]
    assert result.history[0]["h"] == 1.0


def test_a_run_that_recovered_resumes_bit_identically(tmp_path):
    whole = run(tuner(), 8)
    run(tuner(), 1, checkpoint_dir=tmp_path)  # the next update crosses the wall, and starts from the checkpoint
    run(tuner(), 3, checkpoint_dir=tmp_path)
    result = run(tuner(), 8, checkpoint_dir=tmp_path)
    assert [row["h"] for row in result.history] == [row["h"] for row in whole.history]
    assert float(result.hypers["h"]) == float(whole.hypers["h"])


def test_callbacks_are_called_for_finished_hyper_iterations_only():
    calls = []

    class Record(rf.Callback):
        def on_hyper_iteration(self, k, hypers, hypergradient, extra):
            calls.append((k, float(hypers["h"])))

    run(tuner(callbacks=[Record()]), 2)
    assert calls == [(0, 0.0), (1, pytest.approx(1.0, abs=1e-5))]


def test_an_unknown_on_divergence_is_rejected():
    with pytest.raises(ValueError, match="on_divergence is 'again'"):
        tuner(on_divergence="again")


def test_a_value_above_the_limit_is_a_setback_twice_and_then_accepted():
    tries = []

    def lower(hypers):
        tries.append(float(hypers["h"]))
        return {"h": hypers["h"] + 0.01}

    result = run(tuner(rate=1e-6, on_divergence=lower, limit=lambda history: 0.0), 1)
    assert len(tries) == 2
    assert result.history[0]["h"] == pytest.approx(0.02)


def test_the_limit_depends_on_the_history():
    lengths = []
    run(tuner(rate=1e-6, limit=lambda history: lengths.append(len(history)) or np.inf), 3)
    assert lengths == [0, 1, 2]


def test_a_value_at_the_limit_is_accepted():
    value = run(tuner(on_divergence="raise"), 1).best.value
    assert run(tuner(on_divergence="raise", limit=lambda history: value), 1).best.value == value
    with pytest.raises(rf.DivergenceError, match=r"^(?!.*backward pass).*exceeds the limit"):
        run(tuner(on_divergence="raise", limit=lambda history: 0.99 * value), 1)


def steep(beyond, slope=1e4, wall=1e9):
    """An engine whose hypergradient is h - 1.4 up to `beyond`, longer by `slope` after that, and NaN after a wall."""

    def objective(w, hypers, batch):
        h = hypers["h"]
        return tf.square(h - 1.4) / 2 + slope * tf.nn.relu(h - beyond) + tf.math.log(wall - h) * 0.0 + 0.0 * w

    return rf.reverse(rf.Problem(engine("reverse").problem.dynamics, objective, steps=2), jit_compile=False)


def test_backtracking_returns_from_a_hypergradient_that_is_far_too_long_and_accepts_it_the_third_time():
    def shown(engine, iterations=2, rate=2.0, **options):
        options = {"on_divergence": "backtrack"} | options
        history = run(rf.HyperOptimizer(engine, adam(rate), **options), iterations).history
        return [row["h"] for row in history]

    late, soon = steep(1.5), steep(0.3)
    assert shown(late) == pytest.approx([0.0, 1.0], abs=1e-5)  # 2.0 was on the slope
    assert shown(soon) == pytest.approx([0.0, 0.5], abs=1e-5)  # so were 2.0 and 1.0
    for other in ("raise", lambda hypers: hypers):
        assert shown(late, on_divergence=other) == pytest.approx([0.0, 2.0], abs=1e-4)
    # 3.2 and 1.6 are beyond the wall; the slope is long beside what 0.8 gives, but not beside what 0.0 gave.
    near = steep(1.2, 100.0, 1.55)
    assert shown(near, 3, 3.2) == pytest.approx([0.0, 0.8, 1.527], abs=0.01)
    for one, rate in ((late, 2.0), (soon, 2.0), (near, 3.2)):
        assert shown(one, 12, rate) == shown(one, 12, rate, iterations_per_call=5)
    error = recovery.divergence(1, {"value": 1.0, "hypergradient of h": np.ones(4)}, limit=2.0)
    assert error.finite
    assert error.what.startswith(
        "hyper-iteration 1: the norm of a hypergradient is over 100 times the largest so far. Norms: "
    )


def test_a_run_that_returned_from_long_hypergradients_resumes_bit_identically(tmp_path):
    driver = rf.HyperOptimizer(steep(0.3), adam(2.0), on_divergence="backtrack")
    whole = run(driver, 8)
    for iterations in (1, 2, 4, 8):
        result = run(driver, iterations, checkpoint_dir=tmp_path)
    assert [row["h"] for row in result.history] == [row["h"] for row in whole.history]
    assert float(result.hypers["h"]) == float(whole.hypers["h"])


def test_a_function_that_returns_the_same_hypers_is_not_asked_again():
    tries = []
    with pytest.raises(rf.DivergenceError):
        run(tuner(on_divergence=lambda hypers: tries.append(1) or hypers), start=1.6)
    assert len(tries) == 1
    tries.clear()
    result = run(tuner(rate=1e-6, on_divergence=lambda hypers: tries.append(1) or hypers, limit=lambda history: 0.0), 2)
    assert len(tries) == 2  # once in each hyper-iteration
    assert len(result.history) == 2  # above the limit but finite: there is nothing better


def test_given_hypers_start_with_a_fresh_optimiser_and_without_sensitivity():
    online, optimizer, hypers = engine("real_time"), adam(0.1), {"h": tf.constant(0.5)}
    carry = online.start(tf.constant(1.0), hypers)
    carry = carry._replace(sensitivity=tf.nest.map_structure(tf.ones_like, carry.sensitivity), t=tf.constant(4))
    _, opt_state = optimizer.update({"h": tf.constant(3.0)}, optimizer.init(hypers), hypers)
    good = LastGood(hypers, opt_state, hypers)
    now = RunState(2, hypers, opt_state, carry, carry.state, None, [], good, ("an earlier setback",), 1)
    error = recovery.divergence(2, {"value": np.nan})
    back = recovery.retry_from(now, error, lambda hypers: {"h": hypers["h"] / 2}, online, optimizer)
    assert (back.k, float(back.hypers["h"]), back.good, back.in_a_row) == (2, 0.25, None, 2)
    assert back.setbacks == ("an earlier setback", error.what)
    assert same_bits(back.opt_state, optimizer.init(back.hypers))
    assert not np.any(tf.nest.flatten(back.carry.sensitivity))
    assert same_bits([back.carry.state, back.carry.t], [carry.state, carry.t])


# Clipping


@pytest.mark.parametrize("method", ["reverse", pytest.param("real_time", marks=pytest.mark.slow)])
def test_hypergradients_are_clipped_by_their_norm_over_all_hypers(method):
    loss = lambda w, hypers, batch: w**2  # noqa: E731
    slope = lambda w, hypers, batch: 3.0 * hypers["a"] + 4.0 * hypers["b"] + 0.0 * w  # noqa: E731
    problem = rf.Problem(rf.gradient_descent(loss, 0.1), slope, steps=2)
    engine = rf.reverse(problem, jit_compile=False)
    if method == "real_time":
        engine = rf.real_time(problem, 2, jit_compile=False)
    plain = rf.HyperUpdate(lambda h: (), lambda grads, state, h: ({n: h[n] - grads[n] for n in h}, state), {})
    ends = {
        clip: rf.HyperOptimizer(engine, plain, clip=clip).run(tf.constant(1.0), {"a": 0.0, "b": 0.0}, 1)
        for clip in (None, 1.0, 100.0)
    }
    moved = {clip: [float(end.hypers[name]) for name in "ab"] for clip, end in ends.items()}
    assert moved[None] == moved[100.0] == [-3.0, -4.0]
    assert moved[1.0] == pytest.approx([-0.6, -0.8], rel=1e-6)
    assert ends[1.0].history[0]["hypergradient/a"] == 3.0  # unclipped


class Rate(NamedTuple):
    """The state of plain gradient descent on the hypers."""

    learning_rate: dict[str, tf.Tensor]


def test_backtracking_repeats_the_clipped_update():
    def update(grads, state, hypers):
        return {name: hypers[name] - state.learning_rate[name] * grads[name] for name in hypers}, state

    descent = rf.HyperUpdate(lambda hypers: Rate({name: tf.constant(2.0) for name in hypers}), update)
    result = run(rf.HyperOptimizer(engine("reverse"), descent, on_divergence="backtrack", clip=1.0), 2)
    assert result.history[1]["h"] == pytest.approx(1.0)  # 2.0 was beyond the wall; unclipped, it would be 1.4


@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan")])
def test_a_clip_that_is_not_positive_is_rejected(clip):
    with pytest.raises(ValueError, match="clip is"):
        tuner(clip=clip)

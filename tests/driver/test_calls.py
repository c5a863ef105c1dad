"""Several hyper-iterations in one compiled call: the same results as one at a time, whatever happens in between."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.core import devices
from rfho2.driver import calls, iteration
from tests.support import checkpoints, family
from tests.support.checkpoints import HYPERS, PARAMS, assert_identical, problem
from tests.support.tuning import same_bits, visit

ITERATIONS = 7
WALL = 1.5  # hypers above it give NaN


@functools.cache
def engine(name, jit_compile=False):
    """The engines whose hyper-iterations differ in what they carry."""
    options = {"jit_compile": jit_compile}
    if name == "warm":
        case = family.ridge()
        return rf.implicit(rf.Problem(rf.gradient_descent(case.loss, 0.1), case.objective, 60), warm_start=True, **options)
    return {
        "reverse": lambda: rf.reverse(problem(), **options),
        "forward": lambda: rf.forward(problem(rf.adam), **options),
        "average": lambda: rf.average(rf.reverse(problem(), **options), 2),
        "real_time": lambda: rf.real_time(problem(steps=None), 2, **options),
        "reverse windows": lambda: rf.real_time(problem(rf.adam, steps=None), 2, mode="reverse", **options),
        "one step": lambda: rf.real_time(problem(steps=None), 1, discount=0, **options),
    }[name]()


@functools.cache
def adam(rate=0.02):
    return rf.projected_adam(rate)


def run(name, iterations_per_call, total=ITERATIONS, jit_compile=False, directory=None, every=1, **settings):
    case = family.ridge()
    start = (case.params, case.hypers) if name == "warm" else (tf.constant(PARAMS), HYPERS)
    tuner = rf.HyperOptimizer(
        engine(name, jit_compile), settings.pop("optimizer", adam()), iterations_per_call=iterations_per_call, **settings
    )
    return tuner.run(*start, total, directory, checkpoint_every=every)


def close(result, expected, rtol=1e-5):
    """Where another program computes the hyper-iterations, results agree to rounding."""
    assert [row["iteration"] for row in result.history] == [row["iteration"] for row in expected.history]
    for name, hyper in result.hypers.items():
        np.testing.assert_allclose(hyper, expected.hypers[name], rtol=rtol)


NAMES = ["reverse", "forward", "average", "real_time", "reverse windows", "one step", "warm"]
QUICK = ("reverse", "real_time", "warm")  # the others carry the same


@pytest.mark.filterwarnings("ignore:rf.implicit")
@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES])
def test_the_number_of_hyper_iterations_in_a_call_does_not_change_a_bit(name):
    one_by_one = run(name, 1)
    for number in (3, 64, None):
        assert_identical(run(name, number), one_by_one)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:rf.implicit")
@pytest.mark.parametrize("name", NAMES)
def test_the_same_under_xla(name):
    one_by_one = run(name, 1, jit_compile=True)
    assert_identical(run(name, 5, jit_compile=True), one_by_one)
    assert engine(name, True).jit_compiled


def test_the_memory_for_hypers_and_hypergradients_limits_a_call():
    assert [iteration.most({"h": tf.zeros([size])}) for size in (1, 2**15, 2**25)] == [64, 16, 1]


def test_runs_resume_bit_identically_with_another_number_in_a_call(tmp_path):
    run("real_time", 3, 4, directory=tmp_path, every=4)
    assert checkpoints.numbers(tmp_path) == [4]
    assert_identical(run("real_time", 2, directory=tmp_path, every=4), run("real_time", 1))


def test_a_call_never_passes_a_checkpoint(tmp_path):
    lengths = []

    class Watched(calls.Calls):
        def run(self, now, n, limit):
            lengths.append(n)
            return super().run(now, n, limit)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rfho2.driver.hyper_optimizer.Calls", Watched)
        run("reverse", 3, directory=tmp_path, every=4)
    assert lengths == [3, 1, 3]


def test_a_checkpoint_of_version_1_0_0_resumes(tmp_path):
    """Written on another machine, perhaps with other versions of TensorFlow, of which it warns."""
    for case in ("simple", "real_time"):
        directory = checkpoints.copy_of_1_0_0(case, tmp_path)
        result, expected = checkpoints.run(directory, case=case), checkpoints.straight(case)
        # A CPU wrote it. A GPU rounds differently, and Adam makes large what is left of a hypergradient close to 0.
        close(result, expected, rtol=1e-3 if devices.gpu() else 1e-5)


# What a call reports


class Watch(rf.Callback):
    """Records what it is told; it does not read the state."""

    needs_state = False

    def __init__(self):
        self.reports = []

    def on_hyper_iteration(self, k, hypers, hypergradient, extra):
        self.reports.append((k, hypers, hypergradient))


def test_callbacks_are_told_every_hyper_iteration_in_order_and_the_last_state_of_a_call():
    few, all_states = Watch(), type("Reading", (Watch,), {"needs_state": True})()
    run("reverse", 3, callbacks=[few])
    run("reverse", 1, callbacks=[all_states])
    assert [k for k, _, _ in few.reports] == list(range(ITERATIONS))
    for i, (one, expected) in enumerate(zip(few.reports, all_states.reports, strict=True)):
        assert same_bits((one[1], one[2]._replace(state=())), (expected[1], expected[2]._replace(state=())))
        assert (one[2].state is None) == (i not in (2, 5, 6))
        assert one[2].state is None or same_bits(one[2].state, expected[2].state)


def test_a_subclass_that_overrides_the_callback_may_read_the_state():
    class Reading(Watch):
        def on_hyper_iteration(self, k, hypers, hypergradient, extra):
            assert hypergradient.state is not None

    run("reverse", None, callbacks=[Reading()])


@pytest.mark.parametrize(
    "key", ["norm of adjoint", *(pytest.param(key, marks=pytest.mark.slow) for key in ("hypergradient/lr", "iteration"))]
)
def test_the_best_by_any_number_of_the_history(key):
    result = run("reverse", None, best_by=key)
    scores = [row[key] for row in result.history]
    assert (result.best.value, result.best.iteration) == (min(scores), int(np.argmin(scores)))
    one_by_one = run("reverse", 1, best_by=key)
    assert same_bits(result.best, one_by_one.best)


# Where there is only one in a call


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"metrics": lambda state, hypers, k: {}}, "metrics is a function of the state"),
        ({"stop": lambda history: False}, "stop is called"),
        ({"limit": lambda history: 1e9}, "limit is called"),
        ({"callbacks": [type("Mine", (), {"on_hyper_iteration": lambda *_: None})()]}, "callbacks has Mine, without"),
        ({"best_by": "seconds"}, "best_by is 'seconds'"),
        ({"optimizer": rf.HyperUpdate(lambda h: (), lambda g, s, h: ({n: h[n].numpy() for n in h}, s))}, "cannot be traced"),
    ],
)
def test_a_number_that_cannot_be_is_refused_with_the_reason(settings, reason):
    with pytest.raises(ValueError, match=f"iterations_per_call is 2, but .*{reason}.*only one"):
        run("reverse", 2, **settings)


def test_streams_functions_and_own_engines_take_one_at_a_time():
    stream = rf.batches.stream(tf.data.Dataset.from_tensors(tf.zeros(3)).repeat())
    loss = lambda w, hypers, batch: tf.reduce_sum(hypers["weights"] * (w - batch) ** 2)  # noqa: E731
    streamed = rf.real_time(rf.Problem(rf.gradient_descent(loss, "lr"), loss, None, stream, lambda k: tf.zeros(3)), 2)
    names = ("problem", "settings", "start", "advance", "initial_state")
    custom = type("Own", (), {name: getattr(engine("reverse"), name) for name in names})()
    for driven, params, reason in (
        (streamed, tf.constant(PARAMS), "come from a stream"),
        (engine("reverse"), lambda k: tf.constant(PARAMS), "params is a function"),
        (custom, tf.constant(PARAMS), "one of your own"),
    ):
        with pytest.raises(ValueError, match=reason):
            rf.HyperOptimizer(driven, adam(), iterations_per_call=2).run(params, HYPERS, 2)
    close(rf.HyperOptimizer(custom, adam()).run(tf.constant(PARAMS), HYPERS, 4), run("reverse", 1, 4))


def test_an_optimiser_that_uses_numpy_is_called_as_it_is():
    inner = adam()

    def update(grads, state, hypers):
        return inner.update({name: tf.constant(grad.numpy()) for name, grad in grads.items()}, state, hypers)

    close(run("reverse", None, optimizer=inner._replace(update=update)), run("reverse", 1))


@pytest.mark.slow
def test_an_optimiser_that_xla_cannot_compile_does_not_keep_the_engine_from_it():
    inner = adam()

    def update(grads, state, hypers):
        moved, state = inner.update(grads, state, hypers)
        return {n: tf.ensure_shape(tf.numpy_function(lambda x: x, [h], h.dtype), h.shape) for n, h in moved.items()}, state

    result = run("reverse", None, 3, jit_compile=True, optimizer=inner._replace(update=update))
    assert engine("reverse", True).jit_compiled
    close(result, run("reverse", 1, 3))


# Divergence in the middle of a call


def wall(w, hypers, batch):
    return tf.square(hypers["h"] - 1.4) + tf.math.log(WALL - hypers["h"]) * 0.0 + 0.0 * w


@functools.cache
def walled(method):
    problem = rf.Problem(rf.gradient_descent(lambda w, hypers, batch: w**2 + 0 * hypers["h"], 0.1), wall, steps=2)
    return rf.real_time(problem, 2, jit_compile=False) if method == "real_time" else rf.reverse(problem, jit_compile=False)


def towards_the_wall(method, number, rate=0.4, **settings):
    tuner = rf.HyperOptimizer(walled(method), adam(rate), iterations_per_call=number, **settings)
    return tuner.run(tf.constant(1.0), {"h": 0.0}, 12)


@pytest.mark.parametrize("method", ["reverse", "real_time"])
def test_divergence_in_a_call_raises_as_with_one_at_a_time(method):
    errors = []
    for number in (1, 8):
        with pytest.raises(rf.DivergenceError) as caught:
            towards_the_wall(method, number)
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])
    assert errors[0].iteration == errors[1].iteration > 2
    assert_identical(errors[0].result, errors[1].result)


@pytest.mark.parametrize("method", ["reverse", "real_time"])
@pytest.mark.parametrize("on_divergence", ["backtrack", lambda hypers: {"h": 0.9 * hypers["h"]}], ids=["backtrack", "retry"])
def test_recovery_in_a_call_is_that_of_one_at_a_time(method, on_divergence):
    one_by_one, watch = towards_the_wall(method, 1, on_divergence=on_divergence), Watch()
    assert_identical(towards_the_wall(method, 8, on_divergence=on_divergence, callbacks=[watch]), one_by_one)
    assert [k for k, _, _ in watch.reports] == list(range(12))


def test_a_limit_is_asked_for_every_hyper_iteration():
    asked = []
    result = visit([0.1, 0.9, 0.1, 0.1], limit=lambda history: asked.append(len(history)) or np.inf)
    assert asked == [0, 1, 2, 3] == [row["iteration"] for row in result.history]


def test_an_optimiser_whose_state_overflows_ends_the_call_before_it_is_used():
    scaled = lambda w, hypers, batch: 1e30 * (hypers["h"] - 1.0) ** 2 + 0.0 * w  # noqa: E731
    problem = rf.Problem(rf.gradient_descent(lambda w, h, b: w**2 + 0 * h["h"], 0.1), scaled, steps=1)
    with pytest.raises(rf.DivergenceError, match="optimiser's state: inf"):
        rf.HyperOptimizer(rf.reverse(problem, jit_compile=False), adam()).run(tf.constant(1.0), {"h": 0.0}, 4)


def test_an_asymmetric_matrix_is_refused_in_the_middle_of_a_run():
    dynamics, case = family.equilibrium()
    engine = rf.implicit(rf.Problem(dynamics, case.objective, 50), solver="cg", jit_compile=False)
    with pytest.raises(ValueError, match="not symmetric"):
        rf.HyperOptimizer(engine, rf.projected_adam(0.01), iterations_per_call=4).run(case.params, case.hypers, 4)

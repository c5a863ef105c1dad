"""Episodes: each hyper-iteration has training batches and initial params of its own."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from tests.support import episodes
from tests.support.episodes import hypers, problem, response, start
from tests.support.problems import assert_agree, differences
from tests.support.tuning import same_bits

slow = pytest.mark.slow
OFFLINE = {
    "reverse": rf.reverse,
    "checkpointed": lambda p, **options: rf.reverse(p, checkpoints=2, **options),
    "forward": rf.forward,
    "implicit": rf.implicit,
}


@functools.cache
def engine(method="reverse", jit_compile=False):
    case = problem()
    if method == "implicit":
        case = rf.Problem(rf.gradient_descent(episodes.loss, 0.1), case.objective, 60, case.batches, case.validation)
    return OFFLINE[method](case, jit_compile=jit_compile)


@functools.cache
def online():
    return rf.real_time(problem(), episodes.STEPS, jit_compile=False)


def some(method):
    """The hypers that an engine can tune: learning rates have no implicit derivative."""
    return {"l2": hypers()["l2"]} if method == "implicit" else hypers()


# Training batches


def test_batches_of_an_episode_reach_reverse_forward_and_real_time():
    k, case = 3, problem()
    quotients = differences(lambda at: response(case, start(k), at, k), hypers())
    for each in (engine("reverse"), engine("forward"), online()):
        grads = each(start(k), hypers(), k).grads
        assert_agree(grads, quotients, 1e-6)
        assert_agree(grads, engine("reverse")(start(k), hypers(), k).grads, 1e-10)


def test_each_hyper_iteration_has_its_own_batches():
    case = rf.Problem(
        rf.gradient_descent(lambda w, h, batch: h["c"] * (w - batch) ** 2, 0.5),
        lambda w, h, batch: w,
        steps=1,
        batches=lambda t, k: tf.cast(10 * k + t, tf.float32),
    )
    value = rf.reverse(case, jit_compile=False)
    assert [float(value(tf.constant(0.0), {"c": 1.0}, k).value) for k in (0, 1, 5)] == [0.0, 10.0, 50.0]


# Initial params


@pytest.mark.filterwarnings("ignore:rf.implicit")
@pytest.mark.parametrize(
    "method", ["reverse", "implicit", *(pytest.param(m, marks=slow) for m in ("checkpointed", "forward"))]
)
def test_a_function_of_k_gives_the_params_of_each_hyper_iteration(method):
    each, at = engine(method), some(method)
    carry = each.start(start, at)
    for k in (0, 3):
        expected = each(start(k), at, k)
        assert same_bits(each(start, at, k), expected)
        advanced, carry = each.advance(carry, at, k)
        assert same_bits(advanced, expected)


@pytest.mark.slow
def test_a_function_of_k_is_compiled_by_xla_too():
    compiled = engine("reverse", jit_compile=True)
    expected = engine("reverse")(start(4), hypers(), 4)
    assert_agree(compiled(start, hypers(), 4).grads, expected.grads, 1e-10)
    assert compiled.jit_compiled


def test_runs_from_two_functions_do_not_mix_and_each_is_traced_once():
    traced = []

    def other(k):
        traced.append(tf.executing_eagerly())
        return tf.nest.map_structure(lambda x: x + 1.0, start(k))

    one, two = engine().start(start, hypers()), engine().start(other, hypers())
    values = [float(engine().advance(carry, hypers(), 2)[0].value) for carry in (one, two, one, two)]
    assert values[:2] == values[2:]
    assert values[0] != values[1]
    assert traced.count(False) == 1


def test_a_carried_function_has_no_leaves_and_survives_packing():
    carry = engine().start(start, hypers())
    assert tf.nest.flatten(carry) == []
    assert tf.nest.pack_sequence_as(carry, []).function is start
    assert engine().start(carry, hypers()) is carry


def test_the_state_before_the_first_step_is_that_of_episode_0():
    tf.nest.map_structure(np.testing.assert_array_equal, engine().initial_state(start, hypers()).params, start(0))


def test_real_time_starts_at_the_value_at_0():
    assert same_bits(online().start(start, hypers()), online().start(start(0), hypers()))
    assert same_bits(online()(start, hypers(), 1), online()(start(0), hypers(), 1))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda k: {"w": tf.zeros(3, tf.float64), "b": tf.cast(k, tf.float32)}, "params mix dtypes"),
        (lambda k: {"w": tf.zeros(3, tf.float64), "b": k}, "params leaf 'b' has dtype int32"),
    ],
)
def test_what_a_function_returns_is_checked(wrong, message):
    with pytest.raises(TypeError, match=message):
        engine()(wrong, hypers())

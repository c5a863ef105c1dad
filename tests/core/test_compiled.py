"""One trace for many calls, XLA with a fallback, and no silent AutoGraph."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from rfho2.core.compiled import Compiled, graph_function
from tests.support.devices import cpu_only
from tests.support.engines import ENGINES, common_engines
from tests.support.problems import cosh_valley

SLOW = [pytest.param(*pair, marks=pytest.mark.slow) for pair in (("reverse", False), ("forward", None), ("real_time", None))]


@pytest.mark.parametrize(
    ("name", "jit_compile"),
    [("reverse", None), ("forward", False), ("real_time", False), *SLOW],
)
def test_one_trace_for_many_calls(name, jit_compile):
    case, calls = cosh_valley(), []

    def loss(params, hypers, batch):
        calls.append(1)
        return case.loss(params, hypers, batch)

    problem = rf.Problem(rf.momentum(loss, "lr", "mu"), case.objective, 3, case.batches, case.validation)
    engine = ENGINES[name].make(problem, jit_compile=jit_compile)
    engine(case.params, {"lr": 0.1, "mu": 0.5, "l2": 0.1})
    traced = len(calls)
    for k in range(1, 6):  # Python floats, NumPy scalars and arrays, tensors, another order
        engine(case.params, {"lr": 0.1 / k, "mu": np.float32(0.5), "l2": np.array(0.1 * k)}, k)
        engine(case.params, {"l2": tf.constant(0.1), "mu": 0.5, "lr": 0.2}, tf.constant(k))
    assert len(calls) == traced
    assert engine.jit_compiled is (jit_compile is None)


@pytest.mark.parametrize("name", ["reverse", *(pytest.param(n, marks=pytest.mark.slow) for n in ("forward", "real_time"))])
def test_an_op_that_xla_cannot_compile_falls_back_with_one_warning(name):
    def loss(w, hypers, batch):
        return tf.reduce_sum(w**2) * tf.cast(tf.strings.length(tf.strings.as_string(batch)), w.dtype)

    problem = rf.Problem(rf.gradient_descent(loss, "lr"), lambda w, h, b: tf.reduce_sum(w**2), 3, lambda t: t)
    engine = ENGINES[name].make(problem)
    with pytest.warns(UserWarning, match="XLA cannot compile .*(AsString|StringLength)"):
        first = engine(tf.constant([1.0, 2.0]), {"lr": 0.1})
    assert not engine.jit_compiled
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = engine(tf.constant([1.0, 2.0]), {"lr": 0.1})
    np.testing.assert_array_equal(first.grads["lr"], again.grads["lr"])
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.UnimplementedError)):
        ENGINES[name].make(problem, jit_compile=True)(tf.constant([1.0, 2.0]), {"lr": 0.1})


@pytest.mark.parametrize(
    ("message", "falls_back"),
    [
        ("Couldn't find output tile sizes that satisfy hlo: %dot.7 = f32[128,400,10]", True),
        ("Failed to launch Triton kernel loop_add_fusion: CUDA_ERROR_ILLEGAL_ADDRESS: illegal address", False),
    ],
)
def test_a_compiler_that_fails_is_done_without_and_a_device_that_fails_is_not(message, falls_back):
    def fails(x):
        raise tf.errors.InternalError(None, None, message)

    function = Compiled(lambda x: 2 * x)
    function.xla = fails
    if falls_back:
        with pytest.warns(UserWarning, match="XLA cannot compile Couldn't find"):
            assert float(function(tf.constant(3.0))) == 6
        assert not function.jit_compiled
    else:
        with pytest.raises(tf.errors.InternalError, match="illegal address"):
            function(tf.constant(3.0))


@cpu_only("a GPU gathers zeros where an index is out of range")
def test_an_error_in_the_users_code_is_not_mistaken_for_one_of_xla():
    def batches(t):
        return tf.gather(tf.constant([1.0, 2.0]), t + 5)

    problem = rf.Problem(rf.gradient_descent(lambda w, h, b: w**2 * b, "lr"), lambda w, h, b: w**2, 2, batches)
    with pytest.raises(tf.errors.InvalidArgumentError, match="indices"):
        rf.reverse(problem, jit_compile=False)(tf.constant(1.0), {"lr": 0.1})


@common_engines
def test_autograph_rewrites_nothing(method, caplog):
    case = cosh_valley()
    rate, hypers = ("lr", {"lr": 0.1, "l2": 0.1}) if method.rates else (0.1, {"l2": 0.1})
    problem = rf.Problem(rf.momentum(case.loss, rate, 0.5), case.objective, 3, case.batches, case.validation)
    with caplog.at_level("WARNING"), warnings.catch_warnings():
        warnings.simplefilter("error")
        method.make(problem, jit_compile=False)(case.params, hypers)
    assert "AutoGraph" not in caplog.text


@cpu_only("XLA compiles convolutions well for a GPU")
def test_convolutions_are_left_to_the_graph_unless_the_user_insists():
    kernel, images = tf.ones([2, 2, 1, 1]), tf.ones([1, 3, 3, 1])

    def loss(w, hypers, batch):
        return tf.reduce_sum(tf.nn.conv2d(images, w, 1, "VALID") ** 2)

    problem = rf.Problem(rf.gradient_descent(loss, "lr"), loss, 2)
    engines = {jit_compile: rf.reverse(problem, jit_compile=jit_compile) for jit_compile in (None, True)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slopes = {jit_compile: engine(kernel, {"lr": 0.01}).grads["lr"] for jit_compile, engine in engines.items()}
    assert not engines[None].jit_compiled
    assert engines[True].jit_compiled
    np.testing.assert_allclose(slopes[None], slopes[True], rtol=1e-5)


ASSERTIONS = {
    "assert": lambda w: tf.debugging.assert_less(w, 1.0, "w is too large"),
    "check_numerics": lambda w: tf.debugging.check_numerics(tf.math.log(1.0 - w), "w is too large"),
}


@common_engines
@pytest.mark.parametrize("kind", ASSERTIONS)
def test_assertions_of_the_user_hold_also_where_xla_would_leave_them_out(kind, method):
    def loss(w, hypers, batch):
        ASSERTIONS[kind](w)
        return -hypers["l2"] * w

    rate, hypers = ("lr", {"lr": 0.1, "l2": 1.0}) if method.rates else (0.1, {"l2": 1.0})
    problem = rf.Problem(rf.gradient_descent(loss, rate), loss, 3)
    engine = method.make(problem, jit_compile=None)
    with pytest.warns(UserWarning, match="XLA would leave out the assertions of the problem"):
        engine(tf.constant(0.0), hypers)
    assert not engine.jit_compiled
    with pytest.raises(tf.errors.InvalidArgumentError, match="w is too large"):
        engine(tf.constant(1.0), hypers)


def test_the_graph_and_xla_share_one_trace():
    traced = []
    function = Compiled(lambda x: traced.append(1) or 2 * x)
    function.delayed = True
    assert float(function(tf.constant(3.0))) == 6
    assert not function.jit_compiled
    function.delayed = False
    assert float(function(tf.constant(4.0))) == 8
    assert function.jit_compiled
    assert len(traced) == 1


def test_the_size_of_the_forward_graph_does_not_grow_with_the_number_of_hypers():
    def operations(m):
        weights = tf.ones(m, tf.float64)
        loss = lambda w, hypers, batch: tf.reduce_sum(tf.cosh(w) * tf.reduce_mean(hypers["weights"]))  # noqa: E731
        problem = rf.Problem(rf.momentum(loss, 0.1, 0.9), lambda w, h, b: tf.reduce_sum(w**2), 5)
        engine = rf.forward(problem, jit_compile=False)
        params = tf.constant([1.0, 2.0], tf.float64)
        engine(params, {"weights": weights})
        concrete = engine._compiled.graph.get_concrete_function(params, {"weights": weights}, tf.constant(0), ())
        graph = concrete.graph.as_graph_def()
        return len(graph.node) + sum(len(f.node_def) for f in graph.library.function)

    assert operations(5) == operations(64)  # up to four columns are written out
    assert operations(65) == operations(600)  # more than 64 come in chunks, by one loop more


def test_the_size_of_the_reverse_graph_does_not_grow_with_the_number_of_steps():
    def operations(steps):
        loss = lambda w, hypers, batch: tf.reduce_sum(tf.cosh(w))  # noqa: E731
        engine = rf.reverse(rf.Problem(rf.momentum(loss, "lr", 0.9), loss, steps), jit_compile=False)
        params, hypers = tf.constant([1.0, 2.0], tf.float64), {"lr": tf.constant(0.01, tf.float64)}
        concrete = engine._compiled.graph.get_concrete_function(params, hypers, tf.constant(0), ())
        return len(concrete.graph.as_graph_def().node)

    assert operations(3) == operations(300)


def test_a_large_adjoint_that_is_the_sum_of_several_can_be_computed_again():
    """Grappler, if it is not kept from it, adds such summands in a variable that the next call finds still there."""
    optimizer = tf.config.optimizer
    before = optimizer.get_experimental_options().get("disable_meta_optimizer", False)
    optimizer.set_experimental_options({"disable_meta_optimizer": False})
    try:
        loss = lambda p, h, _: tf.reduce_sum(p**3 / 3 + h["l2"] * p**2 + tf.sin(p))  # noqa: E731
        nothing = rf.batches.full(tf.zeros(1))
        problem = rf.Problem(rf.gradient_descent(loss, 0.1), lambda p, *_: tf.reduce_sum(p), 2, nothing, nothing)
        engine = rf.reverse(problem, jit_compile=False)
        first, second = (engine(tf.fill([2**22], 0.1), {"l2": 0.1}).grads["l2"].numpy() for _ in range(2))
    finally:
        optimizer.set_experimental_options({"disable_meta_optimizer": before})
    assert first == second


def test_same_inputs_give_the_same_bits():
    case = cosh_valley(tf.float32)
    problem = rf.Problem(rf.momentum(case.loss, "lr", 0.9), case.objective, 9, case.batches, case.validation)
    for engine in (rf.reverse(problem), rf.forward(problem, jit_compile=False)):
        first, second = (engine(case.params, {"lr": 0.1, "l2": 0.01}) for _ in range(2))
        tf.nest.map_structure(np.testing.assert_array_equal, first, second)


def test_functions_made_by_the_same_lines_are_not_reported_as_retraced(caplog):
    def make(factor):
        def function(x):
            return factor * x

        return graph_function(function)

    with caplog.at_level("WARNING"):
        made = [make(float(factor)) for factor in range(12)]
        assert [float(function(tf.constant(2.0))) for function in made] == [2.0 * factor for factor in range(12)]
    assert not caplog.records

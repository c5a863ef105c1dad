"""Checks a hypergradient: reverse mode, forward mode and finite differences, compared in float64."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from rfho2.core import errors, nest
from rfho2.core.types import Hypers, Nest
from rfho2.hypergradients.check_engine import check_same_problem, compare_engine
from rfho2.hypergradients.differences import FLOOR, compare, difference, response
from rfho2.hypergradients.engine import Engine
from rfho2.hypergradients.forward import forward
from rfho2.hypergradients.probe import probe
from rfho2.hypergradients.reverse import reverse
from rfho2.problem import Problem


class Row(NamedTuple):
    """One hyper: its derivative along the direction in which the three methods differ most, and the relative error there.

    `engine` is the derivative by the engine that is checked, if there is one, along the direction in which it differs most
    from the differences that are its reference, `engine_difference`. `direction` is the entry, such as "[3]", or the number
    of the random direction, that `reverse`, `forward` and `difference` belong to.
    """

    hyper: str
    reverse: float
    forward: float
    difference: float
    error: float
    engine: float | None = None
    engine_difference: float | None = None
    engine_error: float = 0.0
    direction: str = ""


class Check(NamedTuple):
    """The result of `check_hypergradient`; print it.

    Attributes:
      ok: whether all methods agree.
      table: one row per hyper.
      message: what is wrong and where; empty if nothing is.
      step_error: relative error of one derivative of `dynamics.step`, compared with differences.
    """

    ok: bool
    table: list[Row]
    message: str
    step_error: float

    def __str__(self) -> str:
        lines = [f"{'hyper':<20} {'reverse':>16} {'forward':>16} {'difference':>16} {'error':>9}"]
        lines += [
            f"{r.hyper + r.direction:<20} {r.reverse:>16.9g} {r.forward:>16.9g} {r.difference:>16.9g} {r.error:>9.1e}"
            for r in self.table
        ]
        lines += [
            f"{r.hyper:<20} {r.engine:>16.9g} {'(the engine)':>16} {r.engine_difference:>16.9g} {r.engine_error:>9.1e}"
            for r in self.table
            if r.engine is not None
        ]
        if any(row.direction for row in self.table):
            lines.append("(of a hyper with several entries: the entry, or the random direction, with the largest error)")
        lines.append(f"derivative of one step compared with differences: error {self.step_error:.1e}")
        return "\n".join([*(lines if self.table else []), "ok" if self.ok else f"WRONG: {self.message}"])


def check_hypergradient(
    problem: Problem,
    params: Nest,
    hypers: Hypers,
    rtol: float = 1e-6,
    seed: int = 0,
    engine: Engine | None = None,
) -> Check:
    """Compares reverse mode, forward mode and central differences of E(s_T); and one step's derivative with differences.

    The last comparison is needed because both modes can agree and be wrong: some ops hide a stop_gradient that affects only
    the *second* derivative (`tf.nn.moments`; cross-entropy with respect to its labels).

    Args:
      problem: with few `steps`; each entry or direction of a hyper costs twenty trainings.
      params, hypers: in float64, like the data; differences in float32 would be meaningless.
      rtol: largest relative error that counts as agreement.
      seed: of the random directions along which hypers with more than ten entries are checked.
      engine: an engine of this problem to check as well. The reference for `rf.implicit` is differences of the
        training continued until it converges; the error may be ten times the linear residual.

    >>> import rfho2 as rf
    >>> loss = lambda w, hypers, batch: tf.reduce_sum(hypers["scale"] * tf.cos(w))
    >>> problem = rf.Problem(rf.momentum(loss, "lr", 0.9), loss, steps=4)
    >>> rf.check_hypergradient(problem, tf.constant([1.0, 2.0], tf.float64), {"lr": 0.1, "scale": 0.5}).ok
    True
    """
    params = errors.checked_params(params)
    hypers = errors.checked_hypers(hypers, params)
    _require_float64(params)
    if engine is not None:
        check_same_problem(engine, problem)
    rng = np.random.default_rng(seed)
    try:
        probe(problem, params, hypers)
    except KeyError:  # also a LookupError, but raised by the loss itself: a missing key of a dict
        raise
    except (LookupError, ValueError) as error:  # a TypeError means a float32 output, which is rejected rather than reported
        return Check(False, [], _explain(error), float("nan"))
    try:
        engines = [method(problem, jit_compile=False)(params, hypers) for method in (reverse, forward)]
    except (LookupError, TypeError, ValueError, tf.errors.OpError) as error:
        return Check(False, [], _explain(error), float("nan"))
    value = response(problem, params)
    base = value(hypers)
    quantities = {f"objective {name}".strip(): v for name, v in base.items()}
    for mode, by_mode in zip(("reverse", "forward"), engines, strict=True):
        quantities |= {f"{mode} hypergradient of '{name}'": grad for name, grad in by_mode.grads.items()}
    bad = [name for name, quantity in quantities.items() if not np.all(np.isfinite(quantity))]
    if bad:
        return Check(False, [], f"not finite: {', '.join(bad)}; look for log(0), 0/0 and sqrt at 0.", float("nan"))

    worst = compare(problem, value, hypers, [by_mode.grads for by_mode in engines], rng)
    table = [
        Row(name, one.numbers[0], one.numbers[1], one.numbers[2], one.error, direction=one.direction)
        for name, one in worst.items()
    ]
    checked = None if engine is None else compare_engine(engine, params, hypers, rtol, seed)
    if checked is not None:
        table = [Row(*row[:5], *checked.columns[row.hyper], row.direction) for row in table]
    step_error, step_culprit = _step_error(problem, params, hypers, rng)
    wrong = [row.hyper for row in table if not row.error <= rtol]
    message = ""
    if not step_error <= rtol:
        message = (
            f"dynamics.step: its derivative with respect to {step_culprit} differs from finite differences (error "
            f"{step_error:.1e}): the loss hides part of its second derivative. Known causes: tf.stop_gradient, "
            f"tf.nn.moments, Keras batch norm, cross-entropy whose labels depend on a hyper, tf.custom_gradient; and kinks "
            f"(ReLU, max) that are hit exactly."
        )
    elif wrong:
        message = f"the three methods differ for {', '.join(wrong)}: see the table; is the objective differentiable there?"
        if all(abs(r.reverse - r.forward) < 0.1 * abs(r.forward - r.difference) for r in table if r.hyper in wrong):
            message += (
                " Reverse and forward agree with each other much better than with the differences. If the objective is "
                "differentiable, the differences may be wrong, because the training amplifies rounding: try fewer steps."
            )
    elif checked is not None:
        message = checked.message
    return Check(not message, table, message, step_error)


def _step_error(problem: Problem, params: Nest, hypers: Hypers, rng: np.random.Generator) -> tuple[float, str]:
    """The largest error of the derivative of one step, along one direction of the state and one of each hyper.

    The state is s_1, moved proportionally to its entries, so that second moments stay positive.
    """
    t = tf.constant(1)
    batch = problem.batch(t)
    first = problem.dynamics.step(problem.dynamics.init(params, hypers), hypers, problem.batch(tf.constant(0)), t - 1)
    leaves = {f"state leaf '{path}'": leaf for path, leaf in nest.leaves_with_path(first)}
    inputs = {**leaves, **{f"hyper '{name}'": hyper for name, hyper in hypers.items()}}

    @tf.function(autograph=False)
    def step(inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        state = nest.pack(first, [inputs[name] for name in leaves])
        new = problem.dynamics.step(state, {name: inputs[f"hyper '{name}'"] for name in hypers}, batch, t)
        return tf.concat([tf.reshape(leaf, [-1]) for leaf in nest.flatten(new)], 0)

    worst = (0.0, "")
    groups = [list(leaves), *([f"hyper '{name}'"] for name in hypers)]
    for group in groups:
        direction = {name: rng.normal(size=inputs[name].shape) for name in group}
        if group == list(leaves) and any(np.any(leaf) for leaf in leaves.values()):
            direction = {name: d * np.abs(inputs[name]) for name, d in direction.items()}
        tangents = {name: tf.constant(direction.get(name, np.zeros(x.shape)), tf.float64) for name, x in inputs.items()}
        with tf.autodiff.ForwardAccumulator(inputs, tangents) as accumulator:
            out = step(inputs)
        exact = accumulator.jvp(out, unconnected_gradients=tf.UnconnectedGradients.ZERO).numpy()
        near = difference(lambda x: step(x).numpy(), inputs, direction)
        scale = max(np.max(np.abs(exact)), np.max(np.abs(near)), np.max(np.abs(out)) * FLOOR, np.finfo(float).tiny)
        error = float(np.max(np.abs(exact - near)) / scale)
        if not (np.isnan(worst[0]) or error <= worst[0]):
            worst = (error, group[0] if len(group) == 1 else "the state")
    return worst


def _require_float64(params: Nest) -> None:
    dtype = nest.flatten(params)[0].dtype
    if dtype != tf.float64:
        raise TypeError(
            f"params are {dtype.name}; the check needs float64. Rebuild with params = tf.nest.map_structure(lambda x: "
            f"tf.cast(x, tf.float64), params), and cast the data and every constant in the loss too."
        )


def _explain(error: Exception) -> str:
    if isinstance(error, LookupError):
        return f"an op in the loss or objective has no (second) derivative: {error}. Rewrite that part with other ops."
    return str(error)

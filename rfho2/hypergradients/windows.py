"""One training run in windows: `hyper_batch` steps at a time, with a hypergradient at the end of each.

`window_engine` makes the engines of real time. `reverse_windows` records the steps of a window and carries the adjoint back
through them, so that time does not depend on the number of hypers; a hypergradient then looks back no further than its own
window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rfho2.batches import Stream
from rfho2.core import errors, loops, nest
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.hypergradients import binomial
from rfho2.hypergradients.engine import MethodEngine, Processes
from rfho2.hypergradients.method import Method
from rfho2.hypergradients.reverse import Sweep, pull_back
from rfho2.problem import Cost, Problem


class WindowSettings(NamedTuple):
    """The arguments of `rf.real_time` that `window_settings` has checked."""

    hyper_batch: int | Fraction
    carry: bool
    discount: float
    mode: str
    checkpoints: int | None = None

    @property
    def most(self) -> int:
        """Steps of the longest window."""
        return math.ceil(self.hyper_batch)

    def steps(self, t: Any) -> Any:
        """Steps of the window that begins at time t, a number or a tensor: n windows end at floor(n h), h = `hyper_batch`.

        >>> settings = WindowSettings(Fraction(31, 2), True, 1.0, "forward")
        >>> settings.steps(0), settings.steps(15), settings.steps(31)
        (15, 16, 15)
        """
        if isinstance(self.hyper_batch, int):
            return self.hyper_batch
        h = self.hyper_batch
        wide = tf.cast(t, tf.int64) if tf.is_tensor(t) else t
        window = -(-(wide + 1) * h.denominator // h.numerator)  # the first n with floor(n h) > t
        steps = window * h.numerator // h.denominator - wide
        return tf.cast(steps, tf.int32) if tf.is_tensor(t) else steps


def window_settings(
    hyper_batch: int | Fraction, carry: bool | None, discount: float, mode: str, checkpoints: int | None = None
) -> WindowSettings:
    """Checks the arguments; `carry` is None where it follows from the mode."""
    if isinstance(hyper_batch, Fraction) and hyper_batch.denominator == 1:
        hyper_batch = int(hyper_batch)
    if not isinstance(hyper_batch, Fraction) or hyper_batch < 1:
        hyper_batch = errors.check_count("hyper_batch", hyper_batch)
    if isinstance(discount, bool) or not isinstance(discount, int | float | np.number) or not 0 <= discount <= 1:
        raise ValueError(
            f"discount is {discount!r}; it has to be a number from 0 to 1: 1 looks back as far as the training goes, "
            f"1 - 1/n about n steps, 0 one step."
        )
    if mode not in ("forward", "reverse"):
        raise ValueError(f"mode is {mode!r}; choose 'forward' or 'reverse'.")
    if carry and mode == "reverse":
        raise ValueError(
            "carry is True, but mode is 'reverse', which goes back to the start of a hyper-batch and no further: it has no "
            "Z to keep. Leave carry out; to look back further, make hyper_batch larger or use mode='forward'."
        )
    if checkpoints is not None:
        checkpoints = errors.check_count("checkpoints", checkpoints)
        if mode != "reverse" or discount == 0:
            raise ValueError(
                f"checkpoints is {checkpoints}, but only mode='reverse' with a discount above 0 saves states. Leave it out."
            )
    carries = mode == "forward" if carry is None else bool(carry)
    return WindowSettings(hyper_batch, carries, float(discount), mode, checkpoints)


class WindowCarry(NamedTuple):
    """The values that one window passes on to the next if there is no Z: s_t and t.

    `params` are the initial ones if the initialisation depends on the hypers, since the first window differentiates it;
    otherwise ().
    """

    state: Nest
    params: Nest
    t: tf.Tensor


def window_engine(
    problem: Problem,
    settings: WindowSettings,
    make: Callable[[Problem, WindowSettings], Method],
    jit_compile: bool | None,
    processes: Processes | None = None,
    extra_settings: Mapping[str, Any] | None = None,
) -> MethodEngine:
    """The engine of a method that continues one training run, `hyper_batch` steps at a time.

    Args:
      problem: what to differentiate; its training batches may be a stream.
      settings: see `rf.real_time`.
      make: (problem, settings) -> Method. Its carry has the fields `state` and `t`.
      jit_compile: None tries XLA and falls back to the graph; True or False decides.
      processes: where it runs.
      extra_settings: further settings of the engine.
    """
    length = settings.hyper_batch if isinstance(settings.hyper_batch, int) else str(settings.hyper_batch)
    described = {"method": "real_time", **settings._asdict(), "hyper_batch": length, "jit_compile": jit_compile}
    if settings.checkpoints is None:
        del described["checkpoints"]  # runs of version 1.0.0, which did not have them, can be resumed
    described |= extra_settings or {}

    def with_stream(problem: Problem, *_: Any) -> Method:
        return make(problem, settings)._replace(read=lambda stream, carry: read_window(stream, settings, int(carry.t)))

    return MethodEngine(problem, described, with_stream, afresh=False, processes=processes)


def read_window(stream: Stream, settings: WindowSettings, t: int) -> Nest:
    """The batches of the window that begins at time t, stacked; the last is repeated up to the length of the longest one."""
    steps = settings.steps(t)
    batches, missing = stream.take(steps), settings.most - steps
    return nest.map(lambda leaf: tf.concat([leaf, *[leaf[-1:]] * missing], 0), batches) if missing else batches


def reverse_windows(problem: Problem, settings: WindowSettings) -> Method:
    """alpha_t = dE/ds_t at the end of a window, alpha_{t-1} = mu alpha_t A_t, grad = sum alpha_t B_t + dE/d hypers.

    The first window adds alpha_0 ds_0/d hypers.
    """

    def start(params: Nest, hypers: Hypers) -> WindowCarry:
        return WindowCarry(*_initialised(problem, params, hypers), tf.constant(0))

    def advance(carry: WindowCarry, hypers: Hypers, k: tf.Tensor, streamed: Nest) -> tuple[HyperGradient, WindowCarry]:
        t, hypers, k, streamed = loops.unknown((carry.t, hypers, k, streamed))
        steps = settings.steps(t)
        end = t + steps
        sweep = WindowSweep(problem.reading(streamed, t), hypers, k, t, settings.discount)
        if settings.checkpoints is None or settings.checkpoints >= settings.most:
            trajectory, last = loops.record(sweep.step, carry.state, t, steps, settings.most)
            costs, _ = loops.fold_back(sweep.back, sweep.turn(last, sweep.nothing(last), end), trajectory, t, steps)
        else:
            window = t, steps, settings.checkpoints, settings.most
            saved, last = binomial.record(sweep.step, carry.state, *window)
            turned = sweep.turn(last, sweep.nothing(last), end)
            costs, _ = binomial.fold_back(sweep.step, sweep.back, turned, saved, *window)
        grads = _with_initialisation(problem, carry, hypers, costs)
        value = problem.value(sweep.terms, [cost.value for cost in costs])
        norms = {"adjoint": nest.norm([cost.state for cost in costs])}
        return HyperGradient(value, grads, (), norms), carry._replace(state=last, t=end)

    return Method(start, advance)


class WindowSweep(Sweep):
    """The steps of both sweeps over the window that begins at time t = begin."""

    def __init__(self, problem: Problem, hypers: Hypers, k: tf.Tensor, begin: tf.Tensor, discount: float):
        super().__init__(problem, hypers, k)
        self._begin, self._discount = begin, discount

    def back(self, carry: tuple[Sequence[Cost], Nest], state: Nest, t: tf.Tensor) -> tuple[list[Cost], Nest]:
        """From alpha_{t+1} to alpha_t, through the step from s_t."""
        costs, new = carry
        costs = pull_back(self._phi(t, new), state, self.hypers, costs)
        if self._discount != 1:
            costs = [cost._replace(state=nest.map(lambda alpha: self._discount * alpha, cost.state)) for cost in costs]
        # The running cost at the window's first state belongs to the previous window; at time 0 there is none.
        return self._running(tf.where(t == self._begin, 0, t), state, costs), () if self.replay is None else state


def _initialised(problem: Problem, params: Nest, hypers: Hypers) -> tuple[Nest, Nest]:
    """s_0, and the params if it depends on the hypers."""
    with tf.GradientTape() as tape:
        tape.watch(hypers)
        state = problem.dynamics.init(params, hypers)
    derivatives = tape.gradient(nest.flatten(state), dict(hypers))
    return state, () if all(d is None for d in derivatives.values()) else params


def _with_initialisation(
    problem: Problem, carry: WindowCarry, hypers: Hypers, costs: Sequence[Cost]
) -> dict[str, tf.Tensor]:
    """The hypergradient of a window; that of the first one includes the derivative of the initialisation."""
    grads = {name: grad for cost in costs for name, grad in cost.hypers.items()}
    if nest.flatten(carry.params):
        first = pull_back(lambda _, hypers: problem.dynamics.init(carry.params, hypers), (), hypers, costs)
        whole = {name: grad for cost in first for name, grad in cost.hypers.items()}
        grads = {name: tf.where(carry.t == 0, whole[name], grads[name]) for name in grads}
    return {name: grads[name] for name in hypers}

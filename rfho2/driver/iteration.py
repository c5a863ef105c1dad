"""One hyper-iteration as one pure function, and several of them in one loop that is compiled.

A loop of any length is the same program, with the number of hyper-iterations as a tensor, so that its length never changes
a result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rfho2.core import loops, nest, rows
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.driver.run_state import LastGood
from rfho2.hypergradients.method import Method

FINE, NOT_FINITE, SPOILED = 0, 1, 2
"""The outcome of a hyper-iteration: success; a value or hypergradient that is not finite or exceeds its limit; or an
optimiser's state that is not finite, although the hypergradient is."""

SMALLEST = float(np.finfo(np.float32).tiny)  # the least number that hypergradients are divided by
MOST = 64  # hyper-iterations in a call
ROWS = 2**22  # bytes of hypers and hypergradients that a call may return


class Rule(NamedTuple):
    """The rule by which hypers are updated: an update, the clipping before it, and the number that decides which is best.

    `growth` is how many times as long as the longest one so far a hypergradient may be.
    """

    update: Callable[[Hypers, Nest, Hypers], tuple[dict[str, tf.Tensor], Nest]]
    relative: bool
    clip: float | None
    best_by: str
    growth: float = np.inf


class Extremes(NamedTuple):
    """The lowest value of the objective so far, its largest absolute value, and the length of the longest hypergradient."""

    lowest: tf.Tensor
    largest: tf.Tensor
    longest: tf.Tensor


class Candidate(NamedTuple):
    """The best hyper-iteration so far; its score is NaN if there is none yet."""

    hypers: dict[str, tf.Tensor]
    state: Nest
    score: tf.Tensor
    iteration: tf.Tensor


class Progress(NamedTuple):
    """The values that one hyper-iteration passes on to the next.

    `carry` is () if every training starts afresh, and otherwise `state` is (), because the carry has it.
    """

    carry: Any
    hypers: dict[str, tf.Tensor]
    opt_state: Nest
    state: Nest
    best: Candidate
    good: LastGood
    extremes: Extremes


class Report(NamedTuple):
    """A hyper-iteration as it is reported: its hypers, their hypergradient without the state, and the numbers of a row."""

    hypers: dict[str, tf.Tensor]
    hypergradient: HyperGradient
    numbers: dict[str, tf.Tensor]


class HyperStep(NamedTuple):
    """The update that ends a hyper-iteration: the new hypers, the hypergradient as it was used, and the outcome."""

    hypers: dict[str, tf.Tensor]
    opt_state: Nest
    used: dict[str, tf.Tensor]
    numbers: dict[str, tf.Tensor]
    extremes: Extremes
    outcome: tf.Tensor


def take_hyper_step(
    rule: Rule, hypergradient: HyperGradient, hypers: Hypers, opt_state: Nest, extremes: Extremes, limit: tf.Tensor
) -> HyperStep:
    """Clips the hypergradient, updates the hypers, and checks that all of it is finite."""
    numbers = rows.numbers(hypers, hypergradient)
    if rule.best_by not in numbers:
        raise unknown_score(rule.best_by, numbers)
    value = numbers["value"]
    length, longest = functools.reduce(tf.maximum, rows.lengths(numbers)), extremes.longest
    lowest, largest = tf.minimum(extremes.lowest, value), tf.maximum(extremes.largest, tf.abs(value))
    extremes = Extremes(lowest, largest, tf.maximum(longest, length))
    used = dict(hypergradient.grads) if rule.clip is None else _clipped(hypergradient.grads, rule.clip)
    if rule.relative:
        used = _relative(used, value, extremes)
    within = ~(value > limit) & ~((longest > 0) & (length > rule.growth * longest))
    sound = _finite((value, hypergradient.value, hypergradient.grads)) & within
    if tf.executing_eagerly() and not sound:  # a user's optimiser, which may use NumPy, is never called with NaN
        return HyperStep(dict(hypers), opt_state, used, numbers, extremes, tf.constant(NOT_FINITE))
    new, after = rule.update(used, opt_state, hypers)
    # Adam squares the hypergradient: an overflow would stop it for good. A state that is infinite by design was so before.
    unspoiled = _finite((new, after)) | ~_finite(opt_state)
    outcome = tf.where(sound, tf.where(unspoiled, FINE, SPOILED), NOT_FINITE)
    return HyperStep(new, after, used, numbers, extremes, outcome)


def hyper_iteration(method: Method, rule: Rule, afresh: bool) -> Callable[..., tuple[Progress, Report, tf.Tensor]]:
    """(progress, params, k, limit, streamed) -> (progress, report, outcome) of hyper-iteration k."""

    def iterate(
        now: Progress, params: Nest, k: tf.Tensor, limit: tf.Tensor, streamed: Nest
    ) -> tuple[Progress, Report, tf.Tensor]:
        start = params if afresh else now.carry
        hypergradient, carry = method.advance(start, now.hypers, k, streamed)
        step = take_hyper_step(rule, hypergradient, now.hypers, now.opt_state, now.extremes, limit)
        state = hypergradient.state if afresh else carry.state
        score = step.numbers[rule.best_by]
        better = (score < now.best.score) | tf.math.is_nan(now.best.score)
        best = _where(better, Candidate(now.hypers, state, score, k), now.best)
        good = LastGood(now.hypers, now.opt_state, step.used)
        carried = ((), state) if afresh else (carry, ())
        after = Progress(carried[0], step.hypers, step.opt_state, carried[1], best, good, step.extremes)
        report = Report(now.hypers, hypergradient._replace(state=()), step.numbers)
        return _where(step.outcome == FINE, after, now), report, step.outcome

    return iterate


def several(iterate: Callable[..., tuple[Progress, Report, tf.Tensor]]) -> Callable[..., Any]:
    """(progress, params, k, n, limit, streamed) -> (progress, reports, count, outcome) of hyper-iterations k..k+n-1.

    It stops at the first one that fails; `count` is the number before it. The reports, including that of the failed one, lie
    along a new first axis.
    """

    def run(
        now: Progress, params: Nest, k: tf.Tensor, n: tf.Tensor, limit: tf.Tensor, streamed: Nest
    ) -> tuple[Progress, Report, tf.Tensor, tf.Tensor]:
        k, n = loops.unknown((k, n))  # otherwise XLA would compile again for other values

        # A separate function, so that the slots for reports can be made without tracing a hyper-iteration twice.
        @tf.function(autograph=False)
        def one(now: Progress, k: tf.Tensor) -> tuple[Progress, Report, tf.Tensor]:
            return iterate(now, params, k, limit, streamed)

        _, example, _ = one.get_concrete_function(now, tf.TensorSpec([], tf.int32)).structured_outputs

        def unfinished(carry: Nest) -> tf.Tensor:
            i, _, _, outcome = carry
            return (i < n) & (outcome == FINE)

        def body(carry: Nest) -> Nest:
            i, now, slots, _ = carry
            now, report, outcome = one(now, k + i)
            return tf.where(outcome == FINE, i + 1, i), now, loops.write_slot(slots, i, report), outcome

        start = (tf.constant(0), now, loops.slots_for(example, most(now.hypers)), tf.constant(FINE))
        count, now, slots, outcome = loops.repeat(unfinished, body, start)
        return now, loops.stack_slots(slots, example), count, outcome

    return run


def unknown_score(best_by: str, numbers: Iterable[str]) -> ValueError:
    """The error for a `best_by` that is not in the history."""
    return ValueError(f"best_by is '{best_by}', which is not in the history; choose one of {sorted(numbers)}.")


def most(hypers: Hypers) -> int:
    """The largest number of hyper-iterations in a call, limited by the memory for their hypers and hypergradients."""
    size = sum(2 * leaf.dtype.size * leaf.shape.num_elements() for leaf in hypers.values())
    return max(1, min(MOST, ROWS // max(1, size)))


def _where(condition: tf.Tensor, if_true: Nest, if_false: Nest) -> Nest:
    return nest.map(lambda a, b: tf.where(condition, a, b), if_true, if_false)


def _finite(arrays: Nest) -> tf.Tensor:
    """Whether every entry of the floating leaves is finite."""
    floating = [leaf for leaf in map(tf.convert_to_tensor, nest.flatten(arrays)) if leaf.dtype.is_floating]
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(leaf)) for leaf in floating] or True)


def _clipped(grads: Hypers, norm: float) -> dict[str, tf.Tensor]:
    """The hypergradients, scaled down if their norm over all hypers exceeds `norm`."""
    # In float64: the square of a float32 above 1e19 is infinite.
    whole = nest.norm([tf.cast(grad, tf.float64) for grad in grads.values()])
    factor = tf.where(whole <= norm, tf.ones_like(whole), norm / whole)
    return {name: grad * tf.cast(factor, grad.dtype) for name, grad in grads.items()}


def _relative(grads: Hypers, value: tf.Tensor, extremes: Extremes) -> dict[str, tf.Tensor]:
    """The hypergradients as relative changes of the objective.

    An objective that has been 0 or less is compared with its largest size, because it may pass through 0 again.
    """
    size = tf.maximum(tf.where(extremes.lowest > 0, value, extremes.largest), SMALLEST)
    return {name: grad / tf.cast(size, grad.dtype) for name, grad in grads.items()}

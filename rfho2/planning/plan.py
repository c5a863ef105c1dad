"""Predicts the time and memory of each engine from short timed runs, and picks the fastest one that fits."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tqdm import tqdm

from rfho2.batches import Stream
from rfho2.core import nest
from rfho2.core.errors import check_count
from rfho2.core.types import Hypers, Nest
from rfho2.hypergradients.binomial import fewest_slots, steps_run
from rfho2.hypergradients.engine import MethodEngine
from rfho2.hypergradients.forward import forward
from rfho2.hypergradients.implicit import implicit
from rfho2.hypergradients.real_time import real_time
from rfho2.hypergradients.reverse import reverse
from rfho2.hypergradients.sensitivity import balanced_chunk, count_columns
from rfho2.planning.peaks import free
from rfho2.planning.timing import Measured, time_forward, time_implicit, time_reverse, time_training, time_windows
from rfho2.problem import Problem

FEW = 4  # states that any engine holds besides the saved ones: old, new, adjoint, gradient
SOLVING = 8  # states that an implicit hypergradient holds: the vectors of the solver
RUNS = (2, 3, 4, 6)  # how often the listed checkpointed choices run each step
UNITS = ("", "k", "m", "g", "t")


class Choice(NamedTuple):
    """An engine with its settings, and the predicted cost of one hypergradient; `version` names the problem, if several."""

    method: str
    settings: dict[str, Any]
    seconds: float
    bytes: float
    version: str | None = None

    def build(self, problem: Problem | Mapping[str, Problem]) -> MethodEngine:
        """The engine with these settings."""
        make: dict[str, Callable[..., MethodEngine]] = {
            "reverse": reverse,
            "forward": forward,
            "implicit": implicit,
            "real_time": real_time,
        }
        one = problem[str(self.version)] if isinstance(problem, Mapping) else problem
        return make[self.method](one, **self.settings)

    def __str__(self) -> str:
        problem = "problem" if self.version is None else f"problem[{self.version!r}]"
        return f"rf.{self.method}({', '.join([problem, *(f'{name}={value!r}' for name, value in self.settings.items())])})"


class Plan(NamedTuple):
    """The result of `plan`; print it.

    Attributes:
      choices: all engines considered, the fastest first.
      chosen: the fastest that fits into the memory, or the smallest if none does.
      memory: the bytes available.
      reason: why it was chosen, in words.
      measured: seconds of one step, of one step with its pull-back, and of one step with a push-forward of `columns`.
    """

    choices: list[Choice]
    chosen: Choice
    memory: float
    reason: str
    measured: dict[str, float]

    def __str__(self) -> str:
        width = max(len(str(choice)) for choice in self.choices)
        lines = [f"{'':<{width}}  {'seconds':>10}  {'memory':>9}"]
        for choice in self.choices:
            fits = "" if choice.bytes <= self.memory else "  too much"
            lines.append(f"{choice!s:<{width}}  {choice.seconds:>10.3g}  {_readable(choice.bytes):>9}{fits}")
        return "\n".join([*lines, self.reason])


def plan(
    problem: Problem | Mapping[str, Problem],
    params: Nest,
    hypers: Hypers,
    memory: float | str | None = None,
    solved: bool = False,
    hyper_batch: int | None = None,
) -> Plan:
    """Predicts time and memory of reverse, checkpointed reverse and forward for one hypergradient, and picks one.

    Plain training, reverse mode and one chunk of forward mode are compiled and timed over a few steps. Compiling takes most
    of the time, seconds for a small model and minutes for a large one; in a terminal, a bar shows the progress.

    Let a step take a seconds, a step with its pull-back b, a step with a push of n columns of Z c, and let a state have S
    bytes. Then:

    reverse: T b seconds and T S bytes, or less where the compiler drops parts of the states.
    reverse with checkpoints=k: T b + (F - T) a seconds and k S bytes, where F is the number of forward steps.
    forward: ceil(m / n) T c seconds and 2 n S bytes.
    implicit, if `solved`: T a + the solution of one linear system seconds, and 8 S bytes.
    real time in reverse mode, if `hyper_batch`: as reverse, with T = `hyper_batch`.

    Seconds and bytes that do not depend on T are measured in the short runs and added. Bytes are those of the GPU if there
    is one, and otherwise of main memory. The graph and the compiled code, tens of MB, are not counted. Forward mode is left
    out where it fails, and the plan says why.

    Args:
      problem: with its `steps`, unless `hyper_batch` is given. Several versions of it, such as one with `rf.recompute` and
        one without, can be compared as a dict {name: problem}; they have the same params.
      params, hypers: as passed to an engine.
      memory: bytes, or a text such as "2GB"; half of the free memory by default.
      solved: whether the training ends at a solution, so that `rf.implicit` is a choice too. By default it is not, because
        away from a solution it computes a different derivative.
      hyper_batch: plans `rf.real_time(problem, hyper_batch, mode="reverse")` instead, with all states of a window saved or
        fewer.

    >>> import rfho2 as rf
    >>> loss = lambda w, hypers, batch: 0.5 * w**2
    >>> problem = rf.Problem(rf.gradient_descent(loss, "lr"), loss, steps=50)
    >>> result = rf.plan(problem, 1.0, {"lr": 0.1}, memory="1GB")
    >>> result.chosen in result.choices
    True
    """
    versions = dict(problem) if isinstance(problem, Mapping) else {None: problem}
    for each in versions.values():
        check_steps(each, hyper_batch)
    room, choices, measured, notes = parse_bytes(memory), [], {}, ""
    for name, each in versions.items():
        if hyper_batch is None:
            listed, measured[name], note = _trainings(each, params, hypers, room, solved)
        else:
            listed, measured[name], note = _windows(each, params, hypers, room, hyper_batch)
        choices += [choice._replace(version=name) for choice in listed]
        notes += note
    choices.sort(key=lambda choice: choice.seconds)
    fitting = [choice for choice in choices if choice.bytes <= room]
    chosen = fitting[0] if fitting else min(choices, key=lambda choice: choice.bytes)
    return Plan(choices, chosen, room, _reason(chosen, choices, room) + notes, measured[chosen.version])


Listed = tuple[list[Choice], dict[str, float], str]
"""Choices for one problem, what was measured, and a sentence about what is left out."""


def _trainings(problem: Problem, params: Nest, hypers: Hypers, room: float, solved: bool) -> Listed:
    """Engines that differentiate a whole training."""
    assert problem.steps is not None
    params, hypers = reverse(problem).validated(params, hypers)
    state = _bytes(problem.dynamics.init(params, hypers))
    fit = max(1, int(room / (2 * state)))  # the number of states that the short runs may hold
    m = count_columns(hypers)
    columns = min(balanced_chunk(m), fit) if m else 0
    with _bar(2 + bool(m) + solved) as bar:
        step = time_training(problem, params, hypers)
        bar.update()
        back = time_reverse(problem, params, hypers, step.step, min(problem.steps, fit), state)
        bar.update()
        push, note = None, ""
        try:
            push = time_forward(problem, params, hypers, step.step, columns) if m else None
        except Exception as error:  # accumulators fail in loops, with errors of many kinds; reverse mode ran
            first_line = (str(error).strip() or repr(error)).splitlines()[0]
            note = f" rf.forward(problem) is left out, because it fails: {first_line}"
        bar.update()
        system = time_implicit(problem, params, hypers, step.step) if solved else None
    choices = _reverse_choices(problem.steps, state, room, step, back, "reverse", {})
    choices += _forward_choices(problem.steps, state, room, step, push, m, columns) if push else []
    if system:
        held = max(system.bytes, SOLVING * state)
        choices.append(Choice("implicit", {}, system.start + problem.steps * system.step, held))
    measured = {"step": step.step, "pull-back": back.step, "push-forward": push.step if push else 0.0, "columns": columns}
    return choices, measured, note


def _windows(problem: Problem, params: Nest, hypers: Hypers, room: float, hyper_batch: int) -> Listed:
    """Real time in reverse mode."""
    problem = dataclasses.replace(problem, steps=hyper_batch)
    params, hypers = reverse(problem).validated(params, hypers)
    state = _bytes(problem.dynamics.init(params, hypers))
    with _bar(2) as bar:
        step = time_training(problem, params, hypers)
        bar.update()
        back = time_windows(problem, params, hypers, step.step, max(1, int(room / (2 * state))), state)
    settings = {"hyper_batch": hyper_batch, "mode": "reverse"}
    choices = _reverse_choices(hyper_batch, state, room, step, back, "real_time", settings)
    return choices, {"step": step.step, "pull-back": back.step}, ""


def _bar(total: int) -> Any:
    return tqdm(total=total, desc="rf.plan compiles", unit="run", leave=False, disable=None)


def _bytes(state: Nest) -> int:
    return sum(leaf.dtype.size * leaf.shape.num_elements() for leaf in nest.flatten(state))


def _reverse_choices(
    steps: int, state: int, room: float, step: Measured, back: Measured, method: str, settings: dict[str, Any]
) -> list[Choice]:
    fixed = max(back.bytes, FEW * state)
    seconds = back.start + steps * back.step

    def checkpointed(slots: int) -> Choice:
        again = steps_run(steps, slots) - steps
        fewer = settings | {"checkpoints": slots}
        return Choice(method, fewer, seconds + again * step.step, slots * state + fixed)

    most = int((room - fixed) / state)  # slots that fit into memory
    slots = {1, *(fewest_slots(steps, runs) for runs in RUNS), max(most, 1)}
    return [
        Choice(method, settings, seconds, steps * back.state_bytes + fixed),
        *(checkpointed(c) for c in sorted(slots) if c < steps),
    ]


def _forward_choices(
    steps: int, state: int, room: float, step: Measured, push: Measured, m: int, columns: int
) -> list[Choice]:
    fixed = max(push.bytes - 2 * columns * state, FEW * state)
    each = max(push.step - step.step, 0.0) / columns  # seconds that one column adds to a training step

    def chunked(chunk: int, settings: dict[str, int]) -> Choice:
        seconds = -(-m // chunk) * (push.start + steps * (step.step + chunk * each))
        return Choice("forward", settings, seconds, fixed + 2 * chunk * state)

    usual = balanced_chunk(m)
    most = min(usual, int((room - fixed) / (2 * state)))  # columns that fit into memory
    fewer = [chunked(most, {"chunk": most})] if 1 <= most < usual else []
    return [chunked(usual, {}), *fewer]


def _reason(chosen: Choice, choices: list[Choice], room: float) -> str:
    if chosen.bytes > room:
        return f"Chosen: {chosen}, the smallest, although nothing fits in {_readable(room)}."
    text = f"Chosen: {chosen}, the fastest that fits in {_readable(room)}."
    if choices[0] is not chosen:
        text += f" {choices[0]} would take {choices[0].seconds:.3g} s and {_readable(choices[0].bytes)}."
    return text


def check_steps(problem: Problem, hyper_batch: int | None = None) -> None:
    """Requires what planning needs: a number of steps, and batches that can be read more than once."""
    if hyper_batch is not None:
        check_count("hyper_batch", hyper_batch)
    elif problem.steps is None:
        raise ValueError(
            "steps is None: a run without an end cannot be planned. Pass hyper_batch=n to plan rf.real_time with windows of "
            "n steps."
        )
    if isinstance(problem.batches, Stream):
        raise ValueError(
            "batches is a stream, which planning would read from. Plan with some of its batches: "
            "rf.batches.cached(dataset, steps=4)."
        )


def parse_bytes(memory: float | str | None) -> float:
    """ "2GB" -> 2e9; None -> half of the free memory."""
    if memory is None:
        return free() / 2
    match = re.fullmatch(r"\s*(\d+\.?\d*(?:e\d+)?)\s*([kmgt]?)(i?)b?\s*", str(memory).lower())
    number = math.nan
    if match:
        number = float(match.group(1)) * (1024 if match.group(3) else 1000) ** UNITS.index(match.group(2))
    if not 0 < number < math.inf:
        raise ValueError(f'memory is {memory!r}; pass a number of bytes, or a text such as "2GB" or "500MB".')
    return number


def _readable(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"

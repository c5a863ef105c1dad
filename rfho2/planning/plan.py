"""Predicts the time and memory of each engine from short timed runs, and picks the fastest one that fits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from tqdm import tqdm

from rfho2.core import nest
from rfho2.core.types import Hypers, Nest
from rfho2.hypergradients.binomial import fewest_slots, steps_run
from rfho2.hypergradients.engine import MethodEngine
from rfho2.hypergradients.forward import forward
from rfho2.hypergradients.implicit import implicit
from rfho2.hypergradients.reverse import reverse
from rfho2.hypergradients.sensitivity import balanced_chunk, count_columns
from rfho2.planning.memory import free
from rfho2.planning.timing import Measured, time_forward, time_implicit, time_reverse, time_training
from rfho2.problem import Problem

FEW = 4  # states that any engine holds besides the saved ones: old, new, adjoint, gradient
SOLVING = 8  # states that an implicit hypergradient holds: the vectors of the solver
RUNS = (2, 3, 4, 6)  # how often the listed checkpointed choices run each step
UNITS = ("", "k", "m", "g", "t")


class Choice(NamedTuple):
    """An engine with its settings, and the predicted cost of one hypergradient."""

    method: str
    settings: dict[str, int]
    seconds: float
    bytes: float

    def build(self, problem: Problem) -> MethodEngine:
        """The engine with these settings."""
        make: dict[str, Callable[..., MethodEngine]] = {"reverse": reverse, "forward": forward, "implicit": implicit}
        return make[self.method](problem, **self.settings)

    def __str__(self) -> str:
        return f"rf.{self.method}({', '.join(['problem', *(f'{name}={value}' for name, value in self.settings.items())])})"


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


def plan(problem: Problem, params: Nest, hypers: Hypers, memory: float | str | None = None, solved: bool = False) -> Plan:
    """Predicts time and memory of reverse, checkpointed reverse and forward for one hypergradient, and picks one.

    Plain training, reverse mode and one chunk of forward mode are compiled and timed over a few steps. Compiling takes most
    of the time, seconds for a small model and minutes for a large one; in a terminal, a bar shows the progress.

    Let a step take a seconds, a step with its pull-back b, a step with a push of n columns of Z c, and let a state have S
    bytes. Then:

    reverse: T b seconds and T S bytes, or less where the compiler drops parts of the states.
    reverse with checkpoints=k: T b + (F - T) a seconds and k S bytes, where F is the number of forward steps.
    forward: ceil(m / n) T c seconds and 2 n S bytes.
    implicit, if `solved`: T a + the solution of one linear system seconds, and 8 S bytes.

    Seconds and bytes that do not depend on T are measured in the short runs and added. The graph and the compiled code, tens
    of MB, are not counted.

    Args:
      problem: with its `steps`.
      params, hypers: as passed to an engine.
      memory: bytes, or a text such as "2GB"; half of the free main memory by default.
      solved: whether the training ends at a solution, so that `rf.implicit` is a choice too. By default it is not, because
        away from a solution it computes a different derivative.

    >>> import rfho2 as rf
    >>> loss = lambda w, hypers, batch: 0.5 * w**2
    >>> problem = rf.Problem(rf.gradient_descent(loss, "lr"), loss, steps=50)
    >>> result = rf.plan(problem, 1.0, {"lr": 0.1}, memory="1GB")
    >>> result.chosen in result.choices
    True
    """
    check_steps(problem)
    assert problem.steps is not None
    room = parse_bytes(memory)
    params, hypers = reverse(problem).validated(params, hypers)
    state = sum(leaf.dtype.size * leaf.shape.num_elements() for leaf in nest.flatten(problem.dynamics.init(params, hypers)))
    fit = max(1, int(room / (2 * state)))  # the number of states that the short runs may hold
    m = count_columns(hypers)
    columns = min(balanced_chunk(m), fit) if m else 0
    with tqdm(total=2 + bool(m) + solved, desc="rf.plan compiles", unit="run", leave=False, disable=None) as bar:
        step = time_training(problem, params, hypers)
        bar.update()
        back = time_reverse(problem, params, hypers, step.step, min(problem.steps, fit), state)
        bar.update()
        push = time_forward(problem, params, hypers, step.step, columns) if m else None
        bar.update()
        system = time_implicit(problem, params, hypers, step.step) if solved else None
    choices = _reverse_choices(problem.steps, state, room, step, back)
    choices += _forward_choices(problem.steps, state, room, step, push, m, columns) if push else []
    if system:
        held = max(system.bytes, SOLVING * state)
        choices.append(Choice("implicit", {}, system.start + problem.steps * system.step, held))
    choices.sort(key=lambda choice: choice.seconds)
    fitting = [choice for choice in choices if choice.bytes <= room]
    chosen = fitting[0] if fitting else min(choices, key=lambda choice: choice.bytes)
    measured = {"step": step.step, "pull-back": back.step, "push-forward": push.step if push else 0.0, "columns": columns}
    return Plan(choices, chosen, room, _reason(chosen, choices, room), measured)


def _reverse_choices(steps: int, state: int, room: float, step: Measured, back: Measured) -> list[Choice]:
    fixed = max(back.bytes, FEW * state)
    seconds = back.start + steps * back.step

    def checkpointed(slots: int) -> Choice:
        again = steps_run(steps, slots) - steps
        return Choice("reverse", {"checkpoints": slots}, seconds + again * step.step, slots * state + fixed)

    most = int((room - fixed) / state)  # slots that fit into memory
    slots = {1, *(fewest_slots(steps, runs) for runs in RUNS), max(most, 1)}
    return [
        Choice("reverse", {}, seconds, steps * back.state_bytes + fixed),
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


def check_steps(problem: Problem) -> None:
    """Requires the number of steps, which planning needs."""
    if problem.steps is None:
        raise ValueError("steps is None: a run without an end cannot be planned; use rf.real_time.")


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

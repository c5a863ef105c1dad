"""Which engine, and what it will cost: short runs are timed, long ones predicted, the fastest that fits is taken."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from rfho2.core import nest
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.hypergradients import Engine, forward, reverse
from rfho2.hypergradients.binomial import fewest_slots, steps_run
from rfho2.hypergradients.engine import Norms, Probe
from rfho2.hypergradients.forward import balanced, count
from rfho2.planning.memory import free
from rfho2.planning.timing import Measured, time_forward, time_reverse, time_training
from rfho2.problem import Problem

FEW = 4  # states that any engine has at hand, kept ones aside: old, new, adjoint, gradient
RUNS = (2, 3, 4, 6)  # through each step, of the checkpointed choices that are shown
UNITS = ("", "k", "m", "g", "t")


class Choice(NamedTuple):
    """An engine with its settings, and the predicted cost of one hypergradient."""

    method: str
    settings: dict[str, int]
    seconds: float
    bytes: float

    def build(self, problem: Problem) -> Engine:
        """The engine."""
        make: Callable[..., Engine] = reverse if self.method == "reverse" else forward
        return make(problem, **self.settings)

    def __str__(self) -> str:
        return f"rf.{self.method}({', '.join(['problem', *(f'{name}={value}' for name, value in self.settings.items())])})"


class Plan(NamedTuple):
    """What `plan` found; print it.

    Attributes:
      choices: all that were considered, the fastest first.
      chosen: the fastest that fits in the memory (or the smallest, if none does).
      memory: the bytes that it has to fit in.
      reason: in words.
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


def plan(problem: Problem, params: Nest, hypers: Hypers, memory: float | str | None = None) -> Plan:
    """Predicts time and memory of reverse, checkpointed reverse and forward for one hypergradient, and picks one.

    Plain training, reverse and one chunk of forward are compiled and timed over few steps. With a, b, c seconds for a step,
    a step with its pull-back, and a step with a push of n columns of Z, and states of S bytes:

    reverse: T b and T S, or less where the compiler drops parts of the states.  checkpoints=k: T b + (F - T) a and k S,
    where F counts the steps run.  forward: ceil(m / n) T c and 2 n S.  To these come seconds and bytes that do not depend on
    T, seen in the short runs. Graph and code, tens of MB, are not counted.

    Args:
      problem: with its `steps`.
      params, hypers: as an engine gets them.
      memory: bytes, or such as "2GB"; by default half of the main memory that is free now.

    >>> import rfho2 as rf
    >>> loss = lambda w, hypers, batch: 0.5 * w**2
    >>> problem = rf.Problem(rf.gradient_descent(loss, "lr"), loss, steps=50)
    >>> found = rf.plan(problem, 1.0, {"lr": 0.1}, memory="1GB")
    >>> found.chosen in found.choices
    True
    """
    _check_end(problem)
    assert problem.steps is not None
    room = _bytes(memory)
    params, hypers = Probe(problem)(params, hypers)
    state = sum(leaf.dtype.size * leaf.shape.num_elements() for leaf in nest.flatten(problem.dynamics.init(params, hypers)))
    fit = max(1, int(room / (2 * state)))  # states that the short runs may hold
    m = count(hypers)
    columns = min(balanced(m), fit) if m else 0
    step = time_training(problem, params, hypers)
    back = time_reverse(problem, params, hypers, step.step, min(problem.steps, fit), state)
    push = time_forward(problem, params, hypers, step.step, columns) if m else None
    choices = _reverse_choices(problem.steps, state, room, step, back)
    choices += _forward_choices(problem.steps, state, room, step, push, m, columns) if push else []
    choices.sort(key=lambda choice: choice.seconds)
    fitting = [choice for choice in choices if choice.bytes <= room]
    chosen = fitting[0] if fitting else min(choices, key=lambda choice: choice.bytes)
    measured = {"step": step.step, "pull-back": back.step, "push-forward": push.step if push else 0.0, "columns": columns}
    return Plan(choices, chosen, room, _reason(chosen, choices, room), measured)


def auto(problem: Problem, memory: float | str | None = None) -> AutoEngine:
    """An engine that plans at its first call, and then is the one chosen; `engine.plan` says which and why.

    Times are measured, so that a run that is resumed may choose differently where two choices cost about the same; their
    hypergradients agree to rounding. Where the same bits are wanted, print the plan once and write down the engine.

    Args:
      problem: what to differentiate.
      memory: bytes, or such as "2GB"; by default half of what is free at the first call.
    """
    _check_end(problem)
    _bytes(memory)
    return AutoEngine(problem, memory)


class AutoEngine:
    """See `auto`."""

    def __init__(self, problem: Problem, memory: float | str | None):
        self.problem = problem
        self.plan: Plan | None = None
        self.settings: dict[str, Any] = {"method": "auto", "memory": memory, "steps": problem.steps}
        self._engine: Engine | None = None

    @property
    def jit_compiled(self) -> bool:
        """Whether XLA compiles it; known after the first call."""
        return self._engine is None or self._engine.jit_compiled

    @property
    def norms(self) -> Norms:
        """Those of the engine that was chosen."""
        return getattr(self._engine, "norms", {})

    def _chosen(self, params: Nest, hypers: Hypers) -> Engine:
        if self._engine is None:
            self.plan = plan(self.problem, params, hypers, self.settings["memory"])
            self._engine = self.plan.chosen.build(self.problem)
        return self._engine

    def __call__(self, params: Nest, hypers: Hypers, k: int = 0) -> HyperGradient:
        """The hypergradient of training from `params` with `hypers`; k picks the validation batch."""
        return self._chosen(params, hypers)(params, hypers, k)

    def start(self, params: Nest, hypers: Hypers) -> Nest:
        """The params: every hyper-iteration starts from them again."""
        return self._chosen(params, hypers).start(params, hypers)

    def advance(self, carry: Nest, hypers: Hypers, k: int) -> tuple[HyperGradient, Nest]:
        """Hyper-iteration k."""
        return self._chosen(carry, hypers).advance(carry, hypers, k)

    def initial_state(self, params: Nest, hypers: Hypers) -> Nest:
        """s_0."""
        return self._chosen(params, hypers).initial_state(params, hypers)


def _reverse_choices(steps: int, state: int, room: float, step: Measured, back: Measured) -> list[Choice]:
    fixed = max(back.bytes, FEW * state)
    seconds = back.start + steps * back.step

    def kept(slots: int) -> Choice:
        again = steps_run(steps, slots) - steps
        return Choice("reverse", {"checkpoints": slots}, seconds + again * step.step, slots * state + fixed)

    most = int((room - fixed) / state)  # slots that fit
    slots = {1, *(fewest_slots(steps, runs) for runs in RUNS), max(most, 1)}
    return [Choice("reverse", {}, seconds, steps * back.kept + fixed), *(kept(c) for c in sorted(slots) if c < steps)]


def _forward_choices(
    steps: int, state: int, room: float, step: Measured, push: Measured, m: int, columns: int
) -> list[Choice]:
    fixed = max(push.bytes - 2 * columns * state, FEW * state)
    each = max(push.step - step.step, 0.0) / columns  # seconds of a step that a column adds to the training

    def chunked(chunk: int, settings: dict[str, int]) -> Choice:
        seconds = -(-m // chunk) * (push.start + steps * (step.step + chunk * each))
        return Choice("forward", settings, seconds, fixed + 2 * chunk * state)

    usual = balanced(m)
    most = min(usual, int((room - fixed) / (2 * state)))  # columns that fit
    fewer = [chunked(most, {"chunk": most})] if 1 <= most < usual else []
    return [chunked(usual, {}), *fewer]


def _reason(chosen: Choice, choices: list[Choice], room: float) -> str:
    if chosen.bytes > room:
        return f"Chosen: {chosen}, the smallest, though nothing fits in {_readable(room)}."
    text = f"Chosen: {chosen}, the fastest that fits in {_readable(room)}."
    if choices[0] is not chosen:
        text += f" {choices[0]} would take {choices[0].seconds:.3g} s and {_readable(choices[0].bytes)}."
    return text


def _check_end(problem: Problem) -> None:
    if problem.steps is None:
        raise ValueError("steps is None: a run without end has nothing to plan; rf.real_time is the engine for it.")


def _bytes(memory: float | str | None) -> float:
    """ "2GB" -> 2e9; None -> half of what is free."""
    if memory is None:
        return free() / 2
    match = re.fullmatch(r"\s*(\d+\.?\d*(?:e\d+)?)\s*([kmgt]?)(i?)b?\s*", str(memory).lower())
    number = math.nan
    if match:
        number = float(match.group(1)) * (1024 if match.group(3) else 1000) ** UNITS.index(match.group(2))
    if not 0 < number < math.inf:
        raise ValueError(f'memory is {memory!r}; pass a number of bytes, or such as "2GB" or "500MB".')
    return number


def _readable(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"

"""Which engine, and what it will cost: short runs are timed, long ones predicted, the fastest that fits is taken."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from rfho2 import loops, nest
from rfho2.hypergradients import Engine, forward, reverse
from rfho2.hypergradients.checkpointing import fewest_slots, steps_run
from rfho2.hypergradients.compiled import Compiled
from rfho2.hypergradients.engine import Probe
from rfho2.hypergradients.forward import TOGETHER, count
from rfho2.problem import Problem
from rfho2.types import HyperGradient, Hypers, Nest

SECONDS = 0.3  # that a timed run should take, so that the call itself does not count
ROUNDS = 3
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


class Measured(NamedTuple):
    """Seconds a step, and the bytes that a call needed, of an engine that ran so many steps."""

    seconds: float
    bytes: float
    steps: int


def plan(problem: Problem, params: Nest, hypers: Hypers, memory: float | str | None = None) -> Plan:
    """Predicts time and memory of reverse, checkpointed reverse and forward for one hypergradient, and picks one.

    Plain training, reverse and forward are compiled and timed over few steps (some seconds in all). With a, b, c seconds for
    a step, a step with its pull-back, and a step with a push of n columns of Z, and states of S bytes:

    reverse: T b and T S.  checkpoints=k: T b + (F - T) a and k S, where F counts the steps run.  forward: ceil(m / n) T c,
    and the bytes of the short run, since they do not depend on T.

    Args:
      problem: with its `steps`.
      params, hypers: as an engine gets them.
      memory: bytes, or such as "2GB"; by default half of what is free now.

    >>> import rfho2 as rf
    >>> loss = lambda w, hypers, batch: 0.5 * tf.reduce_sum(w**2)
    >>> problem = rf.Problem(rf.gradient_descent(loss, "lr"), loss, steps=50)
    >>> found = rf.plan(problem, tf.ones(3), {"lr": 0.1}, memory="1GB")
    >>> found.chosen in found.choices
    True
    """
    if problem.steps is None:
        raise ValueError("steps is None: a run without end has nothing to plan; rf.real_time is the engine for it.")
    room = _bytes(memory)
    params, hypers = Probe(problem)(params, hypers)
    state = sum(leaf.dtype.size * leaf.shape.num_elements() for leaf in nest.flatten(problem.dynamics.init(params, hypers)))
    step = _time_training(problem, params, hypers)
    columns = min(TOGETHER, count(hypers))
    back = _time_engine(problem, reverse, params, hypers, 3 * step)
    push = _time_engine(problem, forward, params, hypers, (1 + columns) * step)
    back = back._replace(bytes=max(back.bytes - back.steps * state, FEW * state))
    push = push._replace(bytes=max(push.bytes, (FEW + 2 * columns) * state))
    choices = _choices(problem.steps, count(hypers), state, room, step, back, push)
    fitting = [choice for choice in choices if choice.bytes <= room]
    chosen = fitting[0] if fitting else min(choices, key=lambda choice: choice.bytes)
    measured = {"step": step, "pull-back": back.seconds, "push-forward": push.seconds, "columns": columns}
    return Plan(choices, chosen, room, _reason(chosen, choices, room), measured)


def auto(problem: Problem, memory: float | str | None = None) -> AutoEngine:
    """An engine that plans at its first call, and then is the one chosen; `engine.plan` says which and why.

    Times are measured, so that two runs may choose differently where two choices cost about the same; their hypergradients
    agree to rounding.

    Args:
      problem: what to differentiate.
      memory: bytes, or such as "2GB"; by default half of what is free at the first call.
    """
    if memory is not None:
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


def _choices(steps: int, m: int, state: int, room: float, step: float, back: Measured, push: Measured) -> list[Choice]:
    def kept(slots: int) -> Choice:
        again = steps_run(steps, slots) - steps
        return Choice("reverse", {"checkpoints": slots}, steps * back.seconds + again * step, slots * state + back.bytes)

    most = int((room - back.bytes) / state)  # slots that fit
    slots = {fewest_slots(steps, runs) for runs in RUNS} | ({most} if most >= 1 else set())
    choices = [Choice("reverse", {}, steps * back.seconds, steps * state + back.bytes)]
    choices += [kept(c) for c in sorted(slots) if c < steps]
    columns = min(TOGETHER, m)
    for chunk in {columns, max(1, min(columns, int(columns * room / push.bytes)))}:  # bytes are in proportion to the columns
        seconds = -(-m // chunk) * steps * push.seconds * chunk / columns
        choices.append(
            Choice("forward", {} if chunk == columns else {"chunk": chunk}, seconds, push.bytes * chunk / columns)
        )
    return sorted(choices, key=lambda choice: choice.seconds)


def _reason(chosen: Choice, choices: list[Choice], room: float) -> str:
    if chosen.bytes > room:
        return f"Chosen: {chosen}, the smallest, though nothing fits in {_readable(room)}."
    text = f"Chosen: {chosen}, the fastest that fits in {_readable(room)}."
    if choices[0] is not chosen:
        text += f" {choices[0]} would take {choices[0].seconds:.3g} s and {_readable(choices[0].bytes)}."
    return text


def _time_training(problem: Problem, params: Nest, hypers: Hypers) -> float:
    """Seconds of one step of plain training."""
    step = problem.dynamics.step

    def train(params: Nest, hypers: Hypers, steps: tf.Tensor) -> Nest:
        first = problem.dynamics.init(params, hypers)
        return loops.fold(lambda s, t: step(s, hypers, problem.batch(t), t), first, 0, steps)

    compiled = Compiled(train)
    assert problem.steps is not None
    steps, seconds = 1, 0.0
    while True:
        seconds = _best(lambda n=steps: compiled(params, hypers, tf.constant(n)))  # type: ignore[misc]
        if seconds > SECONDS / 2 or steps >= problem.steps:
            return seconds / steps
        steps = min(problem.steps, 4 * steps)


def _time_engine(
    problem: Problem, build: Callable[[Problem], Engine], params: Nest, hypers: Hypers, guess: float
) -> Measured:
    """An engine measured on the same problem with fewer steps; `guess` is what one may take."""
    assert problem.steps is not None
    running = [term.every for term in problem.terms(hypers) if term.every is not None]
    steps = min(problem.steps, max([2, *running, math.ceil(SECONDS / guess)]))
    engine = build(dataclasses.replace(problem, steps=steps))
    used = _peak(lambda: engine(params, hypers))
    return Measured(_best(lambda: engine(params, hypers)) / steps, used, steps)


def _best(function: Callable[[], Any]) -> float:
    """Seconds of a call: the best of several, after one that may compile."""
    function()
    best = math.inf
    for _ in range(ROUNDS):
        began = time.perf_counter()
        nest.map(lambda x: x.numpy(), function())
        best = min(best, time.perf_counter() - began)
    return best


def _peak(function: Callable[[], Any]) -> int:
    """Bytes of resident memory that a second call adds at its peak; 0 where the system does not tell."""
    function()
    try:
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
        function()
        return resident("VmHWM") - before
    except (OSError, StopIteration):
        return 0


def resident(which: str) -> int:
    """Resident memory of this process in bytes, under Linux: now (VmRSS) or at its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(which)).split()[1]) * 1024


def _bytes(memory: float | str | None) -> float:
    """ "2GB" -> 2e9; None -> half of what is free."""
    if memory is None:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2
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

"""Real time that begins in graph mode and goes on under XLA, whose compilation a short training would not repay."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.hypergradients.engine import Engine, OnlineEngine

GRAPH_STEPS = 500  # before XLA compiles the step, so that output comes at once
WORTH_COMPILING = 1000  # remaining steps; compiling takes 2 to 8 seconds, and a step is some milliseconds faster


class GraphFirst(Engine):
    """An online engine in graph mode for the first steps, and compiled by XLA from then on.

    Where the change comes depends on the number of steps alone, so that a run can be repeated and resumed.

    Args:
      engine: which tries XLA.
      steps: steps of the training.
    """

    def __init__(self, engine: OnlineEngine, steps: int):
        super().__init__(engine.problem, engine.settings)
        self._engine = engine
        self._until = GRAPH_STEPS if steps >= GRAPH_STEPS + WORTH_COMPILING else math.inf
        engine.delay_xla(True)

    def __call__(self, params: Nest, hypers: Hypers, k: int | tf.Tensor = 0) -> HyperGradient:
        """The hypergradient at the end of the first hyper-batch."""
        return self.advance(self.start(params, hypers), hypers, k)[0]

    def initial_state(self, params: Nest, hypers: Hypers) -> Nest:
        """s_0, which has the structure of every state."""
        return self._engine.initial_state(params, hypers)

    def start(self, params: Nest, hypers: Hypers) -> Any:
        """What the first hyper-batch starts from."""
        return self._engine.start(params, hypers)

    def advance(self, carry: Any, hypers: Hypers, k: int | tf.Tensor) -> tuple[HyperGradient, Any]:
        """The next hyper-batch."""
        self._engine.delay_xla(int(carry.t) < self._until)
        return self._engine.advance(carry, hypers, k)

    def forget(self, carry: Any) -> Any:
        """The same training without memory of earlier hypers."""
        return self._engine.forget(carry)

    @property
    def jit_compiled(self) -> bool:
        """Whether XLA compiled the last hyper-batch."""
        return self._engine.jit_compiled

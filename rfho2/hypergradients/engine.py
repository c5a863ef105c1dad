"""What every engine shares: checked inputs, one compiled function, `start` and `advance` for the driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import tensorflow as tf

from rfho2.core import errors, nest
from rfho2.core.compiled import Compiled
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.problem import Problem, probe

Norms = Mapping[str, tf.Tensor]
"""How large what carries derivatives through a training was in the last call: |alpha_0|, "adjoint"; |Z|, "sensitivity"."""


class Engine(Protocol):
    """(params, hypers, k) -> HyperGradient, and the same in the form that one driver uses for all."""

    problem: Problem
    settings: dict[str, Any]

    @property
    def jit_compiled(self) -> bool:
        """Whether XLA compiles it; known after the first call."""

    def __call__(self, params: Nest, hypers: Hypers, k: int = 0) -> HyperGradient: ...

    def start(self, params: Nest, hypers: Hypers) -> Nest:
        """What is carried from one hyper-iteration to the next, before the first."""

    def advance(self, carry: Nest, hypers: Hypers, k: int) -> tuple[HyperGradient, Nest]:
        """Hyper-iteration k."""

    def initial_state(self, params: Nest, hypers: Hypers) -> Nest:
        """s_0, which has the structure of every state."""


class Probe:
    """Checks (params, hypers), and traces the problem once for each new structure of them."""

    def __init__(self, problem: Problem):
        self._problem = problem
        self._seen: set[str] = set()

    def __call__(self, params: Nest, hypers: Hypers) -> tuple[Nest, dict[str, tf.Tensor]]:
        params = errors.checked_params(params)
        hypers = errors.checked_hypers(hypers, params)
        key = str((nest.signature(params), nest.signature(hypers)))
        if key not in self._seen:
            probe(self._problem, params, hypers)
            self._seen.add(key)
        return params, hypers


class GoingOn(ABC):
    """What engines share whose hyper-iterations go on with one training, instead of starting it again."""

    problem: Problem
    norms: Norms
    _probe: Probe
    _advance: Compiled

    @property
    def jit_compiled(self) -> bool:
        """Whether XLA compiles it; known after the first call."""
        return self._advance.jit_compiled

    def __call__(self, params: Nest, hypers: Hypers, k: int | tf.Tensor = 0) -> HyperGradient:
        """The hypergradient at the end of the first hyper-batch."""
        return self.advance(self.start(params, hypers), hypers, k)[0]

    @abstractmethod
    def start(self, params: Nest, hypers: Hypers) -> Any:
        """What is carried on, before the first hyper-batch."""

    @abstractmethod
    def advance(self, carry: Any, hypers: Hypers, k: int | tf.Tensor) -> tuple[HyperGradient, Any]:
        """The next hyper-batch."""

    def initial_state(self, params: Nest, hypers: Hypers) -> Nest:
        """s_0."""
        return self.problem.dynamics.init(*self._probe(params, hypers))


class BatchEngine:
    """An engine that trains from the start at every hyper-iteration (reverse and forward)."""

    def __init__(
        self,
        problem: Problem,
        hypergradient: Callable[[Nest, Hypers, tf.Tensor], tuple[HyperGradient, Norms]],
        settings: dict[str, Any],
        jit_compile: bool | None,
    ):
        if problem.steps is None:
            raise ValueError(
                f"steps is None, which only rf.real_time takes: rf.{settings['method']} needs the number of training steps."
            )
        self.problem = problem
        self.settings = {**settings, "steps": problem.steps, "jit_compile": jit_compile}
        self.norms: Norms = {}
        self._probe = Probe(problem)
        self._compiled = Compiled(hypergradient, jit_compile)

    @property
    def jit_compiled(self) -> bool:
        """Whether XLA compiles it; known after the first call."""
        return self._compiled.jit_compiled

    def __call__(self, params: Nest, hypers: Hypers, k: int | tf.Tensor = 0) -> HyperGradient:
        """The hypergradient of training from `params` with `hypers`; k picks the validation batch."""
        params, hypers = self._probe(params, hypers)
        found, self.norms = self._compiled(params, hypers, tf.convert_to_tensor(k, tf.int32))
        return found

    def start(self, params: Nest, hypers: Hypers) -> Nest:
        """The params: every hyper-iteration starts from them again."""
        return self._probe(params, hypers)[0]

    def advance(self, carry: Nest, hypers: Hypers, k: int | tf.Tensor) -> tuple[HyperGradient, Nest]:
        """Hyper-iteration k."""
        return self(carry, hypers, k), carry

    def initial_state(self, params: Nest, hypers: Hypers) -> Nest:
        """s_0."""
        return self.problem.dynamics.init(*self._probe(params, hypers))

"""The contract between engines and the driver: a base class that declares everything the driver may ask for."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.batches import Stream
from rfho2.core import errors, loops, nest
from rfho2.core.compiled import Compiled
from rfho2.core.types import HyperGradient, Hypers, Nest, Norms, Signal
from rfho2.hypergradients import episodes
from rfho2.problem import Problem, probe


class Engine(ABC):
    """Computes hypergradients: (params, hypers, k) -> HyperGradient.

    `rf.HyperOptimizer` drives every engine through `start` and `advance`: what `start` returns is carried from one
    hyper-iteration to the next. An engine of your own may derive from this class, or be any object with these methods.

    Attributes:
      problem: the problem that it differentiates.
      settings: plain values that describe it; a checkpoint with other settings is rejected.
    """

    problem: Problem
    settings: dict[str, Any]

    def __init__(self, problem: Problem, settings: dict[str, Any]):
        self.problem = problem
        self.settings = settings
        self._traced: set[str] = set()
        self._norms: Norms = {}  # of the last call

    @abstractmethod
    def __call__(self, params: Nest, hypers: Hypers, k: int | tf.Tensor = 0) -> HyperGradient:
        """The hypergradient of training from `params` with `hypers`; k selects the validation batch.

        `params` may also be a pure function k -> params, so that each hyper-iteration starts elsewhere.
        """

    @abstractmethod
    def start(self, params: Nest, hypers: Hypers) -> Any:
        """What the first hyper-iteration starts from."""

    @abstractmethod
    def advance(self, carry: Any, hypers: Hypers, k: int | tf.Tensor) -> tuple[HyperGradient, Any]:
        """Hyper-iteration k: its hypergradient, and what the next hyper-iteration starts from."""

    def initial_state(self, params: Nest, hypers: Hypers) -> Nest:
        """s_0 of hyper-iteration 0, which has the structure of every state."""
        return self.problem.dynamics.init(*self.validated(params, hypers))

    def validated(self, params: Nest, hypers: Hypers) -> tuple[Nest, dict[str, tf.Tensor]]:
        """Params and hypers as checked tensors; traces the problem once for each new structure of them.

        A function k -> params is evaluated at k = 0, where an engine that trains only once starts.
        """
        params = episodes.params_at(params, 0)
        hypers = errors.checked_hypers(hypers, params)
        structure = str((nest.signature(params), nest.signature(hypers)))
        if structure not in self._traced:
            probe(self.problem, params, hypers)
            self._traced.add(structure)
        return params, hypers

    @property
    def jit_compiled(self) -> bool:
        """Whether XLA compiles the engine; known after the first call."""
        return False

    @property
    def norms(self) -> Norms:
        """The norms of the last call; deprecated: each `HyperGradient` has its own `norms`."""
        warnings.warn("Engine.norms is deprecated; use the norms of the HyperGradient.", DeprecationWarning, stacklevel=2)
        return self._norms

    @property
    def afresh(self) -> bool:
        """Whether every hyper-iteration trains from the start."""
        return False

    def forget(self, carry: Any) -> Any:
        """The same training without memory of earlier hypers; engines that start afresh have none."""
        return carry

    @property
    def writes(self) -> bool:
        """Whether this process writes checkpoints and calls callbacks; on a mesh only one process does."""
        return True

    def agreed(self, own: Signal) -> Signal:
        """The signal that ends the run, from that of this process; on a mesh the processes agree on one."""
        return own

    @property
    def stream(self) -> Stream | None:
        """The stream of training batches, if the problem has one."""
        batches = self.problem.batches
        return batches if isinstance(batches, Stream) else None

    def save_stream(self, directory: Path) -> None:
        """Writes the position in the stream, if there is one, into a checkpoint."""
        if self.stream is not None:
            self.stream.save(directory / "stream")

    def restore_stream(self, directory: Path) -> None:
        """Returns the stream, if there is one, to the position in a checkpoint."""
        if self.stream is not None:
            self.stream.restore(directory / "stream")


class OfflineEngine(Engine):
    """Base class for engines that train from the start at every hyper-iteration.

    Args:
      problem: what to differentiate; its `steps` may not be None.
      hypergradient: (params, hypers, k) -> HyperGradient, to be compiled; as `uncompiled` it can be used inside another
        graph.
      settings: "method" and the method's own settings.
      jit_compile: None tries XLA and falls back to the graph; True or False insists.
      rebuild: another problem -> the same engine for it, which `rf.average(together=True)` needs.
    """

    def __init__(
        self,
        problem: Problem,
        hypergradient: Callable[..., Any],
        settings: dict[str, Any],
        jit_compile: bool | None,
        rebuild: Callable[[Any], OfflineEngine] | None = None,
    ):
        if problem.steps is None:
            raise ValueError(
                f"steps is None, which only rf.real_time accepts; rf.{settings['method']} needs the number of steps."
            )
        super().__init__(problem, {**settings, "steps": problem.steps, "jit_compile": jit_compile})
        self.rebuild = rebuild
        self.report: Callable[[tf.Tensor, Norms], None] = lambda k, norms: None  # looks at the norms of hyper-iteration k
        self.uncompiled = hypergradient
        # Otherwise XLA would compile again in every hyper-iteration, for a problem that reads table[k].
        self._compiled = Compiled(
            lambda params, hypers, k, *rest: hypergradient(params, hypers, loops.unknown(k), *rest), jit_compile
        )
        # Never by XLA, which draws other random numbers than the graph, and on a CPU far more slowly.
        self._episode_params = Compiled(self.episode_params, jit_compile=False)

    @property
    def jit_compiled(self) -> bool:
        """Whether XLA compiles the engine; known after the first call."""
        return self._compiled.jit_compiled

    @property
    def afresh(self) -> bool:
        """Whether every hyper-iteration trains from the start: yes."""
        return True

    def __call__(self, params: Nest, hypers: Hypers, k: int | tf.Tensor = 0) -> HyperGradient:
        """The hypergradient of training from `params` with `hypers`; k selects the validation batch."""
        first, hypers = self.validated(params, hypers)
        k = tf.convert_to_tensor(k, tf.int32)
        return warn_unless_finite(self._hypergradient(self._params_at(episodes.carried(params, first), k), hypers, k))

    def start(self, params: Nest, hypers: Hypers) -> Nest:
        """The params, or the function k -> params, from which every hyper-iteration starts."""
        return episodes.carried(params, self.validated(params, hypers)[0])

    def advance(self, carry: Nest, hypers: Hypers, k: int | tf.Tensor) -> tuple[HyperGradient, Nest]:
        """Hyper-iteration k."""
        hypers = errors.checked_hypers(hypers, episodes.example(carry))
        k = tf.convert_to_tensor(k, tf.int32)
        return self._hypergradient(self._params_at(carry, k), hypers, k), carry

    def episode_params(self, function: Callable[[tf.Tensor], Nest], k: tf.Tensor) -> Nest:
        """What hyper-iteration k starts from if the params are a function."""
        return function(k)

    def _params_at(self, carry: Nest, k: tf.Tensor) -> Nest:
        return self._episode_params(carry, k) if isinstance(carry, episodes.ParamsFunction) else carry

    def _hypergradient(self, params: Nest, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        """As `__call__`, for inputs that were validated."""
        hypergradient: HyperGradient = self._compiled(params, hypers, k)
        self._norms = hypergradient.norms
        self.report(k, hypergradient.norms)
        return hypergradient


class OnlineEngine(Engine):
    """Base class for engines that continue one training run from hyper-iteration to hyper-iteration.

    Subclasses set `_advance`, the compiled function of a hyper-iteration.
    """

    _advance: Compiled

    @property
    def jit_compiled(self) -> bool:
        """Whether XLA compiles the engine; known after the first call."""
        return self._advance.jit_compiled

    def delay_xla(self, delayed: bool) -> None:
        """Whether the next hyper-iterations run as a plain graph, although XLA may compile them; nothing is traced again."""
        self._advance.delayed = delayed

    def __call__(self, params: Nest, hypers: Hypers, k: int | tf.Tensor = 0) -> HyperGradient:
        """The hypergradient at the end of the first hyper-iteration."""
        return warn_unless_finite(self.advance(self.start(params, hypers), hypers, k)[0])


def warn_unless_finite(hypergradient: HyperGradient) -> HyperGradient:
    """The hypergradient itself, with a warning if it is useless; `rf.HyperOptimizer`, which calls `advance`, raises."""
    if tf.executing_eagerly():
        value = hypergradient.value if isinstance(hypergradient.value, dict) else {"": hypergradient.value}
        named = {f"the value {name}".strip(): v for name, v in value.items()}
        named |= {f"the hypergradient of '{name}'": grad for name, grad in hypergradient.grads.items()}
        bad = [name for name, number in named.items() if not np.all(np.isfinite(number))]
        if bad:
            warnings.warn(
                f"not finite: {', '.join(bad)}. Try a smaller learning rate, fewer steps or float64; look for log(0), 0/0 "
                f"and sqrt at 0 in the loss, for NaN in data and hypers, and for labels out of range.",
                stacklevel=3,
            )
    return hypergradient


def as_engine(engine: Any) -> Engine:
    """The engine itself, or an adapter for an object of the user's that has the methods of one."""
    if isinstance(engine, Engine):
        return engine
    if not hasattr(engine, "advance"):
        raise TypeError(f"engine is {type(engine).__name__}; pass rf.reverse(problem), rf.forward(problem), ...")
    return _Adapter(engine)


class _Adapter(Engine):
    """Gives an object with `problem`, `settings`, `start`, `advance` and `initial_state` the defaults of `Engine`."""

    def __init__(self, engine: Any):
        super().__init__(engine.problem, engine.settings)
        self._engine = engine

    def __call__(self, params: Nest, hypers: Hypers, k: int | tf.Tensor = 0) -> HyperGradient:
        return self._with_norms(self._engine(params, hypers, k))

    def start(self, params: Nest, hypers: Hypers) -> Any:
        return self._engine.start(params, hypers)

    def advance(self, carry: Any, hypers: Hypers, k: int | tf.Tensor) -> tuple[HyperGradient, Any]:
        hypergradient, carry = self._engine.advance(carry, hypers, k)
        return self._with_norms(hypergradient), carry

    def _with_norms(self, hypergradient: HyperGradient) -> HyperGradient:
        """Those that the engine has as an attribute, as before version 1.1, if the hypergradient has none."""
        self._norms = hypergradient.norms or getattr(self._engine, "norms", {})
        return hypergradient._replace(norms=self._norms)

    def initial_state(self, params: Nest, hypers: Hypers) -> Nest:
        return self._engine.initial_state(params, hypers)

    @property
    def jit_compiled(self) -> bool:
        return getattr(self._engine, "jit_compiled", False)

    @property
    def afresh(self) -> bool:
        return getattr(self._engine, "afresh", False)

    def forget(self, carry: Any) -> Any:
        return getattr(self._engine, "forget", super().forget)(carry)

    @property
    def writes(self) -> bool:
        return getattr(self._engine, "writes", True)

    def agreed(self, own: Signal) -> Signal:
        return getattr(self._engine, "agreed", super().agreed)(own)

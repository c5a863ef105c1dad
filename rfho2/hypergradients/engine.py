"""The contract between engines and the driver, and the one engine that compiles and runs every method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from rfho2.batches import Stream
from rfho2.core import errors, loops, nest
from rfho2.core.compiled import Compiled, graph_function
from rfho2.core.types import HyperGradient, Hypers, Nest, Norms, Signal
from rfho2.core.warn import warn
from rfho2.hypergradients import episodes
from rfho2.hypergradients.finite import warn_unless_finite
from rfho2.hypergradients.method import Method
from rfho2.hypergradients.probe import probe
from rfho2.problem import Problem

PROGRAMS = 8  # compiled programs that an engine keeps, one for each optimiser that drives it

Make = Callable[[Problem, Nest, Hypers], Method]
"""(problem, params, hypers) -> the method; most do not depend on the params and hypers of the first call."""


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

    def __repr__(self) -> str:
        listed = [f"{name}={v!r}" for name, v in self.settings.items() if name != "method" and v is not None]
        return f"rf.{self.settings.get('method', type(self).__name__)}({', '.join(listed)})"

    @abstractmethod
    def __call__(self, params: Nest, hypers: Hypers, k: int | tf.Tensor = 0) -> HyperGradient:
        """The hypergradient of training from `params` with `hypers`; k selects the validation batch.

        `params` may also be a pure function k -> params, so that each hyper-iteration starts elsewhere.
        """

    @abstractmethod
    def start(self, params: Nest, hypers: Hypers) -> Any:
        """The carry from which the first hyper-iteration starts."""

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
        warn("Engine.norms is deprecated; use the norms of the HyperGradient.", DeprecationWarning)
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
        """The signal that ends the run, given that of this process, `own`; on a mesh the processes agree on one."""
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


class Processes:
    """Where an engine runs: in this process alone. Subclasses in `distribute/` run it in several."""

    writes = True

    def agreed(self, own: Signal) -> Signal:
        """The signal on which all processes agree, given that of this process, `own`."""
        return own

    def over(self, function: Compiled) -> Callable[..., Any]:
        """The compiled function, run by all processes together."""
        return function


class MethodEngine(Engine):
    """The engine of every method: validates its inputs, compiles it, reads streams and reports.

    Args:
      problem: what to differentiate.
      settings: "method" and its settings; "jit_compile" is None (tries XLA and falls back to the graph), True or False.
      make: makes the method, at the first validation of params and hypers.
      afresh: whether every hyper-iteration trains from the start; the carry is then what the user passed as params.
      processes: where it runs.

    Attributes:
      graph_until: training steps that run as a plain graph, because compiling is not worthwhile yet.
      put_back: batches of a stream that were read for a hyper-iteration that could not be computed.
    """

    def __init__(
        self, problem: Problem, settings: dict[str, Any], make: Make, afresh: bool, processes: Processes | None = None
    ):
        if afresh and problem.steps is None:
            raise ValueError(
                f"steps is None, which only rf.real_time accepts; rf.{settings['method']} needs the number of steps."
            )
        super().__init__(problem, settings)
        self.make, self.processes, self.graph_until = make, processes or Processes(), 0.0
        self._afresh = afresh
        self._method: Method | None = None
        self._compiled = self._last = Compiled(self._hyper_iteration, settings.get("jit_compile"))
        self._advance = self.processes.over(self._compiled)
        self._first = Compiled(self._first_iteration, settings.get("jit_compile"))
        self._start = self.processes.over(Compiled(lambda *args: self.method(*args).start(*args), jit_compile=False))
        # Never under XLA, which draws different random numbers from the graph, and far more slowly on a CPU.
        self._params_at = graph_function(lambda function, k: self.method(function, {}).params_at(function, k))
        self._programs: dict[Any, Compiled] = {}
        self.put_back: list[Nest] = []

    def _hyper_iteration(self, carry: Any, hypers: Hypers, k: tf.Tensor, streamed: Nest) -> tuple[Any, Any]:
        # Otherwise XLA would compile again in every hyper-iteration, for a problem that reads table[k].
        result, carry = self.method(carry, hypers).advance(carry, hypers, loops.unknown(k), streamed)
        return result, () if self.afresh else carry

    def _first_iteration(self, params: Nest, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        """The first hyper-iteration in one program, from which the carry for the next one need not be returned."""
        method = self.method(params, hypers)
        hypergradient, carry = method.advance(method.start(params, hypers), hypers, loops.unknown(k), ())
        return hypergradient._replace(state=carry.state)

    def method(self, params: Nest, hypers: Hypers) -> Method:
        """The method, made if this is the first call."""
        if self._method is None:
            self._method = self.make(self.problem, params, hypers)
        return self._method

    @property
    def jit_compiled(self) -> bool:
        """Whether XLA compiles the engine; known after the first call."""
        return self._last.jit_compiled

    @property
    def afresh(self) -> bool:
        """Whether every hyper-iteration trains from the start."""
        return self._afresh

    @property
    def writes(self) -> bool:
        """Whether this process writes checkpoints and calls callbacks."""
        return self.processes.writes

    def agreed(self, own: Signal) -> Signal:
        """The signal on which all processes agree."""
        return self.processes.agreed(own)

    def validated(self, params: Nest, hypers: Hypers) -> tuple[Nest, dict[str, tf.Tensor]]:
        """Params and hypers as checked tensors; makes the method, if this is the first call."""
        params, hypers = super().validated(params, hypers)
        self.method(params, hypers)
        return params, hypers

    def __call__(self, params: Nest, hypers: Hypers, k: int | tf.Tensor = 0) -> HyperGradient:
        """The hypergradient of the first hyper-iteration from `params`; k selects the validation batch."""
        first, hypers = self.validated(params, hypers)
        k = tf.convert_to_tensor(k, tf.int32)
        if self.afresh or self.stream is not None or type(self.processes) is not Processes:
            carry = episodes.carried(params, first) if self.afresh else self._start(first, hypers)
            return warn_unless_finite(self._advanced(carry, hypers, k)[0])
        self.use(self._first)
        hypergradient = self._first(first, hypers, k)
        self.report(k, hypergradient.norms)
        return warn_unless_finite(hypergradient)

    def start(self, params: Nest, hypers: Hypers) -> Any:
        """The carry from which the first hyper-iteration starts."""
        first, hypers = self.validated(params, hypers)
        return episodes.carried(params, first) if self.afresh else self._start(first, hypers)

    def advance(self, carry: Any, hypers: Hypers, k: int | tf.Tensor) -> tuple[HyperGradient, Any]:
        """Hyper-iteration k."""
        hypers = errors.checked_hypers(hypers, episodes.example(carry))
        return self._advanced(carry, hypers, tf.convert_to_tensor(k, tf.int32))

    def _advanced(self, carry: Any, hypers: Hypers, k: tf.Tensor) -> tuple[HyperGradient, Any]:
        method = self.method(carry, hypers)
        self.use(self._compiled, carry)
        result, new = self._advance(self.params_at(carry, k), hypers, k, self.read(carry))
        hypergradient: HyperGradient = result if method.complete is None else method.complete(result, hypers, k)
        new = carry if self.afresh else new
        if isinstance(hypergradient.state, tuple) and not hypergradient.state:
            hypergradient = hypergradient._replace(state=new.state)
        self.report(k, hypergradient.norms)
        return hypergradient, new

    def report(self, k: int | tf.Tensor, norms: Norms) -> None:
        """Passes the norms of hyper-iteration k to the method, if they have values already."""
        if tf.executing_eagerly() and self._method is not None:
            self._norms = norms
            self._method.report(int(k), norms)

    def forget(self, carry: Any) -> Any:
        """The same training without memory of earlier hypers."""
        return carry if self._method is None else self._method.forget(carry)

    def params_at(self, carry: Any, k: tf.Tensor) -> Any:
        """The carry with which hyper-iteration k is computed: its params, if the user passed a function k -> params."""
        return self._params_at(carry, k) if isinstance(carry, episodes.ParamsFunction) else carry

    def read(self, carry: Any) -> Nest:
        """The batches of the next hyper-iteration, if they come from a stream."""
        stream = self.stream
        if stream is None or self._method is None or self._method.read is None:
            return ()
        return self.put_back.pop() if self.put_back else self._method.read(stream, carry)

    def program(self, key: Any, function: Callable[[], Callable[..., Any]]) -> Compiled:
        """A larger function that contains a hyper-iteration, compiled as the engine is; built once for each key."""
        if key not in self._programs:
            if len(self._programs) == PROGRAMS:
                self._programs.pop(next(iter(self._programs)))
            self._programs[key] = Compiled(function(), self.settings.get("jit_compile"), falls_back=False)
        return self._programs[key]

    def use(self, compiled: Compiled, carry: Any = None) -> None:
        """Prepares a compiled function for the next hyper-iteration; without a carry, for the first."""
        self._last = compiled
        if self.graph_until:
            compiled.delayed = carry is None or int(carry.t) < self.graph_until

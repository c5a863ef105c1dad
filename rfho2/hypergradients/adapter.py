"""Engines that users write: any object with `problem`, `settings`, `start`, `advance` and `initial_state`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.hypergradients.engine import Engine, MethodEngine

OPTIONAL = ("forget", "agreed", "save_stream", "restore_stream")


def as_engine(engine: Any) -> Engine:
    """The engine itself, or an adapter for an engine that the user wrote."""
    if isinstance(engine, MethodEngine):
        return engine
    if not hasattr(engine, "advance"):
        raise TypeError(f"engine is {type(engine).__name__}; pass rf.reverse(problem), rf.forward(problem), ...")
    return Adapter(engine)


class Adapter(Engine):
    """Wraps a custom engine, and gives it the defaults of `Engine` for what it lacks."""

    def __init__(self, engine: Any):
        super().__init__(engine.problem, engine.settings)
        self._engine = engine
        for name in OPTIONAL:
            if hasattr(engine, name):
                setattr(self, name, getattr(engine, name))

    def __call__(self, params: Nest, hypers: Hypers, k: int | tf.Tensor = 0) -> HyperGradient:
        """One hypergradient."""
        return self._with_norms(self._engine(params, hypers, k))

    def start(self, params: Nest, hypers: Hypers) -> Any:
        """The carry from which the first hyper-iteration starts."""
        return self._engine.start(params, hypers)

    def initial_state(self, params: Nest, hypers: Hypers) -> Nest:
        """s_0."""
        return self._engine.initial_state(params, hypers)

    def advance(self, carry: Any, hypers: Hypers, k: int | tf.Tensor) -> tuple[HyperGradient, Any]:
        """Hyper-iteration k."""
        hypergradient, carry = self._engine.advance(carry, hypers, k)
        return self._with_norms(hypergradient), carry

    def _with_norms(self, hypergradient: HyperGradient) -> HyperGradient:
        """An engine written before version 1.1 has the norms as an attribute."""
        if hypergradient.norms or (isinstance(self._engine, Engine) and type(self._engine).norms is Engine.norms):
            return hypergradient
        return hypergradient._replace(norms=getattr(self._engine, "norms", {}))

    @property
    def jit_compiled(self) -> bool:
        """Whether XLA compiles the engine."""
        return getattr(self._engine, "jit_compiled", False)

    @property
    def afresh(self) -> bool:
        """Whether every hyper-iteration trains from the start."""
        return getattr(self._engine, "afresh", False)

    @property
    def writes(self) -> bool:
        """Whether this process writes checkpoints and calls callbacks."""
        return getattr(self._engine, "writes", True)

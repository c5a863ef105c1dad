"""Functions over DTensors, one at a time: DTensor cannot keep a graph with loops while it lowers another.

For each loop of a graph that it lowers to one device, TensorFlow 2.21 adds a function to the process. It reads all of them
back when it lowers the next graph, and sometimes finds that they have changed: "Cannot add function 'while_body' because a
different function with the same name already exists". So the graph of an engine is dropped when another engine runs, and
traced again when the first one runs once more.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rfho2.core.compiled import over_dtensors

_current: list[DTensorFunction] = []


class DTensorFunction:
    """A `tf.function` that keeps its graph only until another one runs."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        if self._compiled is None:
            drop()
            self._compiled = tf.function(self._function, autograph=False)
            _current.append(self)
        with over_dtensors():
            return self._compiled(*args)


def drop() -> None:
    """Drops the graph that is kept now."""
    while _current:
        _current.pop()._compiled = None
        gc.collect()  # the graph is part of a reference cycle

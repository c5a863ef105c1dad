"""One function at a time: what DTensor makes of a graph with loops cannot stay when it lowers another.

TensorFlow 2.21 adds a function to the process for each loop of a graph that it lowers to one device, reads all of them back
when it lowers the next graph, and finds, now and then, that they are not the same any more: "Cannot add function
'while_body' because a different function with the same name already exists". So the function of an engine is given up when
another one's turn comes, and traced again should its own come back.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_current: list[Lowered] = []


class Lowered:
    """`tf.function` that holds its graph only while no other one runs."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        if self._compiled is None:
            drop()
            self._compiled = tf.function(self._function, autograph=False)
            _current.append(self)
        return self._compiled(*args)


def drop() -> None:
    """Gives up the function that holds a graph now."""
    while _current:
        _current.pop()._compiled = None
        gc.collect()  # its graph is a ring of references

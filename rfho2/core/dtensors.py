"""Workarounds for TensorFlow's DTensor; all of them are needed with TensorFlow 2.21.

- A loop that carries several columns of Z separately crashes: `sharded` tells the tracing code to stack them.
- An inner loop cannot start from values that the outer loop carries: `renewed` copies them.
- A graph with loops cannot be kept while another is lowered: `DTensorFunction`.
- Small tensors of some dtypes count as constants, so that each new value is lowered again: `widened` converts them.
- BiCGSTAB ends with a segmentation fault: `BROKEN_SOLVERS`.
- A process that is silent for ten seconds is lost, and no argument of DTensor changes that: `silence_allowed`.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Nest

BROKEN_SOLVERS = ("bicgstab",)
SMALL = 64  # entries that may count as constants

_sharded: ContextVar[bool] = ContextVar("sharded", default=False)
_current: list[DTensorFunction] = []


def sharded() -> bool:
    """Whether the function that is being traced will run over DTensors."""
    return _sharded.get()


@contextlib.contextmanager
def over_dtensors(active: bool = True) -> Iterator[None]:
    """Declares whether functions traced inside this context will run over DTensors."""
    token = _sharded.set(active)
    try:
        yield
    finally:
        _sharded.reset(token)


@contextlib.contextmanager
def silence_allowed(seconds: float) -> Iterator[None]:
    """Processes that join inside this context may be silent for this long before TensorFlow declares them lost.

    Heartbeats are sent twice in this time. With TensorFlow's ten seconds, a link that is down for five can cost a process:
    its last heartbeat may be five seconds old by then, and TCP sends the next one again only 6.2 s after the first attempt.
    """
    from tensorflow.python.eager import context  # private, and so imported only by those who need it

    joined = context.context()
    configure = functools.partial(joined.configure_coordination_service, heartbeat_timeout_in_ms=round(1000 * seconds))
    joined.configure_coordination_service = configure
    try:
        yield
    finally:
        del joined.configure_coordination_service


def is_dtensor(leaf: Any) -> bool:
    """Whether an eager tensor lies on a mesh; asking `tf.experimental.dtensor` would initialise DTensor."""
    return tf.is_tensor(leaf) and "CUSTOM" in (getattr(leaf, "device", None) or "")


def renewed(values: Nest) -> Nest:
    """A copy made by new ops, from which an inner loop can start."""
    return nest.map(tf.identity, values)


def widened(leaf: tf.Tensor) -> tf.Tensor:
    """A small tensor as float64, which never counts as a constant; int32 and float32 survive the conversion."""
    return tf.cast(leaf, tf.float64) if leaf.shape.num_elements() <= SMALL else leaf


class DTensorFunction:
    """A `tf.function` that keeps its graph only until another one runs, and is then traced again.

    For each loop of a graph that is lowered to one device, TensorFlow adds a function to the process. It reads all of them
    back when it lowers the next graph, and sometimes finds that they have changed: "Cannot add function 'while_body' because
    a different function with the same name already exists".
    """

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
    """Drops the graph that is currently kept."""
    while _current:
        _current.pop()._compiled = None
        gc.collect()  # the graph is part of a reference cycle

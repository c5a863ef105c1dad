"""Functions traced once: under XLA where that is possible and worthwhile, as a plain graph otherwise."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rfho2.core import devices, graphs, grappler
from rfho2.core.dtensors import is_dtensor, over_dtensors, sharded
from rfho2.core.warn import warn

UNSUPPORTED = re.compile(r"unsupported operation|No registered '|not compilable|non-static|compile-time constant|XLA")
CONVOLUTIONS = ("Conv2D", "Conv3D")  # prefixes of the op names; XLA is good at depthwise convolutions
ASSERTIONS = ("Assert", "CheckNumerics")  # XLA leaves them out
BROKEN = re.compile(r"\bhlo\b|Triton|ptxas|LLVM|autotun", re.IGNORECASE)  # the GPU compiler itself fails
DEVICE = re.compile(r"CUDA_ERROR|launch|illegal|out of memory", re.IGNORECASE)  # the device fails, and would again


class Compiled:
    """A function that is traced once, and runs under XLA or as a plain graph.

    XLA is not tried where it is known to be slower: convolutions on a CPU. Where it fails, or would leave out assertions,
    the graph takes over, with one warning that names the op.

    Args:
      function: a function of tensors and nests of tensors.
      jit_compile: None tries XLA; True or False decides.
      falls_back: False raises the error if XLA fails, for a caller that can compute the result another way.

    Attributes:
      graph, xla: the two versions, as `tf.function`s that share one trace.
      jit_compiled: whether the next call runs under XLA; certain after the first call.
      delayed: whether it runs as a graph for now, because compiling is not worthwhile yet.
    """

    def __init__(self, function: Callable[..., Any], jit_compile: bool | None = None, falls_back: bool = True):
        graph = self.graph = graph_function(function)
        self.xla = graph_function(lambda *args: graph(*args), jit_compile=True)
        self.delayed = False
        self._xla_wanted = jit_compile is not False
        self._undecided = jit_compile is None
        self._may_fall_back = falls_back and jit_compile is None

    @property
    def jit_compiled(self) -> bool:
        """Whether the next call runs under XLA; certain after the first call."""
        return self._xla_wanted and not self.delayed

    def __call__(self, *args: Any) -> Any:
        with over_dtensors(sharded() or any(map(is_dtensor, tf.nest.flatten(args)))):
            return self._call(*args)

    def _call(self, *args: Any) -> Any:
        if self._undecided:
            traced = self.graph.get_concrete_function(*args).graph
            asserted = [node.name for node in graphs.nodes(traced) if node.op.startswith(ASSERTIONS)]
            self._xla_wanted = not (asserted or slower_under_xla(traced))
            self._undecided = False
            if asserted:
                warn(
                    f"XLA would leave out the assertions of the problem ({asserted[0]}); running as a plain graph, which is "
                    f"slower. Remove them, or pass jit_compile=True to run without them."
                )
        if not self.jit_compiled:
            return self._as_graph(*args)
        try:
            return self.xla(*args)
        except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, tf.errors.InternalError) as error:
            if not (self._may_fall_back and is_xlas(error)):
                raise
            warn(
                f"XLA cannot compile {_culprit(error.message)}; running as a plain graph, which is slower. "
                f"Pass jit_compile=False to choose this without trying."
            )
        self._xla_wanted = False
        return self._as_graph(*args)

    def _as_graph(self, *args: Any) -> Any:
        with grappler.whole_sums():
            return self.graph(*args)


def slower_under_xla(graph: tf.Graph) -> bool:
    """Whether a graph has convolutions, for which XLA's code on a CPU is 5 to 10 times slower than TensorFlow's own."""
    return not devices.gpu() and any(node.op.startswith(CONVOLUTIONS) for node in graphs.nodes(graph))


def graph_function(function: Callable[..., Any], **settings: Any) -> Any:
    """A `tf.function` without AutoGraph, with these settings.

    TensorFlow counts traces by the code of a function, and warns of retracing when several functions made by the same lines
    are traced once each. It counts each partial object separately.
    """
    return tf.function(functools.partial(function), autograph=False, **settings)


def is_xlas(error: tf.errors.OpError) -> bool:
    """Whether XLA cannot compile the function, as opposed to a failure of the user's code or of the device."""
    if isinstance(error, tf.errors.InternalError):
        return bool(BROKEN.search(error.message)) and not DEVICE.search(error.message)
    return bool(UNSUPPORTED.search(error.message))


def _culprit(message: str) -> str:
    """The names of the ops in an XLA error message, or its first line."""
    ops = re.findall(r"No registered '(\w+)'", message) + re.findall(r"\(op: (\w+)\)", message)
    names = re.findall(r"\{\{node ([\w/.-]+)\}\}", message)
    if ops or names:
        return ", ".join(dict.fromkeys(ops or names))
    return message.strip().splitlines()[0][:200]

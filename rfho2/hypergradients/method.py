"""A hypergradient method as pure functions, which `engine.MethodEngine` compiles and the driver runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.batches import Stream
from rfho2.core.types import HyperGradient, Hypers, Nest, Norms


class Method(NamedTuple):
    """A way to compute hypergradients; what `start` returns is carried from one hyper-iteration to the next.

    Attributes:
      start: (params, hypers) -> carry. Pure.
      advance: (carry, hypers, k, streamed) -> (HyperGradient, carry) of hyper-iteration k. Pure. The state () stands for
        `carry.state`, so that it is not copied; `streamed` has the batches that `read` returned, or is ().
      forget: carry -> the carry of the same training without memory of earlier hypers.
      params_at: (function, k) -> what hyper-iteration k starts from, if the params are a function k -> params. Pure.
      read: (stream, carry) -> the batches of the next hyper-iteration, stacked. Eager.
      report: (k, norms) -> None checks the norms of hyper-iteration k; it may warn or raise an error. Eager.
      complete: (result, hypers, k) -> HyperGradient, from what `advance` returned instead, if processes have to exchange
        data first. Eager.
    """

    start: Callable[[Nest, Hypers], Any]
    advance: Callable[[Any, Hypers, tf.Tensor, Nest], tuple[Any, Any]]
    forget: Callable[[Any], Any] = lambda carry: carry
    params_at: Callable[[Callable[[tf.Tensor], Nest], tf.Tensor], Nest] = lambda function, k: function(k)
    read: Callable[[Stream, Any], Nest] | None = None
    report: Callable[[int, Norms], None] = lambda k, norms: None
    complete: Callable[[Any, Hypers, tf.Tensor], HyperGradient] | None = None


def from_the_start(hypergradient: Callable[[Nest, Hypers, tf.Tensor], Any], **attributes: Any) -> Method:
    """The method that trains from the same params at every hyper-iteration: they are the carry.

    Args:
      hypergradient: (params, hypers, k) -> HyperGradient.
      attributes: further attributes of the method.
    """

    def advance(params: Nest, hypers: Hypers, k: tf.Tensor, streamed: Nest) -> tuple[Any, Nest]:
        return hypergradient(params, hypers, k), params

    return Method(lambda params, hypers: params, advance, **attributes)

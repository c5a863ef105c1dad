"""How a real-time tuner computes: forward where possible and cheap, otherwise in reverse; as a graph, and when with XLA."""

from __future__ import annotations

import math

import tensorflow as tf

from rfho2.batches import Stream
from rfho2.core.graphs import CONTROL_FLOW, trace
from rfho2.core.types import Batches, Hypers, Nest
from rfho2.dynamics.base import Loss
from rfho2.hypergradients.sensitivity import MAX_SEPARATE, count_columns

MOST_COLUMNS = 3  # numbers m tuned in forward mode, which costs 1 + m steps; reverse mode costs 3.2, and looks back less far

GRAPH_STEPS = 500  # before XLA compiles the step, so that output appears at once
WORTH_COMPILING = 1000  # remaining steps; compiling takes 2 to 8 seconds, and a step is some milliseconds faster


def choose_mode(
    loss: Loss, params: Nest, hypers: Hypers, batches: Batches, mode: str | None, carry: bool | None, discount: float
) -> str:
    """The mode that the user asked for, by `mode` or by `carry=True`, which needs forward mode; or else the better one."""
    requested = "forward" if carry else mode
    many = count_columns(hypers) > MOST_COLUMNS
    if requested == "reverse" or (requested is None and many):
        return "reverse"
    kinds = [] if discount == 0 else control_flow(loss, params, hypers, batches)
    if kinds and requested == "forward" and count_columns(hypers) > MAX_SEPARATE:
        raise ValueError(
            f"{'mode is' if mode else 'carry is True, which needs mode'} 'forward', but the training loss has control flow "
            f"({', '.join(kinds)}), through which forward mode tunes at most {MAX_SEPARATE} numbers, not "
            f"{count_columns(hypers)}. Leave mode and carry out, and the tuner uses reverse mode; or build recurrent layers "
            f"with unroll=True."
        )
    return requested or ("reverse" if kinds else "forward")


def control_flow(loss: Loss, params: Nest, hypers: Hypers, batches: Batches) -> list[str]:
    """The kinds of control flow ("If", "Case", "While") in the loss that depend on the params or the hypers.

    TensorFlow's accumulators fail there, or work by chance, and XLA cannot compile the tapes that replace them. Control flow
    that depends on the examples alone is harmless. The loss is traced, without its derivatives.
    """
    batch = batches.spec if isinstance(batches, Stream) else batches(tf.constant(0))
    _, ops = trace(lambda both, batch: loss(both[0], both[1], batch), (params, dict(hypers)), batch)
    return sorted({op.kind.removeprefix("Stateless") for op in ops if op.reached and op.kind in CONTROL_FLOW})


def graph_steps(steps: int) -> float:
    """The number of training steps before XLA compiles; all of them, if compiling is not worthwhile.

    It depends only on the number of steps, so that a fit can be repeated and resumed.
    """
    return GRAPH_STEPS if steps >= GRAPH_STEPS + WORTH_COMPILING else math.inf

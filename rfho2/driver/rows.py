"""One hyper-iteration as numbers: what is checked for divergence, and a row of the history."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.core.types import HyperGradient, Hypers

CARRIERS = ("adjoint", "sensitivity")  # whose norms engines report; the other numbers of an engine have names of their own


def norm_name(name: str) -> str:
    """The name, in the history, of a number that an engine reports."""
    return f"norm of {name}" if name in CARRIERS else name


def objective_values(hypergradient: HyperGradient) -> dict[str, float]:
    """ "value", and with several objectives also "value/<name>" of each; "value" is then their sum."""
    if not isinstance(hypergradient.value, dict):
        return {"value": float(hypergradient.value)}
    each = {f"value/{name}": float(value) for name, value in hypergradient.value.items()}
    return {"value": float(sum(each.values())), **each}


def row(
    k: int, hypers: Hypers, hypergradient: HyperGradient, norms: dict[str, float], extra: dict[str, Any], seconds: float
) -> dict[str, float]:
    """The row of hyper-iteration k; a hyper or metric cannot hide what the driver itself reports under the same name."""
    reserved = {"iteration": k, **objective_values(hypergradient)}
    named = {**_scalar_hypers(hypers), **_gradient_norms(hypergradient), **norms, **_scalar_metrics(extra)}
    return {**reserved, **named, **reserved, "seconds": seconds}


def _scalar_hypers(hypers: Hypers) -> dict[str, float]:
    return {name: float(hyper) for name, hyper in hypers.items() if hyper.shape.rank == 0}


def _gradient_norms(hypergradient: HyperGradient) -> dict[str, float]:
    return {f"hypergradient/{name}": float(tf.norm(grad)) for name, grad in hypergradient.grads.items()}


def _scalar_metrics(extra: dict[str, Any]) -> dict[str, float]:
    arrays = {name: np.asarray(value) for name, value in extra.items()}
    return {name: float(array) for name, array in arrays.items() if array.ndim == 0 and array.dtype.kind in "biuf"}

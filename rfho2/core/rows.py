"""One hyper-iteration as numbers: what is checked for divergence, and a row of the history and of the CSV file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.core.types import HyperGradient, Hypers

Row = dict[str, float]
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


def norms(hypergradient: HyperGradient) -> Row:
    """What an engine reports of a hypergradient, by its name in the history."""
    return {norm_name(name): float(norm) for name, norm in hypergradient.norms.items()}


def row(k: int, hypers: Hypers, hypergradient: HyperGradient, extra: dict[str, Any]) -> Row:
    """The numbers of hyper-iteration k: of an array its norm, as "norm of <name>"; of a scalar the number, with its sign.

    A hyper or metric cannot hide what the driver itself reports under the same name.
    """
    reserved = {"iteration": k, **objective_values(hypergradient)}
    grads = {f"hypergradient/{name}": grad for name, grad in hypergradient.grads.items()}
    return {**reserved, **_numbers(hypers), **_numbers(grads), **norms(hypergradient), **_scalar_metrics(extra), **reserved}


def _numbers(arrays: Mapping[str, Any]) -> Row:
    return {
        name if np.ndim(array) == 0 else f"norm of {name}": float(array) if np.ndim(array) == 0 else float(tf.norm(array))
        for name, array in arrays.items()
    }


def _scalar_metrics(extra: dict[str, Any]) -> Row:
    arrays = {name: np.asarray(value) for name, value in extra.items()}
    return {name: float(array) for name, array in arrays.items() if array.ndim == 0 and array.dtype.kind in "biuf"}

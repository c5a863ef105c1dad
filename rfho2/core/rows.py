"""One hyper-iteration as numbers: what is checked for divergence, and a row of the history and of the CSV file."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.core.types import SHOWN, HyperGradient, Hypers

Row = dict[str, float]
CARRIERS = ("adjoint", "sensitivity")  # engines report their norms; other numbers that an engine reports keep their names


def norm_name(name: str) -> str:
    """The name, in the history, of a number that an engine reports."""
    return f"norm of {name}" if name in CARRIERS else name


def numbers(hypers: Hypers, hypergradient: HyperGradient) -> dict[str, tf.Tensor]:
    """The numbers of a hyper-iteration in float64: scalars as they are, and the norms of arrays as "norm of <name>".

    Small vectors have their entries too. "value" is the objective; with several objectives it is their sum, and each is
    "value/<name>". No hyper can hide it.
    """
    values = objective_values(hypergradient)
    grads = {f"hypergradient/{name}": grad for name, grad in hypergradient.grads.items()}
    norms = {norm_name(name): tf.cast(norm, tf.float64) for name, norm in hypergradient.norms.items()}
    return {**values, **_numbers(hypers), **entries(hypers), **_numbers(grads), **norms, **values}


def lengths(numbers: Mapping[str, Any]) -> list[Any]:
    """The length of the hypergradient of each hyper, from the result of `numbers` or a row."""
    scalars = [abs(number) for name, number in numbers.items() if name.startswith("hypergradient/")]
    return scalars + [number for name, number in numbers.items() if name.startswith("norm of hypergradient/")]


def entries(hypers: Hypers) -> dict[str, tf.Tensor]:
    """The entries of small vectors, as "<name>/0", "<name>/1" and so on."""
    small = {name: h for name, h in hypers.items() if h.shape.rank == 1 and h.shape[0] <= SHOWN}
    return {f"{name}/{i}": tf.cast(h[i], tf.float64) for name, h in small.items() for i in range(h.shape[0])}


def objective_values(hypergradient: HyperGradient) -> dict[str, tf.Tensor]:
    """ "value", and with several objectives also "value/<name>" of each; "value" is then their sum."""
    if not isinstance(hypergradient.value, dict):
        return {"value": tf.cast(hypergradient.value, tf.float64)}
    each = {f"value/{name}": tf.cast(value, tf.float64) for name, value in hypergradient.value.items()}
    return {"value": functools.reduce(tf.add, each.values()), **each}


def row(k: int, quantities: Mapping[str, Any], extra: Mapping[str, Any]) -> Row:
    """Hyper-iteration k as a row: the result of `numbers`, and the metrics that are numbers; no metric hides a value."""
    named = {name.partition("/")[0] for name in extra if "/" in name}  # a tuner gives entries names of its own
    floats = {name: float(number) for name, number in quantities.items() if not _is_entry_of(name, named)}
    reserved = {"iteration": k, **{name: number for name, number in floats.items() if name.partition("/")[0] == "value"}}
    return {**reserved, **floats, **_scalar_metrics(extra), **reserved}


def _is_entry_of(name: str, hypers: set[str]) -> bool:
    hyper, _, index = name.partition("/")
    return hyper in hypers and index.isdigit()


def _numbers(arrays: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    return {
        name if array.shape.rank == 0 else f"norm of {name}": tf.cast(tf.norm(array), tf.float64)
        if array.shape.rank
        else tf.cast(array, tf.float64)
        for name, array in arrays.items()
    }


def _scalar_metrics(extra: Mapping[str, Any]) -> Row:
    arrays = {name: np.asarray(value) for name, value in extra.items()}
    return {name: float(array) for name, array in arrays.items() if array.ndim == 0 and array.dtype.kind in "biuf"}

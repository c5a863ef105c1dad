"""What makes a traced function impure: random numbers that no seed determines, assignments, calls of Python."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.core import graphs

RANDOM = {
    "RandomUniform", "RandomUniformInt", "RandomStandardNormal", "ParameterizedTruncatedNormal", "TruncatedNormal",
    "RandomShuffle", "RandomGamma", "RandomPoissonV2", "Multinomial", "StatefulUniform", "StatefulStandardNormalV2",
    "StatefulTruncatedNormal", "StatefulUniformFullInt", "StatefulRandomBinomial", "RngReadAndSkip",
}  # fmt: skip
ASSIGNMENTS = {"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"}
PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}  # tf.numpy_function and tf.py_function


class Generators:
    """The global random numbers of NumPy and Python, as they were when this was made."""

    def __init__(self) -> None:
        self._numpy, self._python = _numpy_state(), random.getstate()

    def drawn(self) -> list[str]:
        """The modules from which numbers have been drawn since."""
        changed = {"numpy.random": _numpy_state() != self._numpy, "random": random.getstate() != self._python}
        return [name for name, is_changed in changed.items() if is_changed]


def _numpy_state() -> tuple[Any, ...]:
    state = np.random.get_state(legacy=False)
    return state["state"]["key"].tobytes(), state["state"]["pos"], state["has_gauss"]


def check_pure(graph: tf.Graph, before: Generators) -> None:
    """Rejects a traced problem if each call would compute something else.

    Args:
      graph: the problem's.
      before: the generators before the problem was traced: what it draws from them would become a constant.
    """
    kinds = {node.op for node in graphs.nodes(graph)}
    drawing = [*sorted(kinds & RANDOM), *before.drawn()]
    if drawing:
        raise ValueError(
            f"the problem draws random numbers with {', '.join(drawing)}, which no seed determines: a step that is replayed "
            f"or differentiated again would draw other numbers. Draw them with tf.random.stateless_normal or the like, from "
            f"the seed that rf.batches.seeded(batches, seed) adds to each batch."
        )
    assigning = sorted(kinds & ASSIGNMENTS)
    if assigning:
        raise ValueError(
            f"the problem assigns to a variable ({assigning[0]}), so that each call would compute something else. Make what "
            f"changes from step to step a part of the state, or compute it from t or from the batch."
        )

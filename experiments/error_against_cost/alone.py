"""Linear solve and final product alone, from the same solved state: who is fastest to a given error?

Timed: from w in the framework's own tensors to the hypergradient in NumPy: the gradient of the objective, linearisation, K
iterations of the solver, and the product with the hypers. rfho2 takes one training step more, because an engine takes at
least one, and one more product, for the true residual. K is the smallest of a grid with which the error is reached, for each
contestant separately. All are in float32 and interleaved; the best time of several counts. A fixed point, which would take
thousands of iterations, shows how far it comes in its first 1,000.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.common import timing
from experiments.error_against_cost import hypertorch_peer, jaxopt_peer, problems
from experiments.error_against_cost.measure import Call
from experiments.error_against_cost.tasks import Row

GRID = tuple(range(5, 100, 5)) + tuple(range(100, 401, 20))  # of K
MANY = 1000  # iterations of a fixed point, which takes thousands
Solver = Callable[[int], Call]
"""K -> the call with K iterations."""


def rfho2_solver(case: problems.Case, w: np.ndarray) -> Solver:
    """`rf.implicit` by CG, after one step of gradient descent, which leaves a solution unchanged."""
    made = problems.functions(case, tf.float32)
    problem = rf.Problem(rf.gradient_descent(made.loss, case.rate), made.objective, 1)
    params, hypers = tf.constant(w, tf.float32), problems.start(case)[1]

    def build(iterations: int) -> Call:
        engine = rf.implicit(problem, iterations=iterations, tolerance=0.0)
        return lambda: engine(params, hypers).grads["h"].numpy()

    return build


def solvers(
    case: problems.Case, reference: problems.Reference, hypertorch: str | None
) -> tuple[dict[str, Solver], dict[str, str]]:
    """The contestants, and why the remaining ones are missing."""
    w = reference.w
    contestants: dict[str, Solver] = {"rfho2: CG": rfho2_solver(case, w)}
    missing = {}
    for transposed in (False, True):
        copy = ", transposed copy" if transposed else ""
        try:
            package, rate = hypertorch_peer.load(hypertorch), 1 / reference.curvature
            torch_peer = hypertorch_peer.Hypertorch(package, case, rate, transposed)
            contestants[f"hypertorch: CG{copy}"] = functools.partial(torch_peer.from_solution, w, "CG")
            if not transposed:
                contestants["hypertorch: fixed point"] = functools.partial(torch_peer.from_solution, w, "fixed point")
        except ImportError as error:
            missing["hypertorch"] = str(error)
        try:
            jax_peer = jaxopt_peer.Jaxopt(case, transposed)
            contestants[f"jaxopt: CG{copy}"] = functools.partial(jax_peer.from_solution, w, "CG")
        except ImportError as error:
            missing["jaxopt"] = str(error)
    return contestants, missing


def smallest(grid: Sequence[int], build: Solver, error: Callable[[np.ndarray], float], accuracy: float) -> int | None:
    """The smallest K of the grid with which the accuracy is reached, by bisection; None if there is none."""
    low, high = 0, len(grid)  # grid[high] is enough, or does not exist; all before grid[low] are too small
    while low < high:
        middle = (low + high) // 2
        if error(build(grid[middle])()) <= accuracy:
            high = middle
        else:
            low = middle + 1
    return grid[high] if high < len(grid) else None


def compare(
    case: problems.Case, reference: problems.Reference, accuracy: float, rounds: int, hypertorch: str | None
) -> list[Row]:
    """K, error and seconds of each contestant."""
    contestants, missing = solvers(case, reference, hypertorch)
    rows, calls = [], {}
    for name, build in contestants.items():
        print(f"{name}: iterations to an error of {accuracy:g}", flush=True)
        if "fixed point" in name:
            rows.append(_slow(name, build, reference))
            continue
        iterations = smallest(GRID, build, reference.error, accuracy)
        if iterations is None:
            rows.append({"solver": name, "iterations": GRID[-1], "error": None, "seconds": None, "missing": "not reached"})
            continue
        calls[name] = build(iterations)
        rows.append({"solver": name, "iterations": iterations, "error": reference.error(calls[name]()), "missing": None})
    seconds = timing.best_times(calls, rounds)
    rows += [
        {"solver": f"{name}: CG", "iterations": None, "error": None, "seconds": None, "missing": why}
        for name, why in missing.items()
    ]
    return [{**row, "seconds": seconds.get(row["solver"], row.get("seconds"))} for row in rows]


def _slow(name: str, build: Solver, reference: problems.Reference) -> Row:
    """How far a fixed point comes with many iterations, timed once."""
    began = time.perf_counter()
    error = reference.error(build(MANY)())
    seconds = time.perf_counter() - began
    return {"solver": name, "iterations": MANY, "error": error, "seconds": seconds, "missing": None}

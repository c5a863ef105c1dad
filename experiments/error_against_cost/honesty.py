"""What libraries return silently, and what rfho2 says: each row is run, except those marked as read.

Small problems with known answers, in float64 unless stated otherwise. Linear solvers of the peers run 100 iterations or meet
their default tolerance.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.error_against_cost import alone, honesty_peers, hypertorch_peer, jaxopt_peer, problems
from experiments.error_against_cost.small_problems import Equilibrium, Ridge, betty_cg
from experiments.error_against_cost.tasks import Row
from rfho2.core.types import Hypers

EXACT = {"iterations": 100, "tolerance": 1e-13}
READ = (
    ("the rate in the recursion of Z", "adatune", "stays the initial rate for ever, and Adam's matrix lacks an identity"),
    ("steps that are skipped", "FDS", "leave Z as it was, as if they had not been taken; products are clamped to 1"),
    ("CG that has met its tolerance", "BOAT", "returns the iterate before, with the same lines as hypertorch"),
)


def row(case: str, peer: str, theirs: str, truth: str, ours: str, says: str, how: str = "run") -> Row:
    """A row of the table."""
    return {"honesty": case, "peer": peer, "theirs": theirs, "truth": truth, "ours": ours, "says": says, "how": how}


def off(gradient: np.ndarray, truth: np.ndarray) -> str:
    """The relative error, in words."""
    error = np.linalg.norm(gradient - truth) / np.linalg.norm(truth)
    return f"error {error:.0e}" if error < 1e-2 else f"error {error:.2g}"


def listen(problem: rf.Problem, params: tf.Tensor, hypers: dict[str, tf.Tensor], **arguments: Any) -> tuple[np.ndarray, str]:
    """The hypergradient of the only hyper by `rf.implicit`, and the warnings that came with it, or why it was refused."""
    (name,) = hypers
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            hypergradient = rf.implicit(problem, jit_compile=False, **arguments)(params, hypers)
        except ValueError as error:
            return np.full(hypers[name].shape, np.nan), f"ValueError: {error}"
    messages = [str(w.message) for w in caught if "rf.implicit" in str(w.message)]
    norms = f"`norms`: linear residual {float(hypergradient.norms['linear residual']):.0e}"
    return hypergradient.grads[name].numpy(), " ".join(messages) or norms


def ridge_problem(
    r: Ridge, steps: int, momentum: float | None = None, scale: float = 1.0, dtype: Any = tf.float64
) -> rf.Problem:
    """Ridge regression trained by T steps; the learning rate may be a hyper."""
    x, y, xv, yv = (tf.constant(a, dtype) for a in (r.x, r.y, r.xv, r.yv))

    def loss(w: tf.Tensor, hypers: Hypers, batch: None) -> tf.Tensor:
        strengths = tf.exp(hypers["rho"] if "rho" in hypers else tf.constant(r.rho, dtype))
        return tf.reduce_mean((tf.linalg.matvec(x, w) - y) ** 2) + tf.reduce_sum(strengths * w**2)

    def objective(w: tf.Tensor, hypers: Hypers, batch: None) -> tf.Tensor:
        return scale * tf.reduce_mean((tf.linalg.matvec(xv, w) - yv) ** 2)

    def rate(hypers: Hypers, t: tf.Tensor) -> tf.Tensor:
        return hypers.get("lr", tf.constant(r.rate, dtype))

    descent = rf.gradient_descent(loss, rate) if momentum is None else rf.momentum(loss, rate, momentum)
    return rf.Problem(descent, objective, steps)


def ridge(
    r: Ridge, steps: int = 2000, dtype: Any = tf.float64, arguments: dict[str, Any] = EXACT, **changes: Any
) -> tuple[np.ndarray, str]:
    """The hypergradient of ridge regression from w = 0, and what rfho2 says."""
    start = tf.zeros(len(r.rho), dtype), {"rho": tf.constant(r.rho, dtype)}
    return listen(ridge_problem(r, steps, dtype=dtype, **changes), *start, **arguments)


def identity() -> tuple[np.ndarray, str]:
    """J = 1/2 |w - h|^2 and E = 1/2 |w|^2 at h = [2, 4]."""

    def loss(w: tf.Tensor, hypers: Hypers, batch: None) -> tf.Tensor:
        return 0.5 * tf.reduce_sum((w - hypers["h"]) ** 2)

    problem = rf.Problem(rf.gradient_descent(loss, 0.5), lambda w, hypers, batch: 0.5 * tf.reduce_sum(w**2), 100)
    return listen(problem, tf.zeros(2, tf.float64), {"h": tf.constant([2.0, 4.0], tf.float64)}, **EXACT)


def equilibrium(peer: str, theirs: np.ndarray, e: Equilibrium) -> Row:
    """CG on a matrix that is not symmetric."""

    def step(z: tf.Tensor, hypers: Hypers, batch: None, t: tf.Tensor) -> tf.Tensor:
        return tf.tanh(tf.linalg.matvec(tf.constant(e.m), z) + e.c + hypers["b"])

    dynamics = rf.Dynamics(lambda z, hypers: z, step, lambda z: z)
    problem = rf.Problem(dynamics, lambda z, hypers, batch: 0.5 * tf.reduce_sum((z - e.y) ** 2), 2000)
    start = tf.zeros(4, tf.float64), {"b": tf.constant(e.b)}
    ours, _ = listen(problem, *start, tolerance=1e-13)
    _, refused = listen(problem, *start, solver="cg")
    ours_text = f"{off(ours, e.gradient())}, by BiCGSTAB"
    return row("a map that is not symmetric", peer, off(theirs, e.gradient()), "error 0", ours_text, f"with CG, {refused}")


def hypertorch_rows(directory: str | None) -> list[Row]:
    """Rows about hypertorch."""
    r, e = Ridge(), Equilibrium()
    peer = honesty_peers.HypertorchSmall(hypertorch_peer.load(directory), r)
    truth, (ours, says), (same, same_says) = r.gradient(), ridge(r), identity()
    with_momentum, _ = ridge(r, momentum=r.momentum)
    _, refused = ridge(r, momentum=r.momentum, arguments={"condition": "step", "solver": "cg"})
    lr = {"lr": tf.constant(r.rate, tf.float64)}
    _, no_rate = listen(ridge_problem(r, 2000), tf.zeros(len(r.rho), tf.float64), lr)
    cg, fixed_point = "hypertorch: CG", "hypertorch: fixed point"
    return [
        row("CG that has met its tolerance", cg, off(peer.ridge("CG"), truth), "error 0", off(ours, truth), says),
        row("Hessian = identity", cg, str(peer.identity("CG")), "[2. 4.]", str(same), same_says),
        row(
            "CG on the map of momentum", cg, off(peer.ridge("CG", r.momentum), truth), "error 0", off(with_momentum, truth),
            f'condition="gradient" is independent of momentum; with CG and condition="step", {refused}',
        ),
        equilibrium(cg, peer.equilibrium("CG", e), e),
        row("the learning rate as a hyper", fixed_point, f"{float(peer.learning_rate()):.0e}", "0", "refused", no_rate),
    ]  # fmt: skip


def compiled(case: problems.Case, reference: problems.Reference) -> Row:
    """jaxopt under `jax.jit` as users write it: in JAX 0.10.2 on a CPU, CG meets NaN and returns where it started, 0."""
    options = jaxopt_peer.COMPILER_OPTIONS
    peer = jaxopt_peer.Jaxopt(case)
    theirs, right = (peer.from_solution(reference.w, "CG", 100, options=o)() for o in ({}, options))
    ours = alone.rfho2_solver(case, reference.w)(100)()
    with_options = f"{off(right, reference.gradient)} without YNN"
    texts = off(theirs, reference.gradient), with_options, off(ours, reference.gradient)
    return row(
        f"{case.hypers.size:,} digits, compiled, float32", "jaxopt: CG", *texts, "a NaN stays a NaN, and the driver raises"
    )


def jaxopt_rows(case: problems.Case, reference: problems.Reference) -> list[Row]:
    """Rows about jaxopt."""
    jaxopt_peer.load()
    digits = compiled(case, reference)  # first: the others turn 64 bits on
    r, large, e = Ridge(), Ridge(60, 40, 40, 20), Equilibrium()
    peer, scale = honesty_peers.JaxoptSmall(), 1e-25
    w, computed = r.after(4)
    early, unsettled = ridge(r, 4, arguments={})
    default, residual = ridge(large, arguments={})
    tiny, tiny_says = ridge(r, dtype=tf.float32, scale=scale, arguments={})
    sizes = [f"{np.linalg.norm(g):.3f}" for g in (peer.ridge(r, w), computed, early)]
    errors = [off(g, large.gradient()) for g in (peer.ridge(large, large.solution), default)]
    scaled = [off(g / scale, r.gradient()) for g in (peer.tiny(r, scale), tiny)]
    return [
        equilibrium("jaxopt: CG", peer.equilibrium(e), e),
        row("4 steps of training: norm", "jaxopt", sizes[0], f"{sizes[1]} of what was computed", sizes[2], unsettled),
        row("default tolerance, 40 weights", "jaxopt", errors[0], "error 0", errors[1], residual),
        row("objective times 1e-25, float32", "jaxopt: CG", scaled[0], "error 0", scaled[1], tiny_says),
        digits,
    ]


def betty_rows() -> list[Row]:
    """Rows about Betty, by transcription."""
    r = Ridge()
    b = r.right_side(r.solution)
    v = np.linalg.solve(r.hessian, b)
    ours, says = ridge(r, arguments={**EXACT, "iterations": 5})
    right = f"{off(ours, r.gradient())} after 5"
    rows = []
    for alpha in (1.0, 0.1):
        errors = "; ".join(off(betty_cg(r.hessian, b, k, alpha), v) for k in (5, 10, 20))
        theirs = f"{errors} after 5; 10; 20 iterations"
        rows.append(
            row(f"CG on 5 weights, cg_alpha = {alpha:g}", "Betty", theirs, "exact after 5", right, says, "transcribed")
        )
    return rows


def table_rows(hypertorch: str | None, case: problems.Case, reference: problems.Reference) -> list[Row]:
    """All rows; where a peer is missing, one row says so."""
    parts: dict[str, Callable[[], list[Row]]] = {
        "hypertorch": functools.partial(hypertorch_rows, hypertorch),
        "jaxopt": functools.partial(jaxopt_rows, case, reference),
        "Betty": betty_rows,
    }
    rows = []
    for peer, make in parts.items():
        try:
            rows += make()
        except ImportError as error:
            rows.append({**row("-", peer, "-", "-", "-", "-", "not run"), "missing": str(error)})
    return rows + [row(*finding, "-", "-", "-", "read") for finding in READ]

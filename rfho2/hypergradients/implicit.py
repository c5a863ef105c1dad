"""Implicit hypergradients: at the solution of the training, from one linear system instead of the steps that led there."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from rfho2.batches import Stream, constant
from rfho2.core import errors, loops, nest
from rfho2.core.types import Batches, HyperGradient, Hypers, Nest
from rfho2.hypergradients.conditions import condition_of
from rfho2.hypergradients.engine import MethodEngine
from rfho2.hypergradients.method import Method, from_the_start
from rfho2.hypergradients.reverse import pull_back
from rfho2.hypergradients.solution import ImplicitOptions, Schedule, differentiate, value_at
from rfho2.hypergradients.together import spread
from rfho2.hypergradients.unsettled import Reporter
from rfho2.problem import Problem

SOLVERS = ("cg", "bicgstab", "normal", "fixed_point")


def implicit(
    problem: Problem,
    condition: str = "auto",
    solver: str = "auto",
    iterations: int = 50,
    tolerance: Schedule = 1e-4,
    settled: Schedule = 0.0,
    warm_start: bool = False,
    damping: float = 0.0,
    batches: Batches | None = None,
    jit_compile: bool | None = None,
    *,
    single_loop: bool = False,
) -> MethodEngine:
    """Hypergradients at the solution of the training: memory for a few states and time for a few products, independent of T.

    condition "gradient": grad J(w) = 0,  H v = dE/dw,  grad = -v^T d(grad J)/d hypers + dE/d hypers
    condition "step": s = Phi(s),  (I - A)^T v = dE/ds,  grad = v^T dPhi/d hypers + dE/d hypers

    The answer is the derivative of E at the *solution*, not of E after T steps. Away from a solution the two differ, and the
    engine warns: `norms["predicted change"]` is the change of E, to first order, if the training were finished. A learning
    rate does not move the solution: its implicit derivative is 0, and it is refused.

    Args:
      problem: `steps` is the largest number of training steps; with `warm_start`, of each hyper-iteration.
      condition: "gradient" is independent of the optimiser, and needs a step without decoupled decay; "step" works with any
        step that converges to a fixed point: projected or proximal gradients, equilibrium models, custom steps. "auto" is
        "gradient" where the step has one.
      solver: "cg" needs a symmetric matrix, which "gradient" has; "bicgstab" solves with any; "normal" is slower and
        steadier, and needs forward mode with "step"; "fixed_point" sums `iterations` terms of the Neumann series: n terms
        look back n steps, and 1 is one-step differentiation. "auto" is "cg" for "gradient" and "bicgstab" for "step".
      iterations: the largest number of iterations of the solver.
      tolerance: of the linear residual, relative to dE/ds; a number, or a function of the hyper-iteration k.
      settled: stop the training when a step moves the params by at most this fraction; a number, or a function of k. 0
        takes all steps.
      warm_start: continue training and solver where the last hyper-iteration ended, because the hypers move little.
      damping: d in (M + d I) v = b, for a singular or indefinite matrix; it biases the hypergradient.
      batches: index -> batch on which the linear system is built; by default the training batches. "fixed_point" takes the
        next batch for each product, and then runs all its iterations; the other solvers use one, which should be large.
      jit_compile: None tries XLA and falls back to the graph; True or False decides.
      single_loop: let training, linear system and hypers advance together (SOBA; Dagréou et al., 2022): each hyper-iteration
        takes one step and one product, both at the same state, and continues from the last. It is the cheapest, but the
        hypers have to move slowly, and the first hypergradients are far from exact. `problem.steps` is 1, and the other
        arguments keep their defaults.

    Returns:
      An engine, `engine(params, hypers, k=0) -> HyperGradient(value, grads, state, norms)`. The norms are "residual" (the
      norm of F), "predicted change", "unsettled" (the same relative to the size of E), "linear residual", "products" and,
      for CG, "curvature".

    >>> import rfho2 as rf
    >>> loss = lambda w, hypers, batch: 0.5 * (w - hypers["target"]) ** 2
    >>> problem = rf.Problem(rf.gradient_descent(loss, 0.5), lambda w, hypers, batch: 0.5 * w**2, steps=50)
    >>> engine = rf.implicit(problem, jit_compile=False)
    >>> round(engine(tf.constant(0.0), {"target": 3.0}).grads["target"].numpy().item(), 4)  # w = target, E = target^2 / 2
    3.0
    """
    if single_loop:
        arguments = {"condition": (condition, "auto"), "solver": (solver, "auto"), "iterations": (iterations, 50)}
        arguments |= {"tolerance": (tolerance, 1e-4), "settled": (settled, 0.0), "warm_start": (warm_start, False)}
        arguments |= {"damping": (damping, 0.0), "batches": (batches, None)}
        chosen = [f"{name} is {value!r:.40}" for name, (value, default) in arguments.items() if value != default]
        if chosen:
            raise ValueError(f"{', '.join(chosen)}, but single_loop=True does not use it; leave it out.")
        return _single_loop_engine(problem, jit_compile)
    options = _checked(problem, condition, solver, iterations, tolerance, settled, damping, batches)
    settings = {**_settings(options, warm_start), "steps": problem.steps, "jit_compile": jit_compile}
    reporter = Reporter(settings)

    def make(problem: Problem, *_: Any) -> Method:
        problem_options = _checked(
            problem, condition, solver, iterations, tolerance, settled, damping, spread(batches, problem)
        )
        return (_warm if warm_start else _cold)(problem, problem_options)._replace(report=reporter.look)

    return MethodEngine(problem, settings, make, afresh=not warm_start)


def _settings(options: ImplicitOptions, warm_start: bool) -> dict[str, Any]:
    """Plain values for the engine's settings; a schedule by its first values."""

    def described(schedule: Schedule) -> Any:
        if not callable(schedule):
            return schedule
        return [float(value_at(schedule, tf.constant(k), tf.float64)) for k in range(3)]

    return {
        "method": "implicit",
        "condition": options.condition.name,
        "solver": options.solver,
        "iterations": options.iterations,
        "tolerance": None if options.renewed else described(options.tolerance),
        "settled": described(options.settled),
        "warm_start": warm_start,
        "damping": options.damping,
        "batches": "of the training" if options.batches is None else "its own",
    }


def _cold(problem: Problem, options: ImplicitOptions) -> Method:
    """Trains from the start at every hyper-iteration."""

    def hypergradient(params: Nest, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        state = problem.dynamics.init(params, hypers)
        return differentiate(problem, options, state, tf.constant(0), None, hypers, k).hypergradient

    return from_the_start(hypergradient)


class WarmCarry(NamedTuple):
    """The values that one hyper-iteration passes on to the next: s, one adjoint v per objective, and t."""

    state: Nest
    adjoints: list[Nest]
    t: tf.Tensor


def _warm(problem: Problem, options: ImplicitOptions) -> Method:
    """Continues the training and the solution of the linear system."""

    def start(params: Nest, hypers: Hypers) -> WarmCarry:
        state = problem.dynamics.init(params, hypers)
        zeros = [nest.zeros_like(options.condition.point(state)) for _ in problem.terms(hypers)]
        return WarmCarry(state, zeros, tf.constant(0))

    def advance(carry: WarmCarry, hypers: Hypers, k: tf.Tensor, streamed: Nest) -> tuple[HyperGradient, WarmCarry]:
        t, k = loops.unknown((carry.t, k))  # as in MethodEngine
        result = differentiate(problem, options, carry.state, t, carry.adjoints, hypers, k)
        after = WarmCarry(result.hypergradient.state, result.adjoints, result.t)
        return result.hypergradient._replace(state=()), after

    return Method(start, advance, forget=lambda carry: carry._replace(adjoints=nest.zeros_like(carry.adjoints)))


def _single_loop_engine(problem: Problem, jit_compile: bool | None) -> MethodEngine:
    _check_problem(problem, None)
    if problem.steps != 1:
        raise ValueError(f"steps is {problem.steps}; with single_loop=True a hyper-iteration takes one step: use steps=1.")
    settings = {"method": "implicit", "single_loop": True, "steps": 1, "jit_compile": jit_compile}
    return MethodEngine(problem, settings, lambda problem, *_: _single_loop(problem), afresh=False)


def _single_loop(problem: Problem) -> Method:
    """s <- Phi(s),  v <- A^T v + dE/ds,  grad = v^T B + dE/d hypers: all on the right at the same s, v and hypers."""

    def start(params: Nest, hypers: Hypers) -> WarmCarry:
        state = problem.dynamics.init(params, hypers)
        return WarmCarry(state, [nest.zeros_like(state) for _ in problem.terms(hypers)], tf.constant(0))

    def advance(carry: WarmCarry, hypers: Hypers, k: tf.Tensor, streamed: Nest) -> tuple[HyperGradient, WarmCarry]:
        t, k = loops.unknown((carry.t, k))  # as in MethodEngine
        state, adjoints, terms = carry.state, carry.adjoints, problem.terms(hypers)
        costs = [term.cost(problem.dynamics, state, hypers, term.batch(k)) for term in terms]
        carried = [cost._replace(state=v) for cost, v in zip(costs, adjoints, strict=True)]
        pulled = pull_back(lambda state, hypers: problem.step(state, hypers, t, k), state, hypers, carried)
        after = [nest.add(one.state, cost.state) for one, cost in zip(pulled, costs, strict=True)]
        new = problem.step(state, hypers, t, k)
        residual = nest.map(tf.subtract, new, state)
        grads = {name: grad for one in pulled for name, grad in one.hypers.items()}
        value = problem.value(terms, [cost.value for cost in costs])
        change = tf.add_n([nest.dot(v, residual) for v in adjoints])
        moved = nest.norm(nest.map(tf.subtract, after, adjoints)) / nest.norm([cost.state for cost in costs])
        norms = {"residual": nest.norm(residual), "predicted change": change, "linear residual": moved}
        hypergradient = HyperGradient(value, {name: grads[name] for name in hypers}, (), norms)
        return hypergradient, WarmCarry(new, after, t + 1)

    return Method(start, advance, forget=lambda carry: carry._replace(adjoints=nest.zeros_like(carry.adjoints)))


def _checked(
    problem: Problem,
    condition: str,
    solver: str,
    iterations: int,
    tolerance: Schedule,
    settled: Schedule,
    damping: float,
    batches: Batches | None,
) -> ImplicitOptions:
    _check_problem(problem, batches)
    resolved = condition_of(problem, condition)
    if solver not in ("auto", *SOLVERS):
        raise ValueError(f"solver is {solver!r}; choose 'auto', {', '.join(map(repr, SOLVERS))}.")
    if solver == "auto":
        solver = "cg" if resolved.name == "gradient" else "bicgstab"
    for argument, value in (("tolerance", tolerance), ("settled", settled), ("damping", damping)):
        if not (callable(value) and argument != "damping") and not (isinstance(value, int | float) and value >= 0):
            raise ValueError(f"{argument} is {value!r}; it has to be a number, 0 or more.")
    source = problem.batches if batches is None else batches
    renewed = solver == "fixed_point" and not constant(source)
    return ImplicitOptions(
        resolved, solver, errors.check_count("iterations", iterations), tolerance, settled, damping, batches, renewed
    )


def _check_problem(problem: Problem, batches: Batches | None) -> None:
    if problem.steps is None:
        raise ValueError("steps is None, which only rf.real_time accepts; rf.implicit needs the largest number of steps.")
    if batches is not None:
        errors.check_callable("batches", batches, "index -> batch, such as rf.batches.full(data)")
    if isinstance(problem.batches, Stream) or isinstance(batches, Stream):
        raise TypeError("batches is a stream, which rf.implicit cannot read; use rf.batches.shuffled or rf.batches.cached.")
    running = [term.name or "objective" for term in problem.terms(()) if term.every is not None]
    if running:
        raise ValueError(
            f"{', '.join(running)}: an rf.RunningCost is a sum along the training, which has no meaning at its solution. "
            f"Pass the plain function, or use rf.reverse."
        )

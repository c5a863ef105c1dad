"""The mean hypergradient of several episodes, computed one after the other or all together."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from rfho2.core import errors, loops, nest
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.hypergradients.engine import Engine, Make, MethodEngine, Processes
from rfho2.hypergradients.method import Method, from_the_start
from rfho2.hypergradients.together import Together
from rfho2.hypergradients.vectorise import Stacked, stack
from rfho2.problem import Problem


def average(engine: Engine, n: int, together: bool = False) -> MethodEngine:
    """The mean hypergradient of n episodes: hyper-iteration k covers episodes k n, k n + 1, ..., k n + n - 1.

    value = 1/n sum over i of E_i,  grad = 1/n sum over i of grad E_i

    Training batches `(t, k)`, validation batches and a function k -> params all receive the number of the episode in
    place of k; whatever does not depend on it is the same in all episodes. `state` is that of the last episode, and norms
    are means. Use it to learn an initialisation over many tasks, or hypers that are good for every random seed.

    Args:
      engine: `rf.reverse(problem)`, `rf.forward(problem)` or `rf.implicit(problem)`; its `jit_compile` applies.
      n: episodes in each hyper-iteration.
      together: False computes them one after the other, in the memory of one. True vectorises each training step over the
        episodes: memory for n, and faster where one episode alone leaves the machine idle, as small networks do. With
        `rf.implicit` the episodes then share one linear system, whose residual and products are reported.

    Returns:
      An engine, `engine(params, hypers, k=0) -> HyperGradient(value, grads, state, norms)`.

    >>> import rfho2 as rf
    >>> loss = lambda w, hypers, target: 0.5 * hypers["c"] * (w - target) ** 2
    >>> error = lambda w, hypers, target: (w - target) ** 2
    >>> target = lambda k: tf.cast(k, tf.float32)
    >>> problem = rf.Problem(rf.gradient_descent(loss, 0.5), error, 1, lambda t, k: target(k), target)
    >>> engine = average(rf.reverse(problem, jit_compile=False), n=3)
    >>> round(engine(tf.constant(0.0), {"c": 1.0}).value.numpy().item(), 6)  # the mean of 0, 1/4 and 1
    0.416667
    """
    n = errors.check_count("n", n)
    if isinstance(engine, MethodEngine) and not engine.afresh:
        raise TypeError(
            f"engine is rf.{engine.settings['method']}, which continues one training run: its hyper-iterations are not "
            f"separate episodes. Pass rf.reverse(problem), rf.forward(problem), or rf.implicit(problem) without warm_start."
        )
    if type(engine) is not MethodEngine or type(engine.processes) is not Processes:
        raise TypeError(
            f"engine is {type(engine).__name__}; pass rf.reverse(problem), rf.forward(problem) or rf.implicit(problem). In "
            f"place of rf.auto, pass the engine that print(rf.plan(...)) names; on a mesh, average first: "
            f"rf.distribute.on_mesh(rf.average(engine, n), mesh)."
        )
    settings = {"method": "average", "n": n, "together": together, "engine": dict(engine.settings)}
    settings |= {"steps": engine.problem.steps, "jit_compile": engine.settings["jit_compile"]}
    averaged, make = _all_together if together else _one_after_the_other, engine.make
    return MethodEngine(engine.problem, settings, lambda *args: averaged(make, n, *args), afresh=True)


def _one_after_the_other(make: Make, n: int, problem: Problem, params: Nest, hypers: Hypers) -> Method:
    """A loop whose body is one hypergradient."""
    single = make(problem, params, hypers)

    def params_at(function: Callable[[tf.Tensor], Nest], k: tf.Tensor) -> Nest:
        """The params of all episodes, which take little memory compared with the states of one training."""
        return stack(lambda episode: single.params_at(function, episode), k, n)

    def mean(params: Nest, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        # A separate function, so that the sums can start at 0 without tracing an episode twice.
        @tf.function(autograph=False)
        def episode(i: tf.Tensor) -> HyperGradient:
            start = nest.map(lambda leaf: leaf[i], params.each) if isinstance(params, Stacked) else params
            return single.advance(start, hypers, k * n + i, ())[0]

        def add(carry: tuple[Nest, Nest], i: tf.Tensor) -> tuple[Nest, Nest]:
            value, grads, state, norms = episode(i)
            return nest.add(carry[0], (value, grads, norms)), state

        specs = episode.get_concrete_function(tf.TensorSpec([], tf.int32)).structured_outputs
        value, grads, state, norms = nest.map(lambda spec: tf.zeros(spec.shape, spec.dtype), specs)
        sums, state = loops.fold(add, ((value, grads, norms), state), 0, n)
        value, grads, norms = nest.map(lambda total: total / n, sums)
        return HyperGradient(value, grads, state, norms)

    return from_the_start(mean, params_at=params_at, report=single.report)


def _all_together(make: Make, n: int, problem: Problem, params: Nest, hypers: Hypers) -> Method:
    """The same method for the problem of all episodes."""
    vectorised = make(Together.of(problem, n), params, hypers)

    def params_at(function: Callable[[tf.Tensor], Nest], k: tf.Tensor) -> Nest:
        return vectorised.params_at(lambda k: stack(function, k, n), k)

    def mean(params: Nest, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        hypergradient = vectorised.advance(params, hypers, k, ())[0]
        return hypergradient._replace(state=nest.map(lambda leaf: leaf[-1], hypergradient.state))

    return from_the_start(mean, params_at=params_at, report=vectorised.report)

"""The mean hypergradient of several episodes, computed one after the other or all together."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from rfho2.core import errors, loops, nest
from rfho2.core.types import HyperGradient, Hypers, Nest
from rfho2.hypergradients.engine import Engine, OfflineEngine, OnlineEngine
from rfho2.hypergradients.together import Together
from rfho2.hypergradients.vectorise import Stacked, stack


def average(engine: Engine, n: int, together: bool = False) -> AverageEngine:
    """The mean hypergradient of n episodes: hyper-iteration k covers episodes k n, k n + 1, ..., k n + n - 1.

    value = 1/n sum over i of E_i,  grad = 1/n sum over i of grad E_i

    Training batches `(t, k)`, validation batches and a function k -> params all receive the number of the episode in the
    place of k; what does not depend on it is the same in all of them. `state` is that of the last episode, and norms are
    means. Use it to learn an initialisation over many tasks, or hypers that are good for every random seed.

    Args:
      engine: `rf.reverse(problem)`, `rf.forward(problem)` or `rf.implicit(problem)`; with its `jit_compile`.
      n: episodes in each hyper-iteration.
      together: False computes them one after the other, in the memory of one. True vectorises each training step over the
        episodes: memory for n, and faster where one episode alone leaves the machine idle, as small networks do. With
        `rf.implicit` the episodes then share one linear system, whose residual and products are reported.

    Returns:
      An engine, `engine(params, hypers, k=0) -> HyperGradient(value, grads, state)`.

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
    if isinstance(engine, OnlineEngine):
        raise TypeError(
            f"engine is rf.{engine.settings['method']}, which continues one training run: its hyper-iterations are not "
            f"separate episodes. Pass rf.reverse(problem), rf.forward(problem), or rf.implicit(problem) without warm_start."
        )
    if not isinstance(engine, OfflineEngine):
        raise TypeError(
            f"engine is {type(engine).__name__}; pass rf.reverse(problem), rf.forward(problem) or rf.implicit(problem). In "
            f"the place of rf.auto pass the engine that print(rf.plan(...)) names; on a mesh, average first: "
            f"rf.distribute.on_mesh(rf.average(engine, n), mesh)."
        )
    return AverageEngine(engine, n, together)


class AverageEngine(OfflineEngine):
    """See `average`."""

    def __init__(self, engine: OfflineEngine, n: int, together: bool):
        settings = {"method": "average", "n": n, "together": together, "engine": dict(engine.settings)}
        how = AllTogether(engine, n) if together else OneAfterTheOther(engine, n)
        super().__init__(engine.problem, how.mean, settings, engine.settings["jit_compile"])
        self.report, self._how = engine.report, how
        if engine.rebuild is not None:
            rebuild = engine.rebuild
            self.rebuild = lambda problem: AverageEngine(rebuild(problem), n, together)

    def episode_params(self, function: Callable[[tf.Tensor], Nest], k: tf.Tensor) -> Nest:
        """What the episodes of hyper-iteration k start from."""
        return self._how.episode_params(function, k)


class OneAfterTheOther:
    """The mean over n episodes, in a loop whose body is one hypergradient."""

    def __init__(self, engine: OfflineEngine, n: int):
        self.engine, self.n = engine, n

    def episode_params(self, function: Callable[[tf.Tensor], Nest], k: tf.Tensor) -> Nest:
        """The params of all episodes, which take little memory beside the states of one training."""
        return stack(lambda episode: self.engine.episode_params(function, episode), k, self.n)

    def mean(self, params: Nest, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        """The mean hypergradient, from the params of all episodes."""
        n = self.n

        # A function of its own, so that the sums can be started at 0 without tracing an episode twice.
        @tf.function(autograph=False)
        def episode(i: tf.Tensor) -> HyperGradient:
            own = nest.map(lambda leaf: leaf[i], params.each) if isinstance(params, Stacked) else params
            return self.engine.uncompiled(own, hypers, k * n + i)

        first = episode.get_concrete_function(tf.TensorSpec([], tf.int32)).structured_outputs
        if not isinstance(first, HyperGradient):
            raise TypeError(f"engine is {type(self.engine).__name__}, which cannot be averaged: processes share its work.")

        def add(carry: tuple[Nest, Nest], i: tf.Tensor) -> tuple[Nest, Nest]:
            value, grads, state, norms = episode(i)
            return nest.add(carry[0], (value, grads, norms)), state

        value, grads, state, norms = nest.map(lambda spec: tf.zeros(spec.shape, spec.dtype), first)
        sums, state = loops.fold(add, ((value, grads, norms), state), 0, n)
        value, grads, norms = nest.map(lambda total: total / n, sums)
        return HyperGradient(value, grads, state, norms)


class AllTogether:
    """The mean over n episodes, by the same kind of engine for the problem of all of them."""

    def __init__(self, engine: OfflineEngine, n: int):
        if engine.rebuild is None:
            raise ValueError(f"together is True, but {type(engine).__name__} cannot be vectorised; use together=False.")
        self.engine, self.n = engine.rebuild(Together.of(engine.problem, n)), n

    def episode_params(self, function: Callable[[tf.Tensor], Nest], k: tf.Tensor) -> Nest:
        """The params of all episodes."""
        return self.engine.episode_params(lambda k: stack(function, k, self.n), k)

    def mean(self, params: Nest, hypers: Hypers, k: tf.Tensor) -> HyperGradient:
        """The mean hypergradient, from the params of all episodes."""
        hypergradient = self.engine.uncompiled(params, hypers, k)
        return hypergradient._replace(state=nest.map(lambda leaf: leaf[-1], hypergradient.state))

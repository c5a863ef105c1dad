"""Tunes a Keras model offline: trains it repeatedly, each time with better hypers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from rfho2 import batches
from rfho2.core import nest
from rfho2.core.compiled import Compiled
from rfho2.core.types import Hypers, Nest, Result
from rfho2.driver.hyper_optimizer import HyperOptimizer
from rfho2.hypergradients.forward import forward
from rfho2.hypergradients.reverse import reverse
from rfho2.keras_bridge.data import sources
from rfho2.keras_bridge.training.hyper_update import hyper_update
from rfho2.keras_bridge.training.keras_training import make_training
from rfho2.keras_bridge.tuners.checks import check_training
from rfho2.planning.auto import auto
from rfho2.problem import Problem

METHODS = ("auto", "reverse", "forward")


class Tuned(NamedTuple):
    """The result of `tune`.

    Attributes:
      hypers: the best hypers, on the user's scale.
      model: the model passed to `tune`, with the final weights.
      result: the driver's result: history, best hyper-iteration, last state.
    """

    hypers: dict[str, np.ndarray]
    model: keras.Model
    result: Result


def tune(
    model: keras.Model,
    loss: Any,
    train: Any,
    validation: Any,
    hypers: Sequence[str] | Mapping[str, Any] = ("learning_rate",),
    method: str = "auto",
    *,
    steps: int = 200,
    batch_size: int = 32,
    iterations: int = 30,
    optimizer: Any = None,
    per_layer: bool | str | Sequence[str] = False,
    hyper_rate: float = 0.2,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    refit: bool = True,
    memory: str | int | None = None,
    callbacks: Sequence[Any] = (),
    batch_norm: str = "batch",
    seed: int = 0,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    jit_compile: bool | None = None,
    check: bool = True,
) -> Tuned:
    """Finds the hypers that minimise the validation loss after `steps` training steps, and trains the model with them.

    Args:
      model, loss, hypers, optimizer, per_layer, ranges, batch_norm, seed, jit_compile, check: as for `rf.RealTimeTuner`;
        method "auto" always tries XLA.
      train, validation: arrays (x, y) or (x, y, sample_weight), or finite datasets of such batches, which are read into
        memory.
      method: "reverse" (many hypers), "forward" (few hypers, long training), or "auto", which measures both and chooses.
      steps: T, the length of each training.
      batch_size: of each training batch.
      iterations: number of hyper-iterations. Each is one training, which in reverse mode takes about 3 times as long as a
        plain one.
      hyper_rate: about the relative change of a learning rate at each hyper-iteration.
      refit: whether the model is trained once more, with the best hypers, on training and validation examples together.
        False leaves it with the weights that the best hypers gave on the training examples.
      memory: the memory that "auto" may use, such as "2GB".
      callbacks: rfho2's callbacks, such as `rf.ProgressBar()`.
      checkpoint_dir: a killed call resumes if it is repeated with the same directory.

    >>> import keras
    >>> import rfho2 as rf
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 3)).astype("float32")
    >>> y = x @ np.array([1.0, -2.0, 0.5], "float32")
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> tuned = rf.tune(model, "mse", (x[:60], y[:60]), (x[60:], y[60:]), {"learning_rate": 1e-3}, "reverse",
    ...                 steps=20, iterations=5, jit_compile=False)
    >>> tuned.result.best.value < tuned.result.history[0]["value"]
    True
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; choose one of {METHODS}.")
    examples, held_out = sources.in_memory(train, "train"), sources.in_memory(validation, "validation")
    if refit and len(examples) != len(held_out):
        raise ValueError("only one of train and validation has sample weights; pass them with both, or refit=False.")
    training = make_training(model, loss, hypers, optimizer, per_layer, ranges, batch_norm)
    check_training(model, training, examples, check=check)
    tunables, params = training.tunables, training.model.params

    def problem(data: tuple[Nest, Nest]) -> Problem:
        order = batches.seeded(batches.shuffled(data, batch_size, seed), seed + 1)
        return Problem(training.dynamics(), training.objective, steps, order, batches.full(held_out))

    def named(state: Nest, hypers: Hypers, k: int) -> dict[str, float]:
        return tunables.named(hypers)

    named.needs_state = False  # type: ignore[attr-defined]
    make = forward if method == "forward" else reverse
    engine = auto(problem(examples), memory) if method == "auto" else make(problem(examples), jit_compile=jit_compile)
    driver = HyperOptimizer(
        engine, hyper_update(tunables, hyper_rate), callbacks, named, on_divergence=tunables.with_lower_learning_rate
    )
    result = driver.run(params, tunables.to_internal(tunables.start), iterations, checkpoint_dir)
    assert result.best is not None
    state = result.best.state
    if refit:
        both = nest.map(lambda a, b: np.concatenate([a, b]), examples, held_out)
        state = Compiled(problem(both).train, jit_compile)(params, result.best.hypers)
    training.model.assign(training.dynamics().params(state), examples[0])
    return Tuned({n: v.numpy() for n, v in tunables.to_user(result.best.hypers).items()}, model, result)

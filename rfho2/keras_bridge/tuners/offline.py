"""Tunes a Keras model offline: trains it repeatedly, each time with better hypers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from rfho2 import batches
from rfho2.core import errors, nest
from rfho2.core.compiled import Compiled, graph_function
from rfho2.core.types import Batches, Hypers, Nest, Result
from rfho2.driver.hyper_optimizer import HyperOptimizer
from rfho2.hypergradients.average import average
from rfho2.hypergradients.engine import MethodEngine
from rfho2.hypergradients.forward import forward
from rfho2.hypergradients.reverse import reverse
from rfho2.keras_bridge.data import sources
from rfho2.keras_bridge.data.datasets import Examples
from rfho2.keras_bridge.training.hyper_update import hyper_update
from rfho2.keras_bridge.training.keras_training import (
    ANY_SEED,
    KerasTraining,
    compile_with,
    make_training,
    seeded_validation,
)
from rfho2.keras_bridge.training.knot_schedules import SETTINGS, KnotCallback, KnotSchedule, keras_schedules
from rfho2.keras_bridge.training.metrics import Metrics, rises
from rfho2.keras_bridge.training.schedules import scaled
from rfho2.keras_bridge.training.tunables import separate_hypers
from rfho2.keras_bridge.tuners.checks import check_metrics, check_training
from rfho2.keras_bridge.tuners.model_settings import ModelSettings
from rfho2.keras_bridge.tuners.seeds import initial_weights, of_episode
from rfho2.keras_bridge.tuners.stages import Stages, with_bar
from rfho2.keras_bridge.wrapping.frozen import divided
from rfho2.keras_bridge.wrapping.model import from_keras
from rfho2.keras_bridge.wrapping.pure_model import Params
from rfho2.planning.auto import auto
from rfho2.planning.plan import plan
from rfho2.problem import Problem

METHODS = ("auto", "reverse", "forward")


class Tuned(NamedTuple):
    """The result of `tune`.

    Attributes:
      hypers: the best hypers, on the user's scale; a list of numbers if a hyper has several, such as knots.
      model: the model passed to `tune`, compiled, with the final weights and the tuned learning rate and momentum.
      result: the driver's result: history, best hyper-iteration, last state. Its history has the hypers on the user's scale;
        its `hypers` are on the scale on which they are tuned (logarithms of learning rates).
      schedules: the schedule of each hyper with knots, for use with `model.fit`: a learning rate for the optimizer, or a
        callback. `schedules[name].stretched(steps)` is the same for a training of another length.
    """

    hypers: dict[str, float | list[float]]
    model: keras.Model
    result: Result
    schedules: Mapping[str, KnotSchedule | KnotCallback] = MappingProxyType({})

    def __repr__(self) -> str:
        hypers = [f"{name} {', '.join(f'{v:.4g}' for v in np.atleast_1d(value))}" for name, value in self.hypers.items()]
        assert self.result.best is not None
        k = self.result.best.iteration
        best = self.result.history[k]
        scores = {name: v for name, v in best.items() if name.startswith("val_")} or {"val_loss": best["value"]}
        measured = ", ".join(f"{name} {score:.6g}" for name, score in scores.items())
        last = len(self.result.history) - 1
        return f"Tuned '{self.model.name}': {'; '.join(hypers)}; {measured} at hyper-iteration {k} of 0 to {last}"


def tune(
    model: keras.Model,
    loss: Any = None,
    train: Any = None,
    validation: Any = None,
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
    metrics: Any = None,
    best_by: str = "val_loss",
    best_mode: str = "auto",
    schedule: Mapping[str, int] | None = None,
    seeds: int = 1,
    refit: bool = True,
    memory: str | int | None = None,
    callbacks: Sequence[Any] = (),
    batch_norm: str = "batch",
    seed: int = 0,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    jit_compile: bool | None = None,
    check: bool = True,
    verbose: str | int = "auto",
) -> Tuned:
    """Finds the hypers that minimise the validation loss after `steps` training steps, and trains the model with them.

    Ctrl-C raises `KeyboardInterrupt`, whose `.result` is what has been found so far, as a `Tuned` without refit.

    Args:
      model, loss, hypers, optimizer, per_layer, ranges, metrics, batch_norm, seed, jit_compile, check: as for
        `rf.RealTimeTuner`; method "auto" always tries XLA.
      train, validation: arrays (x, y) or (x, y, sample_weight), or finite datasets of such batches, which are read into
        memory.
      method: "reverse" (many hypers), "forward" (few hypers, long training), or "auto", which measures both and chooses.
      steps: T, the length of each training, in batches: epochs * (examples // batch_size).
      batch_size: of each training batch.
      iterations: number of hyper-iterations. Each is one training, which in reverse mode takes 3 to 4 times as long as a
        plain one.
      hyper_rate: about the relative change of a learning rate at each hyper-iteration.
      best_by: what the best hyper-iteration is chosen by: "val_loss", which the hypergradients minimise, or a metric on the
        validation data, such as "val_accuracy".
      best_mode: "min" or "max"; "auto" knows the direction of Keras's own metrics.
      schedule: hypers that change in the course of the training, each with the number of its knots: {"learning_rate": 6}
        tunes six rates at equal distances, between which the logarithm of the rate is linear. With a schedule in the
        compiled optimizer, the knots are factors on it. See `Tuned.schedules`.
      seeds: the number of trainings that a hypergradient is averaged over, each with other initial weights (those of copies
        of the model; its own in the last) and another order of the examples. Leave it at 1 for a pretrained model. Metrics,
        and the weights without refit, are those of the model's own weights.
      refit: whether the model is trained once more, with the best hypers, on training and validation examples together.
        False leaves it with the weights that the best hypers gave on the training examples.
      memory: the memory that "auto" may use, such as "2GB".
      callbacks: rfho2's callbacks, such as `rf.ProgressBar()`.
      checkpoint_dir: a killed call resumes if it is repeated with the same directory.
      verbose: 0 hides the progress bar.

    >>> import keras
    >>> import rfho2 as rf
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(80, 3)).astype("float32")
    >>> y = x @ np.array([1.0, -2.0, 0.5], "float32")
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> tuned = rf.tune(model, "mse", (x[:60], y[:60]), (x[60:], y[60:]), {"learning_rate": 1e-3}, "reverse",
    ...                 steps=20, iterations=5, jit_compile=False, verbose=0)
    >>> tuned.result.best.value < tuned.result.history[0]["value"]
    True
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; choose one of {METHODS}.")
    for name, data in (("train", train), ("validation", validation)):
        if data is None:
            raise ValueError(f"{name} is None; pass arrays (x, y), or a dataset of batches.")
    callbacks = with_bar(callbacks, verbose)
    seeds, steps = errors.check_count("seeds", seeds), errors.check_count("steps", steps)
    examples, held_out = sources.in_memory(train, "train"), sources.in_memory(validation, "validation")
    if refit and len(examples) != len(held_out):
        raise ValueError("only one of train and validation has sample weights; pass them with both, or refit=False.")
    knots = _checked_schedule(schedule, hypers, per_layer, steps)
    training = make_training(model, loss, hypers, optimizer, per_layer, ranges, batch_norm, knots, steps)
    if "weight_decay" in knots and not training.optimizer.decoupled:
        raise ValueError(
            f"schedule has 'weight_decay', but with optimizer '{training.optimizer.name}' that is a penalty in the loss, "
            f"which Keras cannot schedule. Use AdamW, or build the optimizer with weight_decay=1e-4."
        )
    compile_with(model, training, optimizer, loss, metrics)
    stages, whole = Stages(bool(verbose)), held_out
    parts = divided(model)
    if parts is not None and parts.fits(len(nest.flatten(examples)[0])):
        with stages(parts.told):
            examples, held_out = ((parts.of_arrays(data[0]), *data[1:]) for data in (examples, held_out))
        training = training._replace(model=from_keras(parts.head, batch_norm=batch_norm, check=False))
    check_training(model, training, examples, held_out[1], check, ("train", "validation"))
    check_metrics(model, whole)
    tunables, params = training.tunables, training.model.params

    validation_batches = seeded_validation(training, batches.full(held_out), seed + 3)

    def order(data: tuple[Nest, ...]) -> Batches:
        return batches.seeded(batches.shuffled(data, batch_size, seed), seed + 1)

    def problem(order: Batches) -> Problem:
        return Problem(training.dynamics(), training.objective, steps, order, validation_batches)

    score, measured = _validation_metrics(model, training, held_out, best_by, best_mode)

    def measure(state: Nest, hypers: Hypers, k: int) -> dict[str, float]:
        return {**tunables.named(hypers), **(measured(training.dynamics().params(state)) if measured else {})}

    measure.needs_state = measured is not None  # type: ignore[attr-defined]
    starting_hypers, usual_order = tunables.to_internal(tunables.start), order(examples)

    def make(problem: Problem) -> MethodEngine:
        return (forward if method == "forward" else reverse)(problem, jit_compile=jit_compile)

    if method == "auto":
        stages.say("Comparing reverse and forward mode first; method='reverse' or 'forward' saves that time.")
    start: Any = params
    if seeds == 1:
        engine = auto(problem(usual_order), memory) if method == "auto" else make(problem(usual_order))
    else:
        if method == "auto":
            make = plan(problem(usual_order), params, starting_hypers, memory).chosen.build
        start, orders = of_episode(initial_weights(model, params, seeds, seed), usual_order, steps)
        engine = average(make(problem(orders)), seeds)
        if method == "auto":  # measured times decide, so a resumed call may choose another method, as `auto` may
            chosen = {"method": "auto", "memory": memory}
            engine = MethodEngine(engine.problem, {**engine.settings, "engine": chosen}, engine.make, afresh=True)
    driver = HyperOptimizer(
        engine,
        hyper_update(tunables, hyper_rate),
        callbacks,
        measure,
        best_by=score,
        on_divergence=tunables.with_lower_learning_rate,
    )

    def tuned(result: Result, refit: bool) -> Tuned:
        assert result.best is not None
        state = result.best.state
        if refit:
            both = nest.map(lambda a, b: np.concatenate([a, b]), examples, held_out)
            with stages("Training with the best hypers, on all examples"):
                state = Compiled(problem(order(both)).train, jit_compile)(params, result.best.hypers)
        training.model.assign(training.dynamics().params(state), examples[0])
        best = {name: value.numpy() for name, value in tunables.to_user(result.best.hypers).items()}
        last = {name: value[-1] if name in knots else value for name, value in best.items()}
        ModelSettings(model, training.optimizer).end(last, steps)
        compiled = training.optimizer.schedule
        if compiled is not None and training.optimizer.first_step:
            compiled = scaled(compiled, 1.0, training.optimizer.first_step)
        schedules = keras_schedules({name: best[name] for name in knots}, steps, compiled)
        return Tuned({name: value.tolist() for name, value in best.items()}, model, result, schedules)

    try:
        return tuned(driver.run(start, starting_hypers, iterations, checkpoint_dir), refit)
    except KeyboardInterrupt as error:
        so_far = getattr(error, "result", None)
        if isinstance(so_far, Result) and so_far.best is not None:
            error.result = tuned(so_far, refit=False)  # type: ignore[attr-defined]
        raise


def _checked_schedule(
    schedule: Mapping[str, int] | None,
    hypers: Sequence[str] | Mapping[str, Any],
    per_layer: bool | str | Sequence[str],
    steps: int,
) -> dict[str, int]:
    """The number of knots of each hyper that has them."""
    if not isinstance(schedule, Mapping | None):
        raise TypeError(f"schedule is {schedule!r:.80}; pass a dict, such as {{'learning_rate': 6}}.")
    names, can_change = [hypers] if isinstance(hypers, str) else list(hypers), ("learning_rate", *SETTINGS)
    for name, count in (schedule or {}).items():
        if name not in can_change:
            raise ValueError(f"schedule has '{name}', which Keras cannot change during a fit; choose from {can_change}.")
        if name not in names:
            raise ValueError(f"schedule has '{name}', which is not among the hypers {names}; add it to them.")
        if name in separate_hypers(per_layer, hypers):
            raise ValueError(f"schedule and per_layer both have '{name}'; leave it out of one of them.")
        errors.check_count(f"schedule['{name}']", count, least=2, most=steps)
    return dict(schedule or {})


def _validation_metrics(
    model: keras.Model, training: KerasTraining, held_out: Examples, best_by: str, mode: str
) -> tuple[str, Callable[[Params], dict[str, float]] | None]:
    """The number of the history to minimise, and params -> the metrics on the validation data, if there are any.

    A metric that is to be maximised is also recorded with the opposite sign.
    """
    if mode not in ("auto", "min", "max"):
        raise ValueError(f"best_mode is {mode!r}; choose 'min', 'max' or 'auto'.")
    metrics, (x, y, *weights) = Metrics(model), nest.map(tf.convert_to_tensor, held_out)

    def results(params: Params) -> dict[str, tf.Tensor]:
        outputs = training.model.apply(params, x, training=False, seed=tf.constant(ANY_SEED))
        loss = training.plain_loss(y, outputs, *weights)
        return metrics.results(metrics.updated(metrics.initial, x, y, outputs, weights, loss))

    names = [f"val_{name}" for name in metrics.results(metrics.initial) if name != "loss"]
    if best_by not in ("val_loss", *names):
        raise ValueError(f"best_by is {best_by!r}; choose 'val_loss' or one of the metrics: {names}.")
    rising = rises(model, best_by.removeprefix("val_")) if mode == "auto" else mode == "max"
    if rising is None:
        raise ValueError(f"best_by is {best_by!r}, whose direction is not known; pass best_mode='min' or 'max'.")
    if not names:
        return "value", None
    compiled, minus = graph_function(results), f"minus {best_by}"

    def measured(params: Params) -> dict[str, float]:
        values = {f"val_{name}": float(value) for name, value in compiled(params).items()}
        return {**values, minus: -values[best_by]} if rising else values

    return ("value" if best_by == "val_loss" else minus if rising else best_by), measured

"""An ordinary Keras model, whose learning rate and other hypers are tuned while it trains."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from rfho2.core import errors, nest
from rfho2.core.types import Hypers, Nest
from rfho2.driver.hyper_optimizer import HyperOptimizer
from rfho2.hypergradients import Engine, real_time
from rfho2.keras_bridge import data
from rfho2.keras_bridge.epochs import Epochs, check_callbacks
from rfho2.keras_bridge.hyper_update import moves
from rfho2.keras_bridge.training import check, train_with, values_of
from rfho2.problem import Problem

BETA_1, BETA_2 = 0.5, 0.9  # of Adam: hypergradients change by orders of magnitude, a long memory would follow too late
LOOK = 3  # hyper-batches that tell how good a learning rate to start with is
LOST = 0.1  # of what the validation loss has fallen by
EARLY = 0.05  # of the first validation loss, in the first hyper-batches, where examples do not differ much yet
NOISE = 12  # three standard errors of a mean of losses that vary by four times their mean, as those of good classifiers do


class RealTimeTuner:
    """Trains a Keras model once, and tunes its hypers on validation data while it does so (RTHO).

    Every `hyper_batch` steps the derivative of the validation loss by each hyper, through all the steps so far, moves the
    hypers by one step of projected Adam. Hypers are moved on scales of their own (learning rates by factors), so that the
    defaults serve from starts that are wrong by orders of magnitude. A step that is not finite is taken back and tried
    again with a quarter of the learning rate.

    Args:
      model: built; its weights are where training starts, and hold the trained ones in the end.
      loss: a `keras.losses.Loss`, its name, a function (labels, outputs) -> numbers; a list or dict for several outputs.
      hypers: names, or a dict from name to value to start from: "learning_rate", "momentum" (with optimizer "momentum" or
        "nesterov"), "weight_decay" (of kernels; decoupled with "adamw"), "label_smoothing" (of cross-entropies),
        "loss_weights" (one for each output), "regularization" (a factor of the layers' own regularisers). What is not named
        has its usual value (momentum 0.9, learning rate 0.01).
      optimizer: "momentum", "sgd", "nesterov", "adam", "adamw", "rmsprop" or "adagrad".
      per_layer: gives each layer a learning rate, and a weight decay, of its own; each costs as much as a hyper.
      hyper_batch: steps between two updates of the hypers.
      hyper_rate: about how much the logarithm of a learning rate moves at an update; other hypers in proportion.
      keep: "best" leaves the weights with the lowest validation loss, at the end of a hyper-batch, in the model, because a
        learning rate that is still high makes the last ones a matter of chance; "last" leaves the last ones.
      carry: see `rf.real_time`.
      ranges: {name: (low, high)} instead of the usual ones.
      metrics: of Keras, for a model that is not compiled; a compiled one is evaluated as it says itself.
      validation_batch: examples of the validation data that each hypergradient looks at.
      batch_norm: see `rf.from_keras`.
      seed: of the order of examples and of dropout.
      jit_compile: None tries XLA and falls back to the graph.

    >>> import keras
    >>> import rfho2 as rf
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 3)).astype("float32")
    >>> y = x @ np.array([1.0, -2.0, 0.5], "float32")
    >>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> tuner = rf.RealTimeTuner(model, "mse", hypers={"learning_rate": 1e-3}, jit_compile=False)
    >>> history = tuner.fit(x[:160], y[:160], validation_data=(x[160:], y[160:]), epochs=3, batch_size=8, verbose=0)
    >>> history.history["learning_rate"][-1] > 1e-3
    True
    """

    def __init__(
        self,
        model: keras.Model,
        loss: Any,
        hypers: Sequence[str] | Mapping[str, Any] = ("learning_rate",),
        *,
        optimizer: str = "momentum",
        per_layer: bool = False,
        hyper_batch: int = 20,
        hyper_rate: float = 0.5,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        metrics: Sequence[Any] | None = None,
        validation_batch: int = 500,
        keep: str = "best",
        carry: bool = True,
        batch_norm: str = "batch",
        seed: int = 0,
        jit_compile: bool | None = None,
    ):
        if keep not in ("best", "last"):
            raise ValueError(f"keep is {keep!r}; choose 'best' or 'last'.")
        self.model = model
        self.training = train_with(model, loss, hypers, optimizer, per_layer, ranges, batch_norm)
        self.knobs = self.training.knobs
        self.hyper_batch = errors.check_count("hyper_batch", hyper_batch)
        self.hyper_rate = hyper_rate
        self.validation_batch = errors.check_count("validation_batch", validation_batch)
        self.keep = keep
        self.carry = carry
        self.seed = seed
        self._jit_compile = jit_compile
        if not model.compiled:
            model.compile(optimizer="sgd", loss=loss, metrics=list(metrics or ()))
        self.hypers: dict[str, np.ndarray] = dict(self.knobs.start)
        self._begun = False

    def fit(
        self,
        x: Any,
        y: Any = None,
        validation_data: Any = None,
        epochs: int = 1,
        batch_size: int = 32,
        callbacks: Sequence[keras.callbacks.Callback] | None = None,
        steps_per_epoch: int | None = None,
        verbose: str | int = "auto",
        checkpoint_dir: str | os.PathLike[str] | None = None,
    ) -> keras.callbacks.History:
        """Trains for `epochs` epochs; calling it again goes on with the weights and hypers that it has.

        Args:
          x, y: arrays (or nests of them), or a `tf.data.Dataset` of batches (x, y).
          validation_data: a pair of arrays, or a dataset, on which the hypers are tuned: read into memory.
          epochs, batch_size, callbacks, steps_per_epoch, verbose: as in Keras's `fit`; a smaller last batch is left out.
            "Batches" in callbacks are hyper-batches, a whole number of which makes an epoch; at the end of each the model
            has the weights that training has then.
          checkpoint_dir: a killed fit that is started again with the same directory goes on where it was, if the model
            begins with the same weights (`keras.utils.set_random_seed`); what callbacks remember, such as the best epoch
            so far, they begin anew.

        Returns:
          Keras's `History`: loss, val_loss, metrics and the hypers at the end of each epoch; and `.trajectories`, the same
          hypers and the validation loss at every update.
        """
        errors.check_count("epochs", epochs)
        check_callbacks(callbacks or ())
        if validation_data is None:
            raise ValueError("validation_data is None; hypers are tuned on it: pass a pair of arrays (x, y) or a dataset.")
        source = data.training(x, y, batch_size, steps_per_epoch, self.seed)
        held_out = data.in_memory(validation_data, "validation_data")
        check(self.model, self.training, held_out, y)
        hyper_batch = min(self.hyper_batch, source.steps)
        per_epoch = max(1, round(source.steps / hyper_batch))
        keep_best = self.keep == "best"
        watch = Epochs(self.model, self.training, source, x, held_out, epochs, per_epoch, callbacks, verbose, keep_best)
        driver, params, start = self._prepare(source, held_out, hyper_batch, watch)
        self.model.stop_training = False
        try:
            result = driver.run(params, start, watch.iterations, checkpoint_dir)
        finally:
            self.hypers = watch.hypers or self.hypers
        return watch.history(result)

    def _prepare(
        self, source: data.Source, held_out: tuple[Nest, Nest], hyper_batch: int, watch: Epochs
    ) -> tuple[HyperOptimizer, Nest, Hypers]:
        """The driver, and the params and hypers that it starts from."""
        looks = data.validation(held_out, self.validation_batch, self.seed + 2)
        problem = Problem(self.training.dynamics(), self.training.objective, None, source.batches, looks)
        engine = real_time(problem, hyper_batch, self.carry, self._jit_compile)
        sets = self.knobs.constraints()
        params = values_of(self.model, self.training.model.params)
        start: Hypers = {name: sets[name].project(tf.constant(v)) for name, v in self.knobs.inside(self.hypers).items()}
        start = start if self._begun else self._not_too_large(engine, params, start)
        self._begun = True
        driver = HyperOptimizer(
            engine,
            moves(self.knobs, self.hyper_rate, beta_1=BETA_1, beta_2=BETA_2),
            [watch],
            watch.metrics,
            stop=lambda history: bool(self.model.stop_training),
            on_divergence=self.knobs.slower,
            limit=self._limit(problem, params) if "learning_rate" in self.knobs.start else None,
        )
        return driver, params, start

    def _not_too_large(self, engine: Engine, params: Nest, hypers: Hypers) -> Hypers:
        """The hypers as given, if no smaller learning rate does better in the first hyper-batches; or with a smaller one.

        Rates smaller by factors of 4 are tried, until two in a row are no better than a finite one. What a rate that is too
        large spoils in its first steps (dead units) no hypergradient brings back, and what does best in so few steps is
        often too large: so a quarter of the best one is taken, from which it rises quickly where it should.
        """
        given, best, least, worse = hypers, hypers, _value(engine, params, hypers), 0
        while worse < 2:
            smaller = self.knobs.slower(hypers)
            if all(np.array_equal(smaller[name], hypers[name]) for name in hypers):  # no learning rate, or at its lower end
                break
            hypers = smaller
            value = _value(engine, params, hypers)
            if value < least:
                best, least, worse = hypers, value, 0
            elif np.isfinite(least):
                worse += 1
        return best if best is given else self.knobs.slower(best)

    def _limit(self, problem: Problem, params: Nest) -> Callable[[list[dict[str, float]]], float]:
        """What the validation loss may not exceed: a tenth of all that was gained would be lost, and more than noise."""
        assert problem.validation is not None
        batch = problem.validation(tf.constant(0))
        first, examples = float(self.training.objective(params, {}, batch)), len(nest.flatten(batch)[0])

        def limit(history: list[dict[str, float]]) -> float:
            values = [row["value"] for row in history]
            best = min([first, *values])
            noise = NOISE * abs(best) / np.sqrt(examples) if len(values) > LOOK else EARLY * abs(first)
            return best + max(LOST * (first - best), noise)

        return limit


def _value(engine: Engine, params: Nest, hypers: Hypers) -> float:
    """The validation loss after some hyper-batches with these hypers; infinite where it is not a number."""
    carry = engine.start(params, hypers)
    for _ in range(LOOK):
        found, carry = engine.advance(carry, hypers, 0)
    value = float(cast(tf.Tensor, found.value))
    return value if np.isfinite(value) else np.inf

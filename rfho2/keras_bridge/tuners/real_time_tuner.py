"""Tunes the learning rate and other hypers of an ordinary Keras model while it trains."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from rfho2.core import errors, nest
from rfho2.core.types import Hypers, Nest
from rfho2.driver.hyper_optimizer import HyperOptimizer
from rfho2.hypergradients.real_time import real_time
from rfho2.hypergradients.windows import window_settings
from rfho2.keras_bridge.data import sources
from rfho2.keras_bridge.data.datasets import Examples, Order, Source, is_dataset
from rfho2.keras_bridge.training.epoch_means import EpochMeans
from rfho2.keras_bridge.training.hyper_update import bold_update
from rfho2.keras_bridge.training.keras_training import (
    KerasTraining,
    compile_with,
    current_params,
    make_training,
    seeded_validation,
)
from rfho2.keras_bridge.training.losses import bounded
from rfho2.keras_bridge.training.optimizers import warn_of_state
from rfho2.keras_bridge.tuners.checks import check_metrics, check_training, objective_of
from rfho2.keras_bridge.tuners.epochs import Epochs, check_callbacks
from rfho2.keras_bridge.tuners.model_settings import ModelSettings
from rfho2.keras_bridge.tuners.modes import choose_mode, graph_steps
from rfho2.keras_bridge.tuners.safeguards import loss_limit, warn_at_the_floor
from rfho2.keras_bridge.tuners.stages import Stages
from rfho2.keras_bridge.tuners.trials import make_trial, trial_steps, tried_start
from rfho2.keras_bridge.wrapping.frozen import Divided, divided
from rfho2.keras_bridge.wrapping.model import from_keras
from rfho2.monitor.plot import plot
from rfho2.problem import Problem

BETA_1, BETA_2 = 0.5, 0.9  # for Adam: hypergradients change by orders of magnitude, and a long memory would lag behind


class RealTimeTuner:
    """Trains a Keras model once and tunes its hypers on validation data meanwhile (RTHO, the paper's real-time algorithm).

    After every `hyper_batch` steps, the derivative of the validation loss with respect to each hyper, through the training,
    drives one step of projected Adam on the hypers. Each hyper moves on a suitable scale (learning rates by factors), so
    the defaults work from starts that are wrong by orders of magnitude. Steps after which the validation loss is not finite,
    or well above its best, are undone and re-run with a quarter of the learning rate.

    Up to three numbers are tuned in forward mode, whose derivative looks back about 1,000 steps (`discount`). More are tuned
    in reverse mode, whose cost does not depend on their number and whose derivative looks back one hyper-batch. So is a
    model or loss with control flow (recurrent layers, `tf.cond`, loops), which XLA compiles in reverse mode only.

    Args:
      model: built; training starts from its weights and leaves the trained ones in it.
      loss: a `keras.losses.Loss`, its name, or a function (labels, outputs) -> numbers; a list or dict for several outputs.
        None takes that of the compiled model.
      hypers: names, or a dict from name to initial value: "learning_rate", "momentum" (with optimizer "momentum" or
        "nesterov"), "weight_decay" (on kernels; decoupled if the optimizer's is), "label_smoothing" (for cross-entropies),
        "loss_weights" (one per output), "regularization" (a factor on the layers' regularisers). Settings that are not
        named keep the optimizer's values, or their defaults (momentum 0.9, learning rate 0.01).
      optimizer: "momentum", "sgd", "nesterov", "adam", "adamw", "rmsprop" or another name of Keras's, or a Keras optimizer,
        from whose settings the hypers start. None takes that of the compiled model, or momentum. With a schedule, the hyper
        "learning_rate" is a factor on it, which starts at 1.
      per_layer: gives each layer a separate learning rate and weight decay, or one of the two: ["weight_decay"].
      hyper_batch: steps between two updates of the hypers, at most one epoch; reverse mode keeps the states of as many steps
        in memory. With far more frequent updates, the rate overshoots.
      hyper_rate: about how much the logarithm of a learning rate changes at an update; other hypers in proportion.
      keep: "best" leaves the weights with the lowest objective at the end of a hyper-batch in the model, because with
        a learning rate that is still high the last weights depend on chance; "last" leaves the last ones.
      mode: "forward" or "reverse"; None chooses as above. After `fit`, the attribute `mode` has the choice.
      carry, discount: see `rf.real_time`; `carry=True` asks for forward mode. A discount of 0.999 looks back about 1,000
        steps; on the development problems of `experiments.long_training`, it had the lowest validation loss on average.
      ranges: {name: (low, high)} replaces default ranges.
      metrics: Keras metrics, for a model that is not compiled; a compiled model is evaluated as it was compiled.
      check: whether the second derivatives of the model are checked before the training.
      validation_batch: number of validation examples that each hypergradient uses.
      objective: what the hypers minimise on the validation data, if it is not the loss that the weights minimise: like
        `loss`, but it needs only a first derivative. Weights are kept, and steps undone, by its values.
      robust: whether a cross-entropy l of a validation example counts as b (1 - exp(-l / b)) in the objective of the hypers,
        so that a few wrong validation labels cannot stop the training. b is 5, or 1.5 times the first loss if that is more.
        This applies to Keras's own cross-entropies (sparse, categorical, binary), not to functions; val_loss stays what
        Keras computes.
      batch_norm: see `rf.from_keras`.
      seed: determines the order of the examples and dropout.
      jit_compile: None compiles with XLA after the first 500 steps if at least 1,000 remain, and falls back to graph mode
        where XLA fails; True compiles at once.

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
        loss: Any = None,
        hypers: Sequence[str] | Mapping[str, Any] = ("learning_rate",),
        *,
        optimizer: Any = None,
        per_layer: bool | str | Sequence[str] = False,
        hyper_batch: int = 20,
        hyper_rate: float = 0.5,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        metrics: Any = None,
        validation_batch: int = 500,
        objective: Any = None,
        robust: bool = True,
        keep: str = "best",
        mode: str | None = None,
        carry: bool | None = None,
        discount: float = 0.999,
        batch_norm: str = "batch",
        seed: int = 0,
        jit_compile: bool | None = None,
        check: bool = True,
    ):
        if keep not in ("best", "last"):
            raise ValueError(f"keep is {keep!r}; choose 'best' or 'last'.")
        self.model = model
        self._training = make_training(model, loss, hypers, optimizer, per_layer, ranges, batch_norm)
        warn_of_state(optimizer, model)
        self._tunables = self._training.tunables
        self._objective = objective_of(model, objective)
        self._robust, self._batch_norm = robust, batch_norm
        self._bound: float | None = None  # the first value of the objective, from which that of a label is derived
        self.hyper_batch = window_settings(hyper_batch, carry, discount, mode or "forward").hyper_batch
        self.hyper_rate = hyper_rate
        self.validation_batch = errors.check_count("validation_batch", validation_batch)
        self.keep = keep
        self.mode = mode
        self.carry = carry
        self.discount = discount
        self.seed = seed
        self._jit_compile = jit_compile
        self._check = check
        compile_with(model, self._training, optimizer, loss, metrics)
        self.hypers: dict[str, np.ndarray] = dict(self._tunables.start)
        self._next_hypers = self.hypers
        self._begun = False
        self._history: keras.callbacks.History | None = None

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
        *,
        validation_split: float = 0.0,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Any = None,
        shuffle: bool = True,
        initial_epoch: int = 0,
    ) -> keras.callbacks.History:
        """Trains for `epochs` epochs; another call continues with the current weights and hypers.

        Args:
          x, y: arrays (or nests of them), or a dataset of batches (x, y) or (x, y, sample_weight): a `tf.data.Dataset` or a
            `keras.utils.PyDataset`.
          validation_data: arrays (x, y) or (x, y, sample_weight), or a dataset, on which the hypers are tuned; it is read
            into memory.
          epochs, batch_size, callbacks, steps_per_epoch, verbose: as in Keras's `fit`; a smaller last batch is left out.
            Callbacks see a batch only where the hypers are updated, about every `hyper_batch` steps; the last one of an
            epoch is at its end, where the model holds the current weights.
          checkpoint_dir: a killed fit resumes where it stopped if it is started again with the same directory and the same
            initial weights (`keras.utils.set_random_seed`). What callbacks remember, such as the best epoch so far, is lost.
          validation_split: the share of the arrays, at their end, to tune on instead of `validation_data`.
          class_weight, sample_weight: factors of the loss of each class or example in training; as in Keras, examples that
            `validation_split` holds out keep their sample_weight.
          shuffle: whether the order of arrays changes in each epoch.
          initial_epoch: the number of epochs already completed; training ends after epoch number `epochs`.

        Returns:
          Keras's `History`: loss, val_loss, metrics and hypers at the end of each epoch. Its `.trajectories` has the hypers
          and the objective (by default the validation loss, bounded if `robust`) at every update.
        """
        errors.check_count("epochs", epochs)
        if not 0 <= initial_epoch < epochs:
            raise ValueError(f"initial_epoch is {initial_epoch}, but epochs, the last one, is {epochs}; it has to be less.")
        callbacks = callbacks or ()
        check_callbacks(callbacks)
        verbosity = 1 if verbose == "auto" else int(verbose)
        stages = Stages(verbosity != 0)
        order = Order(batch_size, shuffle, self.seed, steps_per_epoch)
        parts, training = self._parts(x), self._training
        with nullcontext() if parts is None or is_dataset(x) else stages(parts.told):
            source, held_out = sources.training_and_validation(
                x, y, order, sample_weight, class_weight, validation_data, validation_split, parts
            )
            tuned_on = held_out
            if parts is not None:
                tuned_on = (parts.of_arrays(held_out[0]), *held_out[1:])
                training = training._replace(model=from_keras(parts.head, batch_norm=self._batch_norm, check=False))
        with stages("Checking second derivatives and metrics" if self._check else "Checking metrics"):
            check_training(self.model, training, tuned_on, source.labels, self._check, objective=self._objective)
            check_metrics(self.model, held_out)
        per_epoch = max(1, round(source.steps / self.hyper_batch))
        numbers = range(initial_epoch, epochs)
        keep_best = self.keep == "best"
        means = EpochMeans(self.model, training, source.steps)
        watch = Epochs(self.model, means, source, held_out, numbers, per_epoch, callbacks, verbosity, keep_best)
        per_update = Fraction(source.steps, per_epoch)
        driver, params, start = self._prepare(training, source, tuned_on, per_update, watch, stages)
        stages.say(f"Compiling '{self.model.name}' ...")
        self.model.stop_training = False
        try:
            result = driver.run(params, start, watch.iterations, checkpoint_dir)
        finally:
            self.hypers, self._next_hypers = watch.hypers or self.hypers, watch.next_hypers or self._next_hypers
            self._continue_schedule(watch.settings, watch.steps(watch.updates))
        warn_at_the_floor(self.hypers, self._tunables)
        self._history = watch.history(result)
        return self._history

    def _continue_schedule(self, settings: ModelSettings, steps: int) -> None:
        """Leaves the tuned settings in the model; a schedule goes on from the last step, there and in another fit."""
        settings.end(self.hypers, steps)
        optimizer = self._training.optimizer
        self._training = self._training._replace(optimizer=optimizer._replace(first_step=optimizer.first_step + steps))

    def plot(self) -> Any:
        """The objective and the hypers along the last `fit`, as a matplotlib figure; see `rf.plot`."""
        if self._history is None:
            raise ValueError("the tuner has nothing to plot yet; call fit first.")
        return plot(self._history)

    def __repr__(self) -> str:
        hypers = ", ".join(f"{name}={np.array2string(np.asarray(v), precision=4)}" for name, v in self.hypers.items())
        return f"RealTimeTuner('{self.model.name}', {self._training.optimizer.name}, {hypers})"

    def _parts(self, x: Any) -> Divided | None:
        """The model in two parts, if the first is not trained and its outputs can be kept, or computed by the dataset."""
        parts = divided(self.model)
        if parts is None or is_dataset(x):
            return parts
        leaves = nest.flatten(x)
        return parts if leaves and parts.fits(len(leaves[0])) else None

    def _prepare(
        self,
        training: KerasTraining,
        source: Source,
        held_out: Examples,
        hyper_batch: Fraction,
        watch: Epochs,
        stages: Stages,
    ) -> tuple[HyperOptimizer, Nest, Hypers]:
        """The driver, and the params and hypers from which it starts."""
        validation = sources.validation_batches(held_out, self.validation_batch, self.seed + 2)
        validation = seeded_validation(training, validation, self.seed + 3)
        batch, params = validation(tf.constant(0)), current_params(self.model, training.model.params)
        objective_training = training._replace(loss=self._objective or training.loss)
        if self._robust and self._bound is None:
            self._bound = float(objective_training.objective(params, {}, batch))
        if self._bound is not None:
            objective_training = objective_training._replace(loss=bounded(objective_training.loss, self._bound))
        problem = Problem(watch.means.dynamics(), objective_training.objective, None, source.batches, validation)
        tunables, start = self._tunables, self._tunables.within_ranges(self._next_hypers)
        loss, mode_arguments = training.training_loss, (self.mode, self.carry, self.discount)
        self.mode = choose_mode(loss, params, errors.checked_hypers(start, params), source.batches, *mode_arguments)
        jit_compile, mode = self._jit_compile, self.mode
        engine = real_time(problem, hyper_batch, self.carry, jit_compile, discount=self.discount, mode=mode)
        first = float(objective_training.objective(params, {}, batch))
        if not self._begun:
            trial = make_trial(problem, objective_training, params, batch, trial_steps(hyper_batch, watch.iterations))
            start = tried_start(trial, start, tunables, first, stages, training.optimizer.schedule is not None)
        steps = math.ceil(watch.iterations * hyper_batch)
        if jit_compile is None:
            engine.graph_until = graph_steps(steps)
        self._begun = True
        driver = HyperOptimizer(
            engine,
            bold_update(tunables, self.hyper_rate, beta_1=BETA_1, beta_2=BETA_2),
            [watch],
            watch.metrics,
            stop=lambda history: bool(self.model.stop_training),
            on_divergence=tunables.with_lower_learning_rate,
            limit=loss_limit(first, len(nest.flatten(batch)[0])) if "learning_rate" in tunables.start else None,
        )
        return driver, params, start

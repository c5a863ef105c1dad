"""Finds wrong labels: learns a weight for each training example from a trusted validation set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from rfho2 import batches
from rfho2.constraints.sets import Box
from rfho2.core import errors, nest
from rfho2.core.types import Result
from rfho2.driver.hyper_optimizer import HyperOptimizer
from rfho2.driver.projected_adam import projected_adam
from rfho2.hypergradients.reverse import reverse
from rfho2.keras_bridge.data import sources
from rfho2.keras_bridge.training.keras_facts import check_kind
from rfho2.keras_bridge.training.keras_training import make_training
from rfho2.keras_bridge.training.optimizers import resolve_optimizer
from rfho2.keras_bridge.tuners.checks import check_training
from rfho2.keras_bridge.tuners.refits import Refits, weighted_loss
from rfho2.keras_bridge.tuners.stages import with_bar
from rfho2.monitor.plot import draw_examples
from rfho2.monitor.progress_bar import opened
from rfho2.problem import Problem


class Cleaned(NamedTuple):
    """The result of `per_example_weights`.

    Attributes:
      weights: one per training example, in their order: from 0 (useless for the validation set) to 1.
      suspects: indices of the examples whose labels are probably wrong: lowest weight first; where weights are equal, the
        largest loss in the last refits first.
      result: the driver's result; None if no weights were learned.
    """

    weights: np.ndarray
    suspects: np.ndarray
    result: Result | None

    def __repr__(self) -> str:
        few = ", ".join(map(str, self.suspects[:5])) + (", ..." if len(self.suspects) > 5 else "")
        return f"Cleaned: {len(self.suspects)} of {len(self.weights)} examples are suspects: {few}"

    def plot(self, train: Any, number: int = 24) -> Any:
        """Draws the first suspects, if the examples are images, with their labels; returns a matplotlib figure.

        Args:
          train: the pair (x, y) that was cleaned.
          number: how many to draw.
        """
        x, y, *_ = sources.in_memory(train, "train")
        if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray) or y.ndim > 2:
            raise ValueError("train has several inputs or outputs; pass one array of images and one of labels.")
        if len(x) != len(self.weights):
            raise ValueError(f"train has {len(x)} examples, but {len(self.weights)} were cleaned; pass the same ones.")
        worst = self.suspects[: errors.check_count("number", number)]
        if not len(worst):
            raise ValueError("no example is suspected, so there is nothing to draw.")
        classes = y if y.ndim == 1 or y.shape[-1] == 1 else y.argmax(-1)  # of labels that are one-hot
        return draw_examples(x[worst], [f"labelled {label:g}" for label in np.reshape(classes[worst], -1)])


def per_example_weights(
    model: keras.Model,
    loss: Any,
    train: Any,
    validation: Any,
    *,
    steps: int = 100,
    batch_size: int = 500,
    learning_rate: float = 0.2,
    iterations: int = 20,
    hyper_rate: float = 0.05,
    threshold: float = 0.25,
    refits: int = 3,
    optimizer: str = "sgd",
    checkpoints: int | None = None,
    callbacks: Sequence[Any] = (),
    batch_norm: str = "batch",
    seed: int = 0,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    jit_compile: bool | None = None,
    check: bool = True,
    verbose: str | int = "auto",
) -> Cleaned:
    """Cleans the training data of any classifier by hyper-cleaning (paper, section 5.1).

    Each training example has a weight in [0, 1] in the loss, initially 0.5. The gradient of the validation loss through the
    whole training moves the weights: those of examples that contradict the validation set fall to 0. Every training starts
    from the model's current weights, and the model is not changed; train it on `train` without the suspects afterwards.

    Args:
      model, loss: any Keras model, and a loss that gives one number per example.
      train: a pair of arrays (x, y); some of the labels may be wrong.
      validation: the same, or a finite dataset of batches, with trusted labels; hundreds of examples, better thousands.
      steps, batch_size, learning_rate, optimizer: settings of each training. It must be long enough to learn, but should
        not be so long that the model memorises wrong labels.
      iterations: number of trainings from which weights are learned; each takes 3 to 4 times as long as a plain one. With 0,
        all weights stay 0.5, and the refits alone find the suspects.
      hyper_rate: about how far a weight moves after each training.
      threshold: the weight below which an example is a suspect; with refits, this is only the start.
      refits: rounds of refitting, each of five plain trainings on the validation examples and on those that are not
        suspected. An example is then a suspect if models that were not trained on it find its label implausible. The
        validation examples determine how implausible it has to be: wrong labels are taken to be distributed as those of
        other validation examples. The rounds are run twice, starting from the examples that the weights favour, and from the
        validation examples alone. The run whose models better predict held-out validation examples is used. With 0, the
        weights decide.
      checkpoints: number of states that reverse mode saves instead of all of them (see `rf.reverse`), if memory is short.
      callbacks: rfho2's callbacks, such as `rf.ProgressBar()`.
      batch_norm, seed, checkpoint_dir, jit_compile, check: as for `rf.tune`.
      verbose: 0 hides the progress bars.
    """
    if isinstance(train, tf.data.Dataset):
        raise TypeError(
            "train is a dataset, which may yield its examples in a different order next time, so indices of suspects would "
            "mean nothing. Pass a pair of arrays (x, y)."
        )
    examples, held_out = sources.in_memory(train, "train"), sources.in_memory(validation, "validation")
    if len(examples) == 3:
        raise ValueError("train has sample weights, but the weights are to be learned; pass a pair of arrays (x, y).")
    check_kind(model)
    callbacks = with_bar(callbacks, verbose)
    chosen = resolve_optimizer(optimizer, model)
    trained_by = chosen._replace(settings={**chosen.settings, "learning_rate": learning_rate})
    training = make_training(model, loss, (), trained_by, False, None, batch_norm)
    check_training(model, training, examples, check=check, names=("train", ""))
    number = len(nest.flatten(examples)[0])
    size = errors.check_count("batch_size", min(batch_size, number))
    judges = None
    if refits:
        errors.check_count("refits", refits)
        if len(held_out) == 3:
            raise ValueError("validation has sample weights, which refits cannot use; pass a pair (x, y), or refits=0.")
        judges = Refits(training, examples, held_out, steps, size, seed, jit_compile)
    numbered = (examples, np.arange(number, dtype=np.int32))
    order = batches.seeded(batches.shuffled(numbered, size, seed), seed + 1)
    dynamics = training.dynamics(weighted_loss(training))
    problem = Problem(dynamics, training.objective, steps, order, batches.full(held_out))
    driver = HyperOptimizer(
        reverse(problem, checkpoints=checkpoints, jit_compile=jit_compile),
        projected_adam(hyper_rate, {"weights": Box(0.0, 1.0)}),
        callbacks,
        on_divergence="backtrack",
    )
    result, weights, believed = None, np.full(number, 0.5, np.float32), [np.zeros(number, bool)]
    if iterations or not refits:
        result = driver.run(training.model.params, {"weights": weights}, iterations, checkpoint_dir)
        weights = result.hypers["weights"].numpy()
        believed.append(weights >= threshold)
    if judges is None:
        suspected, losses = ~believed[-1], np.zeros(number)
    else:
        with opened(total=len(believed) * refits, desc="refits", disable=not verbose) as rounds:
            suspected, losses = judges.suspects(believed, refits, rounds.update)
    by_weight = np.lexsort((-losses, weights))
    return Cleaned(weights, by_weight[suspected[by_weight]], result)

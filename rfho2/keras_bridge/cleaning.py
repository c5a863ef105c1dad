"""Which labels are wrong? A weight for each training example, learnt from a validation set that can be trusted."""

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
from rfho2.core.types import Hypers, Nest, Result
from rfho2.driver.hyper_optimizer import HyperOptimizer
from rfho2.driver.projected_adam import projected_adam
from rfho2.hypergradients import reverse
from rfho2.keras_bridge import data
from rfho2.keras_bridge.training import check, train_with
from rfho2.problem import Problem


class Cleaned(NamedTuple):
    """What `per_example_weights` found.

    Attributes:
      weights: from 0 (of no use to the validation set) to 1, in the order of the training examples.
      suspects: the indices of examples whose weight fell below `threshold`, the lowest first.
      result: of the driver.
    """

    weights: np.ndarray
    suspects: np.ndarray
    result: Result


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
    optimizer: str = "sgd",
    checkpoints: int | None = None,
    callbacks: Sequence[Any] = (),
    batch_norm: str = "batch",
    seed: int = 0,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    jit_compile: bool | None = None,
) -> Cleaned:
    """Hyper-cleaning of any classifier's training data (paper, section 5.1).

    Each training example has a weight in [0, 1] in the loss. All start in the middle; the gradient of the validation loss
    through the whole training moves them: examples that teach what the validation set contradicts go to 0. The model is
    trained again and again from the weights it has, which are left alone; train it on `train` without the suspects after.

    Args:
      model, loss: any Keras model and loss that gives a number for each example.
      train: a pair of arrays (x, y), with labels of which some may be wrong.
      validation: the same, or a finite dataset of batches, of labels that can be trusted; hundreds, better thousands.
      steps, batch_size, learning_rate, optimizer: of each training. It has to be long enough to learn, and better not so
        long that wrong labels are learnt by heart.
      iterations: trainings; each takes about 3 times as long as a plain one.
      hyper_rate: about how far a weight moves at each.
      threshold: of suspicion.
      checkpoints: states that reverse mode keeps instead of all (see `rf.reverse`), if memory is short.
      callbacks: rfho2's own, such as `rf.ProgressBar()`.
      batch_norm, seed, checkpoint_dir, jit_compile: as for `rf.tune`.
    """
    if isinstance(train, tf.data.Dataset):
        raise TypeError(
            "train is a dataset, which may give its examples in another order next time: indices of suspects would mean "
            "nothing. Pass a pair of arrays (x, y)."
        )
    examples, held_out = data.in_memory(train, "train"), data.in_memory(validation, "validation")
    inner = train_with(model, loss, (), optimizer, False, None, batch_norm, {"learning_rate": learning_rate})
    check(model, inner, examples)
    number = len(nest.flatten(examples)[0])
    size = errors.check_count("batch_size", min(batch_size, number))

    def value(params: Nest, hypers: Hypers, batch: Nest) -> tf.Tensor:
        ((x, y), i), key = batch
        outputs, penalties = inner.model.apply(params, x, training=True, seed=key, return_losses=True)
        return inner.loss(y, outputs, tf.gather(hypers["weights"], i)) + penalties

    order = batches.seeded(batches.shuffled((examples, np.arange(number, dtype=np.int32)), size, seed), seed + 1)
    problem = Problem(inner.dynamics(loss=value), inner.objective, steps, order, batches.full(held_out))
    driver = HyperOptimizer(
        reverse(problem, checkpoints=checkpoints, jit_compile=jit_compile),
        projected_adam(hyper_rate, {"weights": Box(0.0, 1.0)}),
        callbacks,
        on_divergence="backtrack",
    )
    result = driver.run(inner.model.params, {"weights": np.full(number, 0.5)}, iterations, checkpoint_dir)
    weights = result.hypers["weights"].numpy()
    order_of_suspicion = np.argsort(weights, kind="stable")
    return Cleaned(weights, order_of_suspicion[weights[order_of_suspicion] < threshold], result)

"""Finds wrong labels by refitting: models that did not see an example, but did see trusted ones, judge its label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2 import batches
from rfho2.core import nest
from rfho2.core.compiled import Compiled, graph_function
from rfho2.core.types import Hypers, Nest
from rfho2.dynamics.base import Loss
from rfho2.keras_bridge.training.keras_training import KerasTraining
from rfho2.problem import Problem

FOLDS = 5
OTHER_LABELS = 10  # wrong labels tried for each trusted example
CANDIDATES = 200  # thresholds
PREDICTED = 500  # examples in a batch of predictions


def weighted_loss(training: KerasTraining) -> Loss:
    """The training loss with a weight for each example; the batch is (((x, y), indices), seed)."""

    def loss(params: Nest, hypers: Hypers, batch: Nest) -> tf.Tensor:
        ((x, y), indices), seed = batch
        outputs, penalties = training.model.apply(params, x, training=True, seed=seed, return_losses=True)
        return training.plain_loss(y, outputs, tf.gather(hypers["weights"], indices)) + penalties

    return loss


class Refits:
    """Cross-fits on trusted and believed examples, and scores the remaining ones.

    Args:
      training: model, loss and optimiser; every training starts from the model's weights.
      examples: (x, y); some labels may be wrong.
      trusted: (x, y) with labels that are right.
      steps, batch_size, seed, jit_compile: as for `rf.per_example_weights`.
    """

    def __init__(
        self,
        training: KerasTraining,
        examples: tuple[Nest, Nest],
        trusted: tuple[Nest, Nest],
        steps: int,
        batch_size: int,
        seed: int,
        jit_compile: bool | None,
    ):
        _check(examples, trusted)
        self._training = training
        self._rng = np.random.default_rng(seed)
        self._examples = nest.map(lambda a, b: np.concatenate([a, b]), examples, trusted)
        self._number, total = (len(nest.flatten(part)[0]) for part in (examples, self._examples))
        counts = (self._number, total - self._number)
        self._folds = np.concatenate([self._rng.permutation(np.arange(count) % FOLDS) for count in counts])
        numbered = (self._examples, np.arange(total, dtype=np.int32))
        order = batches.seeded(batches.shuffled(numbered, min(batch_size, total), seed), seed + 1)
        problem = Problem(training.dynamics(weighted_loss(training)), training.objective, steps, order, None)
        self._params = training.dynamics().params
        self._train = Compiled(problem.train, jit_compile)
        self._apply = graph_function(self._loss_rows, reduce_retracing=True)  # folds differ in size

    def suspects(
        self, starts: Sequence[np.ndarray], rounds: int, after_round: Callable[[], Any] = lambda: None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds wrong labels in several rounds; each believes the examples that the round before did not suspect.

        Each of the `starts` says which examples to believe at first. The start whose last models best predict held-out
        trusted examples is used. Returns whether each example is suspected, and its loss by models that did not see it.
        """
        ends = [self._rounds(start, rounds, after_round) for start in starts]
        suspected, losses, _ = min(ends, key=lambda end: end[2])
        return suspected, losses

    def _rounds(
        self, believed: np.ndarray, rounds: int, after_round: Callable[[], Any]
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """The suspects after some rounds, the losses in the last one, and the mean loss of trusted examples in it."""
        losses, right = np.zeros(self._number), np.zeros(1)
        for _ in range(rounds):
            losses, right, wrong = self._held_out_losses(believed)
            believed = losses <= threshold(losses, right, wrong)
            after_round()
        return ~believed, losses, float(np.mean(right))

    def _held_out_losses(self, believed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Losses of examples, of trusted ones and of trusted ones with other labels, by models that did not see them."""
        usable = np.concatenate([believed, np.ones(len(self._folds) - self._number, bool)])
        losses, wrong_losses = np.zeros(len(usable)), list[np.ndarray]()
        for fold in range(FOLDS):
            held_out = self._folds == fold
            seen = usable & ~held_out
            weights = seen * (len(seen) / max(1, np.sum(seen)))  # so that the loss is a mean over the examples that are seen
            params = self._params(self._train(self._training.model.params, {"weights": weights.astype(np.float32)}))
            x, y = nest.map(lambda a, h=held_out: a[h], self._examples)
            wrong = [self._other_labels(len(nest.flatten(y)[0])) for _ in range(OTHER_LABELS)]
            losses[held_out], *fold_wrong_losses = self._losses(params, x, [y, *wrong])
            trusted = np.flatnonzero(held_out) >= self._number
            wrong_losses += [
                loss[trusted & _differ(y, labels)] for loss, labels in zip(fold_wrong_losses, wrong, strict=True)
            ]
        if not np.all(np.isfinite(losses)):
            rate = self._training.optimizer.settings.get("learning_rate")
            raise ValueError(
                f"a refit diverged: the loss of {np.sum(~np.isfinite(losses))} examples is not finite. The learning rate is "
                f"{rate}; pass a smaller learning_rate, or refits=0."
            )
        return losses[: self._number], losses[self._number :], np.concatenate(wrong_losses)

    def _other_labels(self, number: int) -> Nest:
        """Labels of trusted examples, drawn at random."""
        trusted = nest.map(lambda a: a[self._number :], self._examples[1])
        drawn = self._rng.integers(len(nest.flatten(trusted)[0]), size=number)
        return nest.map(lambda a: a[drawn], trusted)

    def _losses(self, params: Nest, x: Nest, labels: list[Nest]) -> np.ndarray:
        """The losses of examples, one row for each choice of their labels."""
        number = len(nest.flatten(x)[0])
        parts = np.array_split(np.arange(number), -(-number // PREDICTED))  # of about the same size, for batch norm
        losses = [self._apply(params, *nest.map(lambda a, p=part: tf.constant(a[p]), (x, labels))) for part in parts]
        return np.concatenate(losses, axis=1)

    def _loss_rows(self, params: Nest, x: Nest, labels: list[Nest]) -> tf.Tensor:
        outputs = self._training.model.apply(params, x, training=False)
        return tf.stack([self._training.loss.per_example(y, outputs, self._training.loss_weights) for y in labels])


def _differ(labels: Nest, other_labels: Nest) -> np.ndarray:
    """A mask of the examples whose labels differ."""
    pairs = zip(nest.flatten(labels), nest.flatten(other_labels), strict=True)
    return np.any([np.any((a != b).reshape(len(a), -1), axis=1) for a, b in pairs], axis=0)


def _check(examples: tuple[Nest, Nest], trusted: tuple[Nest, Nest]) -> None:
    """Refuses trusted examples that differ in shape from the training examples, or are too few."""
    for leaf, trusted_leaf in zip(nest.flatten(examples), nest.flatten(trusted), strict=True):
        if leaf.shape[1:] != trusted_leaf.shape[1:]:
            raise ValueError(
                f"train has arrays of shape {[None, *leaf.shape[1:]]}, but validation has "
                f"{[None, *trusted_leaf.shape[1:]]}; reshape one of them, or pass refits=0."
            )
    labels = trusted[1]
    number = len(nest.flatten(labels)[0])
    if number < FOLDS or not np.any(_differ(labels, nest.map(lambda a: a[:1].repeat(number, 0), labels))):
        raise ValueError(
            f"validation has {number} examples; refits need at least {FOLDS}, with two different labels. Pass more, or "
            f"refits=0."
        )


def threshold(losses: np.ndarray, right: np.ndarray, wrong: np.ndarray) -> float:
    """The loss above which a label is suspected, chosen to maximise the expected F1 score of the suspects.

    With the rates a and h at which trusted examples exceed a loss with their own labels (false alarms) and with other labels
    (hits), a share f of suspects means that p = (f - a) / (h - a) of the labels are wrong; p is read where h - a is
    largest. The F1 score of a threshold is then 2 p h / (p h + (1 - p) a + p).

    Args:
      losses: the losses of the examples.
      right, wrong: losses of trusted examples, and of trusted examples with other labels.
    """
    candidates = np.unique(np.quantile(np.concatenate([losses, right, wrong]), np.linspace(0, 1, CANDIDATES)))
    suspected, alarms, hits = (np.mean(sample[:, None] > candidates, axis=0) for sample in (losses, right, wrong))
    clearest = np.argmax(hits - alarms)
    share = (suspected[clearest] - alarms[clearest]) / max(hits[clearest] - alarms[clearest], 1e-6)
    share = np.clip(share, 1 / len(losses), 1)
    f1 = 2 * share * hits / (share * hits + (1 - share) * alarms + share)
    return float(candidates[np.argmax(f1)])

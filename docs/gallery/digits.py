"""What the problems of the gallery share: digits, a small network, and a comparison on held-out digits."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

from data import mnist

Params = dict[str, tf.Tensor]
Examples = tuple[np.ndarray, np.ndarray]


class Shown(NamedTuple):
    """What a problem has to show.

    Attributes:
      untuned, tuned: the measure on held-out digits, with the hypers as they start and as they were learned.
      instead, simpler: the measure of what one would do without so many hypers, and what that is.
      measure: its name; smaller is better.
      figure: a picture of what was learned.
    """

    untuned: float
    tuned: float
    instead: float
    simpler: str
    measure: str
    figure: Figure

    def __str__(self) -> str:
        return f"{self.measure}: untuned {self.untuned:.2f}, tuned {self.tuned:.2f}, {self.simpler} {self.instead:.2f}"


def digits(train: int, validation: int, seed: int = 0) -> tuple[Examples, Examples, Examples]:
    """Digits for training, validation and testing (all the others), with their true labels."""
    split = mnist.noisy_split(mnist.load(), seed, train, validation)
    return (split.train.images, split.true_labels), tuple(split.validation), tuple(split.test)


def network(sizes: Sequence[int], seed: int = 0) -> Params:
    """Initial weights of layers of these sizes."""
    rng = np.random.default_rng(seed)
    pairs = list(itertools.pairwise(sizes))
    weights = {f"w{i}": rng.normal(0, np.sqrt(2 / m), (m, n)).astype("float32") for i, (m, n) in enumerate(pairs)}
    return {name: tf.constant(w) for name, w in weights.items()} | {f"b{i}": tf.zeros(n) for i, (_, n) in enumerate(pairs)}


def logits(p: Params, x: Any) -> tf.Tensor:
    """The outputs of the network, with rectified units between its layers."""
    layers = len(p) // 2
    for i in range(layers):
        x = x @ p[f"w{i}"] + p[f"b{i}"]
        x = tf.nn.relu(x) if i < layers - 1 else x
    return x


def losses(p: Params, batch: Any) -> tf.Tensor:
    """The cross-entropy of each example."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(batch[1], tf.int32), logits(p, batch[0]))


def error(p: Params, hypers: Any, batch: Any) -> tf.Tensor:
    """The mean cross-entropy: what the hypers minimise."""
    return tf.reduce_mean(losses(p, batch))


def wrong(p: Params, examples: Examples) -> float:
    """The share of wrong predictions, in per cent."""
    return float(100 * np.mean(np.argmax(logits(p, examples[0]), 1) != examples[1]))


def show(main: Callable[[], Shown]) -> None:
    """Runs a problem, prints what it has to show, and writes the picture to the file that the command names, if any."""
    shown = main()
    print(shown)
    if len(sys.argv) > 1:
        shown.figure.savefig(sys.argv[1], dpi=80)

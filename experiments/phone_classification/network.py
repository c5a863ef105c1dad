"""Frames of speech as tensors, the network with two outputs, and its losses."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.experimental.dtensor import Mesh

import rfho2 as rf
from data.speech import timit
from data.speech.context_embeddings import DIMENSION, context_embeddings
from data.speech.phones import PHONES, STATES
from experiments.common import networks
from experiments.common.networks import Params
from rfho2.core.types import Batches, Hypers

CLASSES = len(PHONES) * STATES
CHUNK = 1000  # frames that accuracies are computed on at a time


class Speech(NamedTuple):
    """A corpus with one of its splits. Windows of frames are gathered when they are needed, and never kept.

    Attributes:
      features: [N, 123], unscaled.
      first, last: [N], the first and the last frame of each frame's sentence.
      mean, deviation: [123], of the training frames.
      states: [N], the class of each frame.
      targets: [N], the row of the table for each frame of a training sentence; 0 for others, which have no secondary target.
      table: [triphones, 300].
      train, validation, test: the frames of each part.
    """

    features: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor
    mean: tf.Tensor
    deviation: tf.Tensor
    states: tf.Tensor
    targets: tf.Tensor
    table: tf.Tensor
    train: tf.Tensor
    validation: tf.Tensor
    test: tf.Tensor

    def inputs(self, frames: tf.Tensor) -> tf.Tensor:
        """The 11 frames around each of these, [n, 1353]; beyond its sentence, the sentence's first or last is repeated."""
        reach = timit.WINDOW // 2
        around = frames[:, None] + tf.range(-reach, reach + 1)
        first, last = tf.gather(self.first, frames), tf.gather(self.last, frames)
        rows = tf.clip_by_value(around, first[:, None], last[:, None])
        scaled = (tf.gather(self.features, rows) - self.mean) / self.deviation
        return tf.reshape(scaled, [frames.shape[0], timit.WINDOW * self.features.shape[1]])

    def examples(self, frames: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Inputs and classes."""
        return self.inputs(frames), tf.gather(self.states, frames)

    def multitask_examples(self, frames: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Inputs, classes and secondary targets."""
        return *self.examples(frames), tf.gather(self.table, tf.gather(self.targets, frames))


def speech(corpus: timit.Corpus, split: timit.Split, dimension: int = DIMENSION) -> Speech:
    """The tensors of one split; scaling and embeddings see only its training sentences."""
    scaling = timit.scaling(corpus, split.train)
    phones = [corpus.phones[corpus.phone_offsets[u] : corpus.phone_offsets[u + 1]] for u in split.train]
    table, rows = context_embeddings(phones, dimension)
    of_phone = np.zeros(len(corpus.phones), np.int32)
    for utterance, row in zip(split.train, rows, strict=True):
        of_phone[corpus.phone_offsets[utterance] : corpus.phone_offsets[utterance + 1]] = row
    first, last = timit.bounds(corpus)
    parts = [timit.frames_of(corpus, part) for part in split]
    arrays = first, last, *scaling, corpus.states.astype(np.int32), of_phone[corpus.segments], table, *parts
    return Speech(_in_parts(corpus.features), *map(tf.convert_to_tensor, arrays))


def _in_parts(features: np.ndarray, size: int = 50_000) -> tf.Tensor:
    """The features as a tensor, copied part by part.

    A conversion in one piece would hold three copies at its peak. If the array is mapped from a file, only the part that is
    being copied stays in memory.
    """
    whole = tf.Variable(tf.zeros(features.shape))
    mapped: Any = getattr(features, "_mmap", None)
    for i in range(0, len(features), size):
        whole[i : i + size].assign(features[i : i + size])
        if hasattr(mapped, "madvise") and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)
    return whole.read_value()


def initial_params(inputs: int, outputs: int, width: int, layers: int, seed: int) -> Params:
    """Weights of inputs-width-...-width-(183 + outputs): "w0", "b0", ... shared, "wp", "bp" and "ws", "bs" for the tasks."""
    rng = np.random.default_rng(seed)
    shared = networks.layers([inputs, *[width] * layers], rng)
    return shared | {
        "wp": networks.normal_weights(rng, width, CLASSES),
        "bp": tf.zeros(CLASSES),
        "ws": networks.normal_weights(rng, width, outputs),
        "bs": tf.zeros(outputs),
    }


def representation(p: Params, x: tf.Tensor) -> tf.Tensor:
    """The representation that both tasks share."""
    for i in range(sum(name.startswith("w") and name[1:].isdigit() for name in p)):
        x = tf.nn.relu(x @ p[f"w{i}"] + p[f"b{i}"])
    return x


def logits(p: Params, x: tf.Tensor) -> tf.Tensor:
    """The primary output."""
    return representation(p, x) @ p["wp"] + p["bp"]


def _cross_entropy(y: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores))


def error(p: Params, hypers: Hypers, batch: Any) -> tf.Tensor:
    """E_P, the mean cross-entropy of the classes."""
    x, y = batch
    return _cross_entropy(y, logits(p, x))


def loss(p: Params, hypers: Hypers, batch: Any) -> tf.Tensor:
    """E_P + rho E_S, where E_S is half the mean square error on the embeddings."""
    x, y, target = batch
    z = representation(p, x)
    secondary = tf.reduce_mean(tf.square(z @ p["ws"] + p["bs"] - target)) / 2
    return _cross_entropy(y, z @ p["wp"] + p["bp"]) + hypers["rho"] * secondary


def problem(
    data: Speech, batch_size: int, validation_size: int, seed: int, dynamics: rf.Dynamics | None = None
) -> rf.Problem:
    """Momentum on an endless stream of minibatches; each hypergradient uses a new subset of the validation frames.

    Args:
      dynamics: replaces momentum.
    """
    rows = rf.batches.shuffled(data.train, batch_size, seed)
    held_out = rf.batches.shuffled(data.validation, min(validation_size, len(data.validation)), seed + 1)
    return rf.Problem(
        dynamics or rf.momentum(loss, learning_rate="eta", momentum="mu"),
        error,
        steps=None,
        batches=_fetched(rows, data.multitask_examples),
        validation=_fetched(held_out, data.examples),
    )


def divided(data: Speech, batch_size: int, validation_size: int, seed: int, mesh: Mesh) -> rf.Problem:
    """The problem on a mesh: every process holds all frames and computes with its share of each minibatch."""
    on_mesh = problem(rf.distribute.replicate(data, mesh), batch_size, validation_size, seed)
    parts: list[Any] = [on_mesh.batches, on_mesh.validation]
    batches, validation = (rf.distribute.split(part, mesh) for part in parts)
    return rf.Problem(on_mesh.dynamics, on_mesh.objective, None, batches, validation)


def _fetched(rows: Batches, fetch: Callable[[tf.Tensor], Any]) -> Batches:
    return lambda index: fetch(rows(index))


def accuracy_on(data: Speech) -> Callable[[Params, tf.Tensor], tf.Tensor]:
    """(params, frames) -> the fraction of these frames that are classified correctly."""

    @tf.function(autograph=False, reduce_retracing=True)
    def hits(p: Params, frames: tf.Tensor) -> tf.Tensor:
        x, y = data.examples(tf.ensure_shape(frames, [CHUNK]))
        return tf.cast(tf.argmax(logits(p, x), 1, tf.int32) == y, tf.float32)

    def accuracy(p: Params, frames: tf.Tensor) -> tf.Tensor:
        padded = tf.pad(frames, [[0, -len(frames) % CHUNK]])  # with frame 0, which is cut off again below
        correct = [hits(p, padded[i : i + CHUNK]) for i in range(0, len(padded), CHUNK)]
        return tf.reduce_mean(tf.concat(correct, 0)[: len(frames)])

    return accuracy

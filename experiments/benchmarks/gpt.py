"""The transformer of `gpt_numbers` in TensorFlow, as a problem for real time in reverse mode."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

import rfho2 as rf
from experiments.benchmarks.gpt_numbers import BETAS, CLIP, EPSILON, NORM_EPSILON, WEIGHT_DECAY, Size, Text, within
from rfho2.core.types import Hypers

Params = Mapping[str, tf.Tensor]


def problem(
    size: Size,
    text: Text,
    recompute: bool = True,
    compute: tf.DType | None = None,
    epsilon: float = EPSILON,
    loop: bool = False,
) -> rf.Problem:
    """AdamW on the weighted losses of the sources.

    Args:
      recompute: whether the activations of each block, and the logits, are recomputed.
      loop: whether the blocks, whose params are then stacked, are one loop; if so, they are always recomputed.
      compute: the dtype of activations and products; by default that of the params. Norms, attention weights and losses are
        computed in the dtype of the params.
      epsilon: AdamW's. With the default, the derivative by the weight of a source is that of the few entries whose gradient
        is 0 within 1e-8, so that differences would need steps below rounding.
    """
    network = Network(size, recompute, compute, loop)
    tokens, sources = tf.constant(text.tokens), tf.constant(text.sources)

    def loss(params: Params, hypers: Hypers, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        weights = tf.gather(hypers["sources"], batch[1])
        return tf.reduce_mean(weights * network.losses(params, batch[0]))

    def objective(params: Params, hypers: Hypers, batch: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(network.losses(params, batch))

    dynamics = rf.adamw(rf.clipped(loss, global_clipnorm=CLIP), "rate", WEIGHT_DECAY, *BETAS, epsilon)
    last = len(text.tokens) - 1

    def batches(t: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(tokens, 1 + t % last), tf.gather(sources, 1 + t % last)

    return rf.Problem(dynamics, objective, None, batches, rf.batches.full(tokens[0]))


class Network:
    """The functions of the network, whose blocks are recomputed or not, one by one or in a loop."""

    def __init__(self, size: Size, recompute: bool, compute: tf.DType | None, loop: bool = False):
        self.size, self.compute = size, compute
        wrap = rf.recompute if recompute else lambda function: function
        block, self._head = wrap(self.block), wrap(self.head)

        def one_by_one(params: Params, x: tf.Tensor) -> tf.Tensor:
            for i in range(size.layers):
                x = block(within(params, f"{i}"), x)
            return x

        in_loop = rf.recompute_layers(self.block)
        self._blocks = (lambda params, x: in_loop(within(params, "blocks"), x)) if loop else one_by_one

    def losses(self, params: Params, tokens: tf.Tensor) -> tf.Tensor:
        """The mean cross-entropy of each example of a batch."""
        x = tf.gather(params["tokens"], tokens[:, :-1]) + params["positions"]
        x = self._blocks(params, tf.cast(x, self.compute or x.dtype))
        return self._head({name: params[name] for name in ("tokens", "norm")}, x, tokens[:, 1:])

    def block(self, w: Params, x: tf.Tensor) -> tf.Tensor:
        """Causal attention, then an MLP; each is added to its input."""
        heads, width = self.size.heads, self.size.width // self.size.heads
        b, s, _ = x.shape

        def apart(y: tf.Tensor) -> tf.Tensor:
            return tf.transpose(tf.reshape(y, [b, s, heads, width]), [0, 2, 1, 3])

        q, k, v = map(apart, tf.split(self._product(self._normed(x, w["norm"]), w["qkv"]), 3, -1))
        scores = tf.cast(tf.matmul(q, k, transpose_b=True), w["qkv"].dtype) / width**0.5
        earlier = tf.linalg.band_part(tf.ones([s, s], tf.bool), -1, 0)
        attention = tf.nn.softmax(tf.where(earlier, scores, tf.constant(-1e9, scores.dtype)))
        mixed = tf.reshape(tf.transpose(tf.matmul(tf.cast(attention, v.dtype), v), [0, 2, 1, 3]), x.shape)
        x += self._product(mixed, w["out"])
        return x + self._product(tf.nn.gelu(self._product(self._normed(x, w["mlp_norm"]), w["up"]), True), w["down"])

    def head(self, w: Params, x: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """The mean cross-entropy of each example; the output weights are the embeddings."""
        x = self._normed(x, w["norm"])
        logits = tf.cast(tf.matmul(x, tf.cast(w["tokens"], x.dtype), transpose_b=True), w["tokens"].dtype)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits), -1)

    def _product(self, x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        return tf.matmul(x, tf.cast(w, x.dtype))

    def _normed(self, x: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        exact = tf.cast(x, scale.dtype)
        exact -= tf.reduce_mean(exact, -1, keepdims=True)
        exact *= scale * tf.math.rsqrt(tf.reduce_mean(tf.square(exact), -1, keepdims=True) + NORM_EPSILON)
        return tf.cast(exact, x.dtype)

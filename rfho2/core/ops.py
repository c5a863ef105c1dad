"""Operations whose derivatives TensorFlow makes slow, wrong or NaN; random numbers that do not depend on the compiler."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rfho2.core import devices
from rfho2.core.dtensors import sharded

Product = Callable[[tf.Tensor], tf.Tensor]

# Products of a large matrix with few columns on a GPU: microseconds for one product with x plus one with its transpose, on
# an H200. The saving by dividing a product into parts was measured for each of the two separately, and added.
#   x           columns   float32: plain, in parts   TF32
#   5000 x 784    10         62, 34 (7 and 40)       23, 18
#   5000 x 784    64         82, 56 (7 and 40)
#   20000 x 784   10        115, 82 (2 and 40)
#   1000 x 200    10         34, 14 (5 and 25)       20, 21
FEW = 64  # columns
BUSY = 34_000  # rows of all parts together
SHORTEST = 40  # terms of the inner products of a part


def fixed_product(x: Any) -> Product:
    """w -> x @ w for a constant matrix x, whose transpose is stored too.

    Full-batch training multiplies by the same x and x^T at every step. On a CPU, a product with a stored transpose takes a
    third of the time of one that transposes on the fly. x itself is not differentiated.

    d(x w) = x dw, and the adjoint of w is x^T (adjoint of x w): each product is the derivative of the other, to every order.

    Args:
      x: [n, d]; two copies of it are kept in memory.

    >>> product = fixed_product(tf.constant([[1.0, 2.0], [3.0, 4.0]]))
    >>> product(tf.constant([[1.0], [1.0]])).numpy().ravel().tolist()
    [3.0, 7.0]
    """
    x = tf.convert_to_tensor(x)
    return _linear(x, tf.transpose(x))


def _linear(matrix: tf.Tensor, transposed: tf.Tensor) -> Product:
    @tf.custom_gradient
    def product(w: tf.Tensor) -> tuple[tf.Tensor, Product]:
        return _product(matrix, w), _linear(transposed, matrix)

    return product


def _product(matrix: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    """matrix @ w; on a GPU as a sum of shorter products, if cuBLAS would leave most of the GPU idle."""
    pieces = _pieces(matrix, w)
    if pieces == 1:
        return tf.matmul(matrix, w)
    apart = tf.reshape(matrix, [matrix.shape[0], pieces, -1]), tf.reshape(w, [pieces, -1, w.shape[-1]])
    return tf.reduce_sum(tf.einsum("npk,pkm->pnm", *apart), 0)


def _pieces(matrix: tf.Tensor, w: tf.Tensor) -> int:
    """The number of parts of the inner dimension: its divisor that comes nearest to keeping the GPU busy."""
    few = w.shape.rank == 2 and w.shape.is_fully_defined() and w.shape[1] <= FEW
    if not (few and devices.gpu() and matrix.dtype == tf.float32 and matrix.shape.is_fully_defined() and not sharded()):
        return 1
    rows, inner = matrix.shape
    possible = [p for p in range(1, inner // SHORTEST + 1) if inner % p == 0]
    return min(possible, key=lambda p: abs(math.log(p * rows / BUSY)), default=1)


def safe_sqrt(x: tf.Tensor) -> tf.Tensor:
    """sqrt(x) with derivative 0 at x = 0, where the plain root gives inf * 0 = NaN.

    The inner `where` keeps the root away from 0; the outer one restores the 0, so that values do not change.
    """
    positive = x > 0
    return tf.where(positive, tf.sqrt(tf.where(positive, x, tf.ones_like(x))), tf.zeros_like(x))


def inert_at_zero(x: tf.Tensor, moment: tf.Tensor) -> tf.Tensor:
    """x, with derivative 0 where both x and the moment are 0: where no gradient has ever moved a weight.

    An optimiser that divides by the root of a second moment has the slope eta / epsilon there, but a gradient above epsilon
    already gives a step of eta. The slope holds so near to 0 that it describes no step that is ever taken.
    """
    return tf.where((x != 0) | (moment != 0), x, tf.stop_gradient(x))


def uniform(key: tf.Tensor, shape: tuple[int, ...] | tf.Tensor, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """Uniform random numbers in [0, 1) from an int32[2] key; graph and XLA draw the same ones, unlike other stateless draws.

    A dropout mask is `uniform(key, shape) < keep`.

    >>> bool(tf.reduce_all(uniform(tf.constant([1, 2]), (100,)) < 1.0))
    True
    """
    bits = tf.random.stateless_uniform(shape, key, minval=None, maxval=None, dtype=tf.int32)
    high = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, 8), 0xFFFFFF)  # 24 bits: exact in float32
    return tf.cast(high, dtype) * 2.0**-24


def cross_entropy(targets: tf.Tensor, logits: tf.Tensor, from_logits: bool = True) -> tf.Tensor:
    """-sum_c targets_c log softmax(logits)_c, with all derivatives with respect to the targets too, to every order.

    TensorFlow's version (`tf.nn.softmax_cross_entropy_with_logits`, which Keras calls) omits the mixed second derivative
    with respect to targets and logits, on which the hypergradient of anything in the labels depends.

    Args:
      targets: probabilities, with the classes along the last axis.
      logits: a tensor of the same shape; probabilities if `from_logits` is False.
      from_logits: whether `logits` are logits.

    >>> float(cross_entropy(tf.constant([0.5, 0.5]), tf.constant([0.0, 0.0])))  # log 2
    0.6931471824645996
    """
    tiny = np.finfo(logits.dtype.as_numpy_dtype).eps
    logs = tf.nn.log_softmax(logits) if from_logits else tf.math.log(tf.maximum(logits, tf.cast(tiny, logits.dtype)))
    return -tf.reduce_sum(targets * logs, axis=-1)

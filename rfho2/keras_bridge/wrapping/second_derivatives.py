"""Checks a model's second derivatives: compares Hessian-vector products with finite differences of the gradient.

A wrong derivative is wrong everywhere; the kink of a ReLU or of max-pooling spoils one point and one step only. So
several points and steps are tried, and one agreement is enough.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.graphs import Op, trace
from rfho2.core.purity import PYTHON, RANDOM, Generators
from rfho2.core.types import Nest
from rfho2.core.warn import warn
from rfho2.dynamics.base import gradient as gradient_of_loss

TOLERANCE = {"float64": 1e-3, "float32": 0.05}  # relative; a hidden stop_gradient costs percents, rounding less
SCALES = {"float64": (1e-9, 1e-10, 1e-8, 1e-11, 1e-7, 1e-6), "float32": (0.1, 0.03, 0.01)}
"""Steps relative to the params, the most promising first: a large one crosses kinks, a small one drowns in rounding."""
POINTS = 3
Call = Callable[[Nest], tuple[Nest, tf.Tensor]]
"""params -> (outputs, sum of the model's losses)."""

DRAWN_EXAMPLES, UNKNOWN_SIZE = 4, 7  # of the inputs drawn for a check: their number, and the length of an open axis
UNDIFFERENTIABLE = (LookupError, tf.errors.UnimplementedError, tf.errors.NotFoundError)
STOPPING = {"StopGradient", "PreventGradient", "Round", "Rint", "Sign", "Floor", "Ceil"}
WRONG = {"ResizeBilinear"}  # ops with wrong second derivatives in TensorFlow


def check_second_derivatives(call: Call, params: Nest, name: str) -> None:
    """Refuses a model whose Hessian is not the derivative of its gradient.

    The function differentiated is a random scalar function of the outputs plus the model's losses, in float64. If a layer
    computes in float32 nevertheless, rounding may hide an agreement: the check then warns, unless it can name an op that
    is wrong. It is made at points near `params`.
    """
    before = Generators()
    params, outputs = _in_float64(call, params)
    if before.drawn():
        raise ValueError(
            f"model '{name}' draws from Python's own random numbers ({', '.join(before.drawn())}) when it is called, as "
            f"AugMix does: what was drawn once would be repeated at every step. Use layers that draw with keras.random."
        )
    dtype = nest.flatten(params)[0].dtype
    rng = np.random.default_rng(0)
    gradient = functools.partial(_gradient, _scalar_of(call, outputs, dtype, rng))
    try:
        both, ops = trace(lambda p, d: _gradient_and_product(gradient, p, d), params, params)
        ops = [op for op in ops if not op.name.startswith("gradient")]  # of the layers, not of their derivatives
        _check_ops(ops, name)
        deviation = _deviation(both, params, rng)
    except UNDIFFERENTIABLE as error:  # raised during tracing, or only when the function runs
        raise ValueError(
            f"model '{name}': an op has no second derivative, which hypergradients need: {_first_line(error)} "
            f"Replace the layer that uses it."
        ) from error
    if not deviation <= TOLERANCE[dtype.name]:
        _refuse_or_warn(ops, name, deviation)


def _gradient_and_product(gradient: Callable[[Nest], Nest], params: Nest, direction: Nest) -> tuple[Nest, Nest]:
    """The gradient, and the Hessian-vector product: in one graph, because to trace takes longer than to compute both."""
    with tf.GradientTape() as tape:
        tape.watch(params)
        slope = gradient(params)
        along = nest.dot(slope, direction)
    zero = tf.UnconnectedGradients.ZERO
    return slope, nest.dense(tape.gradient(along, params, unconnected_gradients=zero))


def _deviation(both: Callable[..., tuple[Nest, Nest]], params: Nest, rng: np.random.Generator) -> float:
    """The relative difference of Hessian-vector products and differences: the first within the tolerance, or the least.

    Args:
      both: (params, direction) -> the gradient, and the Hessian-vector product.
    """
    dtype = nest.flatten(params)[0].dtype.name
    least = np.inf
    for _ in range(POINTS):
        # Away from the params themselves: biases of 0 and inputs of 0 put a ReLU exactly on its kink.
        point = nest.map(lambda p, d: p + 0.1 * d, params, _random_like(params, rng))
        direction = _random_like(params, rng)
        exact = both(point, direction)[1]
        for scale in SCALES[dtype]:
            least = min(least, _relative_error(exact, _difference(both, point, direction, scale)))
            if least <= TOLERANCE[dtype]:
                return least
    return least


def _check_ops(ops: Sequence[Op], name: str) -> None:
    """Refuses ops that are known to be wrong without a comparison."""
    wrong = [op for op in ops if op.kind in WRONG and op.reached]
    if wrong:
        raise ValueError(
            f"model '{name}': {_named(wrong)} has wrong second derivatives in TensorFlow, so hypergradients would be "
            f"silently wrong. Use UpSampling2D with nearest interpolation or a transposed convolution; resizing "
            f"the inputs of the model, before the first layer with weights, is sound."
        )
    python = [op for op in ops if op.kind in PYTHON and op.reached]
    if python:
        raise ValueError(
            f"model '{name}': {_named(python)} calls Python (tf.py_function, tf.numpy_function), which TensorFlow cannot "
            f"differentiate as often as hypergradients need. Write the layer with TensorFlow's ops, or apply it to the data."
        )
    random = [op for op in ops if op.kind in RANDOM]
    if random:
        raise ValueError(
            f"model '{name}': {_named(random)} draws random numbers that no seed determines, and reverse mode, which "
            f"replays each step, would draw different ones. Draw them with keras.random, and give the layer a seed: "
            f"self.seed_generator = keras.random.SeedGenerator(0)."
        )


def _refuse_or_warn(ops: Sequence[Op], name: str, deviation: float) -> None:
    """All comparisons failed: refuses the model, or warns if rounding may be the reason and no op is suspect."""
    stopping = [op for op in ops if op.kind in STOPPING and op.reached]
    single = [op for op in ops if op.reached and tf.float32 in op.dtypes]
    if single and not stopping:
        warn(
            f"model '{name}': its second derivatives could not be checked, because {_named(single[:1])} computes in "
            f"float32, where differences of the gradient drown in rounding (they differ by {100 * deviation:.2g} %). No op "
            f"is known to be wrong. Compare with rf.check_hypergradient, or pass check=False to leave this check out."
        )
        return
    suspects = f" Suspected: {_named(stopping)}." if stopping else ""
    raise ValueError(
        f"model '{name}': its second derivatives are wrong by {100 * deviation:.2g} % (Hessian-vector products compared "
        f"with differences of the gradient), so hypergradients would be silently wrong.{suspects} Rewrite the layer "
        f"without such an op; if it is intended, pass check=False."
    )


def _named(ops: Sequence[Op]) -> str:
    """Kinds and layers of the ops, at most five."""
    names = dict.fromkeys(f"{op.kind} in '{op.layer}'" for op in ops)
    return ", ".join(list(names)[:5])


def _in_float64(call: Call, params: Nest) -> tuple[Nest, Nest]:
    """Params and outputs in float64, or unchanged if some layer does not support it."""
    try:
        double = nest.map(lambda p: tf.cast(p, tf.float64), params)
        return double, call(double)[0]
    except (TypeError, ValueError, tf.errors.OpError):
        return params, call(params)[0]


def _random_like(params: Nest, rng: np.random.Generator) -> Nest:
    """Normal numbers with the standard deviation of each param, at least 0.01."""
    return nest.map(lambda p: tf.constant(rng.normal(size=p.shape) * max(float(np.std(p)), 0.01), p.dtype), params)


def _scalar_of(call: Call, outputs: Nest, dtype: tf.DType, rng: np.random.Generator) -> Callable[[Nest], tf.Tensor]:
    """The model's losses plus a random combination of its outputs, passed through a tanh that bends at their size."""
    weights = [tf.constant(rng.normal(size=out.shape), dtype) for out in nest.flatten(outputs)]
    sizes = [tf.cast(tf.reduce_max(tf.abs(out)), dtype) + 1e-6 for out in nest.flatten(outputs)]

    def scalar(p: Nest) -> tf.Tensor:
        outputs, losses = call(p)
        parts = zip(weights, sizes, nest.flatten(outputs), strict=True)
        return losses + tf.add_n([tf.reduce_sum(w * tf.tanh(tf.cast(out, dtype) / size)) for w, size, out in parts])

    return scalar


def _gradient(scalar: Callable[[Nest], tf.Tensor], p: Nest) -> Nest:
    return gradient_of_loss(lambda p, hypers, batch: scalar(p), p, {}, None, tf.constant(0))


def _difference(both: Callable[..., tuple[Nest, Nest]], params: Nest, direction: Nest, scale: float) -> Nest:
    points = (nest.map(lambda p, d, s=s: p + s * d, params, direction) for s in (scale, -scale))
    ahead, behind = (both(point, direction)[0] for point in points)
    return nest.map(lambda a, b: (a - b) / (2 * scale), ahead, behind)


def _relative_error(exact: Nest, approximate: Nest) -> float:
    difference = nest.map(tf.subtract, exact, approximate)
    size = max(float(nest.dot(approximate, approximate)), float(nest.dot(exact, exact)), 1e-37)
    return float(np.sqrt(float(nest.dot(difference, difference)) / size))


def _first_line(error: Exception) -> str:
    text = str(getattr(error, "message", error)).strip().splitlines()[0][:200]
    return text if text.endswith(".") else text + "."


def example_input(model: keras.Model, layers: Sequence[keras.Layer]) -> Nest | None:
    """Random inputs of the shapes that the model declares; None if it declares none (a subclassed model)."""
    specs = getattr(model, "inputs", None)
    if not specs:
        return None
    rng = np.random.default_rng(0)
    vocabularies = [layer.input_dim for layer in layers if isinstance(layer, keras.layers.Embedding)]

    def draw(spec: Any) -> tf.Tensor:
        shape = [DRAWN_EXAMPLES, *(size or UNKNOWN_SIZE for size in spec.shape[1:])]
        integers = vocabularies or not tf.as_dtype(spec.dtype).is_floating
        values = rng.integers(0, min(vocabularies, default=2), shape) if integers else rng.normal(size=shape)
        return tf.constant(values, spec.dtype)

    drawn = [draw(spec) for spec in specs]
    structure = getattr(model, "_inputs_struct", None)  # a Sequential has none, and one input
    return drawn[0] if structure is None else nest.pack(structure, drawn)

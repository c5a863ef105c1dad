"""Checks a model's second derivatives: one Hessian-vector product against finite differences of the gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.types import Nest

TOLERANCE = {"float64": 1e-3, "float32": 0.05}  # relative; a hidden stop_gradient costs percents, rounding less
SCALES = {"float64": (1e-4, 1e-5, 1e-6), "float32": (0.1, 0.03, 0.01)}
"""Steps relative to the params. The best counts: a large one may cross a kink of a ReLU, a small one drowns in rounding."""
Call = Callable[[Nest], tuple[Nest, tf.Tensor]]
"""params -> (outputs, sum of the model's losses)."""

DRAWN_EXAMPLES, UNKNOWN_SIZE = 4, 7  # of the inputs drawn for a check: their number, and the length of an open axis
UNDIFFERENTIABLE = (LookupError, tf.errors.UnimplementedError, tf.errors.NotFoundError)


def check_second_derivatives(call: Call, params: Nest, name: str) -> None:
    """Refuses a model whose Hessian is not the derivative of its gradient.

    The function differentiated is a random scalar function of the outputs plus the model's losses: in float64, or in
    float32 if some layer supports nothing else.

    Args:
      call: the model.
      params: the point at which to check; a little noise is added.
      name: the model's name, for messages.
    """
    params, outputs = _in_float64(call, params)
    dtype = nest.flatten(params)[0].dtype
    rng = np.random.default_rng(0)
    # The noise moves away from kinks: biases of 0 and inputs of 0 put a ReLU exactly on one.
    params = nest.map(lambda p, d: p + 0.1 * d, params, _random_like(params, rng))
    direction = _random_like(params, rng)
    gradient = _gradient_of(_scalar_of(call, outputs, dtype, rng))
    product = _gradient_of(lambda p: nest.dot(gradient(p), direction))
    graph, slope = (tf.function(function, autograph=False) for function in (product, gradient))
    try:
        exact = graph(params)
    except UNDIFFERENTIABLE as error:
        raise ValueError(
            f"model '{name}': an op has no second derivative, which hypergradients need: {_first_line(error)} "
            f"Replace the layer that uses it."
        ) from error
    deviation = min(_relative_error(exact, _difference(slope, params, direction, scale)) for scale in SCALES[dtype.name])
    if not deviation <= TOLERANCE[dtype.name]:
        ops = _stopping_ops(graph.get_concrete_function(params).graph)
        suspects = f" Ops that stop gradients: {', '.join(ops)}." if ops else ""
        raise ValueError(
            f"model '{name}': its second derivatives are wrong by {100 * deviation:.2g} % (a Hessian-vector product against "
            f"differences of the gradient), so hypergradients would be wrong without any error.{suspects} Rewrite the layer "
            f"without them; if they are intended, pass check=False to rf.from_keras."
        )


def _in_float64(call: Call, params: Nest) -> tuple[Nest, Nest]:
    """Params and outputs in float64, or unchanged if some layer does not support it."""
    try:
        double = nest.map(lambda p: tf.cast(p, tf.float64), params)
        return double, call(double)[0]
    except (TypeError, tf.errors.OpError):
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


def _gradient_of(scalar: Callable[[Nest], tf.Tensor]) -> Callable[[Nest], Nest]:
    def gradient(p: Nest) -> Nest:
        with tf.GradientTape() as tape:
            tape.watch(p)
            value = scalar(p)
        return nest.dense(tape.gradient(value, p, unconnected_gradients=tf.UnconnectedGradients.ZERO))

    return gradient


def _difference(gradient: Callable[[Nest], Nest], params: Nest, direction: Nest, scale: float) -> Nest:
    ahead, behind = (gradient(nest.map(lambda p, d, s=s: p + s * d, params, direction)) for s in (scale, -scale))
    return nest.map(lambda a, b: (a - b) / (2 * scale), ahead, behind)


def _relative_error(exact: Nest, approximate: Nest) -> float:
    difference = nest.map(tf.subtract, exact, approximate)
    size = max(float(nest.dot(approximate, approximate)), float(nest.dot(exact, exact)), 1e-37)
    return float(np.sqrt(float(nest.dot(difference, difference)) / size))


def _stopping_ops(graph: Any) -> list[str]:
    """Names of the ops in the layers, not in their gradients, that block a gradient; at most five."""
    stopping = {"StopGradient", "PreventGradient", "Round", "Sign", "Floor"}
    names = {op.name for op in graph.get_operations() if op.type in stopping and not op.name.startswith("gradient")}
    return sorted(names)[:5]


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
    structure = getattr(model, "_inputs_struct", None)  # a dict of inputs, if the model was built with one
    return nest.pack(structure, drawn) if structure is not None else drawn[0] if len(drawn) == 1 else drawn

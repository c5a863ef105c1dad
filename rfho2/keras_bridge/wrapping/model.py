"""From a Keras model to a pure function of its params, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from rfho2.core import errors, nest
from rfho2.core.types import Nest
from rfho2.core.warn import warn
from rfho2.keras_bridge.wrapping.pure_model import Params, PureModel, input_batches
from rfho2.keras_bridge.wrapping.second_derivatives import check_second_derivatives, example_input

EXAMPLES = 8  # used in the check of second derivatives


class KerasModel(NamedTuple):
    """A Keras model as pure functions; `from_keras` returns one.

    Attributes:
      params: values of the trainable variables, by variable path.
      apply: (params, x, training=False, seed=None, return_losses=False) -> outputs, or (outputs, sum of `model.losses`).
        `seed`, an int32[2], determines what dropout and other random layers draw in training (`rf.batches.seeded`).
      assign: (params, x=None) -> None; writes the params into the model's variables. If the model has batch norm, its moving
        statistics are recomputed in one pass over x, by default the x passed to `from_keras`.
    """

    params: Params
    apply: Callable[..., Any]
    assign: Callable[..., None]


def from_keras(
    model: keras.Model,
    x: Any = None,
    batch_norm: str = "batch",
    check: bool = True,
    recompute: Sequence[str | keras.Layer] = (),
) -> KerasModel:
    """Wraps a Sequential, functional or subclassed Keras model, differentiable as often as rfho2 needs.

    Args:
      model: a built model, that is, one with variables. Only `assign` writes to it.
      x: example inputs, the more the better, for the check and for batch norm's moving statistics. None draws random inputs
        for the check from the model's input shapes, if it declares them.
      batch_norm: "batch" normalises by the statistics of the batch in the loss and in the objective, as training does;
        "frozen" normalises by the model's current moving statistics.
      check: whether Hessian-vector products are compared with finite differences (in float64; some seconds for a large
        model). An op with a hidden stop_gradient makes hypergradients silently wrong.
      recompute: layers or models inside the model, or their names, whose activations no derivative keeps: they are computed
        again, as by `rf.recompute`. The blocks of a transformer are a good choice.

    >>> import keras
    >>> import rfho2 as rf
    >>> last = keras.layers.Dense(1, kernel_initializer="ones", name="last")
    >>> model = keras.Sequential([keras.Input([2]), last], name="model")
    >>> wrapped = rf.from_keras(model)
    >>> sorted(wrapped.params)
    ['model/last/bias', 'model/last/kernel']
    >>> wrapped.apply(wrapped.params, tf.constant([[1.0, 2.0]])).numpy().tolist()
    [[3.0]]
    """
    _check_arguments(model, batch_norm)
    pure = PureModel(model, batch_norm == "batch", recompute)
    params = errors.checked_params({path: tf.identity(v.value) for path, v in pure.trainable.items()})
    if check:
        inputs = example_input(model, pure.layers) if x is None else next(input_batches(x))
        if inputs is not None:
            check_derivatives(pure, params, nest.map(lambda a: a[:EXAMPLES], inputs), model.name)

    def assign(params: Params, x_of_statistics: Any = None) -> None:
        inputs = x if x_of_statistics is None else x_of_statistics
        for path, variable in pure.trainable.items():
            variable.assign(params[path])
        if pure.moving and pure.by_batch:
            if inputs is None:
                warn(
                    f"model '{model.name}' has batch norm, whose moving statistics still belong to the previous weights: "
                    f"pass inputs, assign(params, x), to recompute them."
                )
            else:
                pure.update_statistics(params, inputs)

    return KerasModel(params, pure, assign)


def check_derivatives(apply: Callable[..., Any], params: Params, inputs: Nest, name: str) -> None:
    """Refuses a model whose second derivatives, in training mode, disagree with differences of its gradient."""
    seed = tf.constant([0, 0])
    check_second_derivatives(lambda p: apply(p, inputs, training=True, seed=seed, return_losses=True), params, name)


def _check_arguments(model: Any, batch_norm: str) -> None:
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"Keras runs on {keras.backend.backend()}; rfho2 needs TensorFlow: set the environment variable "
            f"KERAS_BACKEND=tensorflow before Keras is imported."
        )
    if not isinstance(model, keras.Model):
        raise TypeError(f"model is {type(model).__name__}; pass a keras.Model (Sequential, functional or subclassed).")
    if not model.built or not model.variables:
        raise ValueError(
            f"model '{model.name}' is not built: it has no variables yet. Begin it with keras.Input(shape), or call it once "
            f"on a batch: model(x[:1])."
        )
    if not model.trainable_variables:
        raise ValueError(f"model '{model.name}' has no trainable variables; set trainable = True on some layer.")
    overwritten = [v.path for v in model.trainable_variables if getattr(v, "overwrite_with_gradient", False)]
    if overwritten:
        raise ValueError(
            f"model '{model.name}': '{overwritten[0]}' is overwritten with its gradient at each step, as float8 scales are; "
            f"rfho2 would train it like a weight. Tune the model before layer.quantize('float8')."
        )
    stateful = [layer.name for layer in model._flatten_layers() if getattr(layer, "stateful", False) is True]
    if stateful:
        raise ValueError(
            f"model '{model.name}': layer '{stateful[0]}' is stateful: it starts each batch from the end of the one before, "
            f"so that the loss is not a function of the weights and the batch alone. Build it with stateful=False."
        )
    if batch_norm not in ("batch", "frozen"):
        raise ValueError(f"batch_norm is {batch_norm!r}; choose 'batch' or 'frozen'.")

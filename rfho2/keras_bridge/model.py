"""From a Keras model to a pure function of its params, and back."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from rfho2.core import errors, nest
from rfho2.core.types import Nest
from rfho2.keras_bridge import pure
from rfho2.keras_bridge.second_derivatives import check_second_derivatives, example_input

Params = dict[str, tf.Tensor]
EXAMPLES = 8  # of the data, in the check of second derivatives


class KerasModel(NamedTuple):
    """A Keras model as pure functions: what `from_keras` returns.

    Attributes:
      params: the trainable variables' values, by variable path.
      apply: (params, x, training=False, seed=None, return_losses=False) -> outputs, or (outputs, sum of `model.losses`).
        `seed`, int32[2], decides what dropout and other random layers draw in training (`rf.batches.seeded`).
      assign: (params, x=None) -> None; writes the params into the model's variables. With batch norm, the moving statistics
        are taken anew by one pass over x, by default the x that `from_keras` got.
    """

    params: Params
    apply: Callable[..., Any]
    assign: Callable[..., None]


def from_keras(model: keras.Model, x: Any = None, batch_norm: str = "batch", check: bool = True) -> KerasModel:
    """A Sequential, functional or subclassed Keras model, differentiable as often as rfho2 needs.

    Args:
      model: built: it has its variables. It is only read; `assign` is what writes.
      x: some inputs, the more the better: they are used for the check and for batch norm's moving statistics. None draws
        random inputs for the check from the model's input shapes, where it has them.
      batch_norm: "batch" normalises by the batch in the loss and in the objective, as training does; "frozen" by the moving
        statistics that the model has now.
      check: whether one product with the second derivatives is compared with differences (in float64; some seconds for a
        large model), because an op with a hidden stop_gradient gives wrong hypergradients without any error.

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
    _check_model(model, batch_norm)
    purely = _Pure(model, batch_norm == "batch")
    params = errors.checked_params({path: tf.identity(v.value) for path, v in purely.trainable.items()})
    if check:
        inputs = example_input(model, purely.layers) if x is None else nest.map(lambda a: a[:EXAMPLES], _first_batch(x))
        if inputs is not None:
            check_model(purely, params, inputs, model.name)

    def assign(params: Params, x_of_statistics: Any = None) -> None:
        data = x if x_of_statistics is None else x_of_statistics
        for path, variable in purely.trainable.items():
            variable.assign(params[path])
        if purely.moving and batch_norm == "batch":
            if data is None:
                warnings.warn(
                    f"model '{model.name}' has batch norm, whose moving statistics still are those of other weights: pass "
                    f"inputs, assign(params, x), to take them anew.",
                    stacklevel=2,
                )
            else:
                purely.take_statistics(params, data)

    return KerasModel(params, purely, assign)


def check_model(apply: Callable[..., Any], params: Params, inputs: Nest, name: str) -> None:
    """Refuses a model whose second derivatives, in training, are not what differences of its gradient say."""
    seed = tf.constant([0, 0])
    check_second_derivatives(lambda p: apply(p, inputs, training=True, seed=seed, return_losses=True), params, name)


class _Pure:
    """The call of `KerasModel.apply`."""

    def __init__(self, model: keras.Model, by_batch: bool):
        self.model = model
        self.layers = list(model._flatten_layers())
        self.by_batch = by_batch
        self.trainable = _by_path(model.trainable_variables)
        self.fixed = list(model.non_trainable_variables)
        self.seeds = [v for v in self.fixed if v.name == "seed_generator_state"]
        norms = [layer for layer in self.layers if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable]
        self.moving = [v for layer in norms for v in (layer.moving_mean, layer.moving_variance)]
        self.norms = norms
        self._statistics = tf.function(self._batch_statistics, autograph=False, reduce_retracing=True)

    def __call__(
        self,
        params: Mapping[str, tf.Tensor],
        x: Nest,
        training: bool = False,
        seed: tf.Tensor | None = None,
        return_losses: bool = False,
    ) -> Any:
        """Outputs, and the sum of `model.losses` where that is asked for."""
        with self._scope(params, seed) as scope:
            before = dict(scope.state_mapping)
            outputs = self.model(x, training=training)
            dtype = nest.flatten(params)[0].dtype
            losses = [tf.cast(loss, dtype) for loss in self.model.losses] if return_losses else []
            self.model._clear_losses()  # tensors of a graph that may be gone at the next call
        self._check_scope(scope, None if seed is not None else before)
        return (outputs, tf.add_n([tf.zeros([], dtype), *losses])) if return_losses else outputs

    @contextlib.contextmanager
    def _scope(self, params: Mapping[str, tf.Tensor], seed: tf.Tensor | None) -> Iterator[keras.StatelessScope]:
        """Where variables have the values of `params` and nothing that happens stays."""
        missing = sorted(set(self.trainable) ^ set(params))
        if missing:
            raise ValueError(f"params: {missing} are in the params or in the model '{self.model.name}', but not in both.")
        keys = _keys(seed, len(self.seeds))
        values = [*zip(self.fixed, (v.value for v in self.fixed), strict=True), *zip(self.seeds, keys, strict=False)]
        dtype = nest.flatten(params)[0].dtype.name
        scope = keras.StatelessScope(values, collect_losses=True)
        # Past the constructor, which would cast float64 params back to the variables' float32.
        scope.state_mapping |= {id(variable): params[path] for path, variable in self.trainable.items()}
        with (
            pure.tensorflow_made_right(),
            pure.normalising(self.layers, self.by_batch),
            pure.naming_loops(self.layers),
            pure.computing_in(self.layers, dtype),
            scope,
        ):
            yield scope

    def _check_scope(self, scope: keras.StatelessScope, before: dict[int, Any] | None) -> None:
        """Nothing was drawn without a seed, nor from what does not belong to the model.

        Args:
          before: what the scope began with, if the call had no seed.
        """
        if before is not None and any(scope.state_mapping[id(v)] is not before[id(v)] for v in self.seeds):
            raise ValueError(
                f"model '{self.model.name}' draws random numbers in training (dropout or the like): pass seed=, an int32[2] "
                f"tensor, such as the one that rf.batches.seeded(batches, seed) adds to each batch."
            )
        known = {id(v) for v in (*self.trainable.values(), *self.fixed)}
        if set(scope.state_mapping) - known:
            raise ValueError(
                f"model '{self.model.name}' changes a variable that is not its own, most likely Keras's global random seed: "
                f"it would draw the same numbers at every step. Give the random layer or op of yours a seed, "
                f"self.seed_generator = keras.random.SeedGenerator(0)."
            )

    def take_statistics(self, params: Params, x: Any) -> None:
        """Batch norm's moving statistics: the mean over the batches of x, each by its number of examples."""
        pairs = [(len(nest.flatten(batch)[0]), self._statistics(dict(params), batch)) for batch in _batches(x)]
        if not pairs:
            raise ValueError(
                f"x gave no batch to take the moving statistics of model '{self.model.name}' from; pass inputs."
            )
        sizes, found = zip(*pairs, strict=True)
        for variable, values in zip(self.moving, zip(*found, strict=True), strict=True):
            variable.assign(np.average(np.stack(values), axis=0, weights=sizes))

    def _batch_statistics(self, params: Params, batch: Nest) -> list[tf.Tensor]:
        remembering_nothing = pure.exchanged(*[(layer, "momentum", 0.0) for layer in self.norms])
        with remembering_nothing, self._scope(params, tf.constant([0, 0])) as scope:
            self.model(batch, training=False)
            self.model._clear_losses()
        return [scope.get_current_value(variable) for variable in self.moving]


def _keys(seed: tf.Tensor | None, count: int) -> list[tf.Tensor]:
    """A key for each generator of random numbers; far apart, so that one that draws twice does not meet the next step's."""
    if seed is None or not count:
        return []
    bits = pure.FULL_RANGE_UNIFORM([count, 2], tf.cast(seed, tf.int32), minval=None, maxval=None, dtype=tf.int32)
    return [tf.cast(key, tf.int64) for key in tf.unstack(bits)]


def _by_path(variables: Sequence[Any]) -> dict[str, Any]:
    """By path; layers of one name, which Keras allows, are told apart by a number."""
    found: dict[str, Any] = {}
    for variable in variables:
        path, number = variable.path, 2
        while path in found:
            path, number = f"{variable.path}#{number}", number + 1
        found[path] = variable
    return found


def _first_batch(x: Any) -> Nest:
    return next(iter(_batches(x)))


def _batches(x: Any, size: int = 256) -> Iterator[Nest]:
    """Arrays cut into parts of `size`; a `tf.data.Dataset` as it comes, without its labels."""
    if isinstance(x, tf.data.Dataset):
        yield from (element[0] if isinstance(element, tuple) else element for element in x)
        return
    arrays = nest.map(np.asarray, x)
    examples = len(nest.flatten(arrays)[0])
    for first in range(0, examples, size):
        yield nest.map(lambda a, first=first: tf.convert_to_tensor(a[first : first + size]), arrays)


def _check_model(model: Any, batch_norm: str) -> None:
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
    if batch_norm not in ("batch", "frozen"):
        raise ValueError(f"batch_norm is {batch_norm!r}; choose 'batch' or 'frozen'.")

"""Calling a Keras model without side effects: params and seed go in, outputs come out, no variable changes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from rfho2.core import nest
from rfho2.core.compiled import graph_function
from rfho2.core.types import Nest
from rfho2.core.warn import warn
from rfho2.keras_bridge.wrapping import patches
from rfho2.keras_bridge.wrapping.recomputed import recomputed_calls

Params = dict[str, tf.Tensor]
STATISTICS_BATCH = 256  # examples per batch when moving statistics are recomputed from arrays


class UnseededError(ValueError):
    """A model draws random numbers, but was called without a seed."""


class PureModel:
    """The function behind `KerasModel.apply`; with `by_batch`, batch norm uses the statistics of the batch.

    The layers in `recompute`, objects or names, are computed again where a derivative needs their activations.
    """

    def __init__(self, model: keras.Model, by_batch: bool, recompute: Sequence[Any] = ()):
        self.model = model
        self._recomputed = recomputed_calls(model, recompute)
        self.layers = list(model._flatten_layers())
        self.by_batch = by_batch
        self.trainable = _by_path(model.trainable_variables)
        self.fixed = list(model.non_trainable_variables)
        self.seeds = [v for v in self.fixed if v.name == "seed_generator_state"]
        norms = [layer for layer in self.layers if isinstance(layer, keras.layers.BatchNormalization)]
        self.norms = [layer for layer in norms if layer.trainable]
        statistics = [v for layer in norms for v in (layer.moving_mean, layer.moving_variance)]
        self._may_change = {id(v) for v in (*self.seeds, *statistics)}
        self.moving = [v for layer in self.norms for v in (layer.moving_mean, layer.moving_variance)]
        self._fixed_norms: set[int] = set()
        self._warned = False
        self._statistics = graph_function(self._batch_statistics, reduce_retracing=True)

    def __call__(
        self,
        params: Mapping[str, tf.Tensor],
        x: Nest,
        training: bool = False,
        seed: tf.Tensor | None = None,
        return_losses: bool = False,
    ) -> Any:
        """The outputs; with `return_losses` also the sum of `model.losses`."""
        with self._scope(params, seed, training) as scope:
            before = dict(scope.state_mapping)
            mode = {"training": training} if self.model._call_has_training_arg else {}  # as Keras does
            outputs = self.model(x, **mode)
            dtype = nest.flatten(params)[0].dtype
            losses = [tf.cast(loss, dtype) for loss in self.model.losses] if return_losses else []
            self.model._clear_losses()  # tensors of a graph that may no longer exist at the next call
        self._check_scope(scope, before, seed is not None)
        if training:
            self._check_state(scope, before)
        return (outputs, tf.add_n([tf.zeros([], dtype), *losses])) if return_losses else outputs

    @contextlib.contextmanager
    def _scope(
        self, params: Mapping[str, tf.Tensor], seed: tf.Tensor | None, training: bool = False
    ) -> Iterator[keras.StatelessScope]:
        """A scope in which variables have the values of `params` and from which no change escapes."""
        unmatched = sorted(set(self.trainable) ^ set(params))
        if unmatched:
            raise ValueError(f"params: {unmatched} are in the params or in the model '{self.model.name}', but not in both.")
        keys = _keys(seed, len(self.seeds))
        dtype = nest.flatten(params)[0].dtype.name
        scope = keras.StatelessScope(list(zip(self.seeds, keys, strict=False)), collect_losses=True)
        # Bypasses the constructor, which would cast float64 values back to the variables' float32.
        seeds = set(scope.state_mapping)
        scope.state_mapping |= {id(v): _value(v, dtype) for v in self.fixed if id(v) not in seeds}
        scope.state_mapping |= {id(variable): params[path] for path, variable in self.trainable.items()}
        with (
            patches.differentiable_tensorflow(),
            patches.batch_norm(self.layers, self.by_batch, training, self._fixed_norms),
            patches.named_loop_errors(self.layers),
            patches.without_cudnn(self.layers),
            patches.computing_in(self.layers, dtype),
            patches.replaced(*[(call.layer, "call", call) for call in self._recomputed]),
            scope,
        ):
            yield scope

    def _check_scope(self, scope: keras.StatelessScope, before: dict[int, Any], seeded: bool) -> None:
        """Refuses random draws made without a seed, or from a generator outside the model."""
        if not seeded and any(scope.state_mapping[id(v)] is not before[id(v)] for v in self.seeds):
            raise UnseededError(
                f"model '{self.model.name}' draws random numbers in training (dropout or the like): pass seed=, an int32[2] "
                f"tensor, such as the one that rf.batches.seeded(batches, seed) adds to each batch."
            )
        expected = {id(v) for v in (*self.trainable.values(), *self.fixed)}
        if set(scope.state_mapping) - expected:
            raise ValueError(
                f"model '{self.model.name}' changes a variable that it does not own, most likely Keras's global random "
                f"seed: it would draw the same numbers at every step. Give the custom random layer or op a seed, "
                f"self.seed_generator = keras.random.SeedGenerator(0)."
            )

    def _check_state(self, scope: keras.StatelessScope, before: dict[int, Any]) -> None:
        """Refuses layers that assign to their weights in training, and warns about those that assign to other variables."""

        def assigned(variables: Sequence[Any]) -> list[str]:
            return [v.path for v in variables if scope.state_mapping[id(v)] is not before[id(v)]]

        weights = assigned(list(self.trainable.values()))
        if weights:
            raise ValueError(
                f"model '{self.model.name}': a layer assigns to its own weights '{weights[0]}' while it is called in "
                f"training (as SpectralNormalization does), so that a step is not a function of the weights alone. "
                f"Use a layer that does not."
            )
        unexpected = assigned([v for v in self.fixed if id(v) not in self._may_change])
        if unexpected and not self._warned:
            self._warned = True
            warn(
                f"model '{self.model.name}': layers assign to {', '.join(unexpected[:3])} when called in training. Under "
                f"rfho2 these variables keep their current values."
            )

    def update_statistics(self, params: Params, x: Any) -> None:
        """Sets batch norm's moving statistics to the mean over the batches of x, weighted by their sizes."""
        sizes, statistics = [], []
        for batch in input_batches(x):
            sizes.append(len(nest.flatten(batch)[0]))
            statistics.append(self._statistics(dict(params), batch))
        if not sizes:
            raise ValueError(
                f"x has no batch from which to compute the moving statistics of model '{self.model.name}'; pass inputs."
            )
        for variable, values in zip(self.moving, zip(*statistics, strict=True), strict=True):
            variable.assign(np.average(np.stack(values), axis=0, weights=sizes))

    def _batch_statistics(self, params: Params, batch: Nest) -> list[tf.Tensor]:
        without_memory = patches.replaced(*[(layer, "momentum", 0.0) for layer in self.norms])
        with without_memory, self._scope(params, tf.constant([0, 0])) as scope:
            self.model(batch, training=False)
            self.model._clear_losses()
        return [scope.get_current_value(variable) for variable in self.moving]


def _keys(seed: tf.Tensor | None, count: int) -> list[tf.Tensor]:
    """A key for each random generator, drawn far apart: a generator that draws twice must not meet the next step's key."""
    if seed is None or not count:
        return []
    bits = patches.FULL_RANGE_UNIFORM([count, 2], tf.cast(seed, tf.int32), minval=None, maxval=None, dtype=tf.int32)
    return [tf.cast(key, tf.int64) for key in tf.unstack(bits)]


def _value(variable: Any, dtype: str) -> tf.Tensor:
    """The value of a variable that is not trained; in the params' dtype if it is a real number."""
    value = tf.convert_to_tensor(variable.value)
    return tf.cast(value, dtype) if value.dtype.is_floating and variable.dtype == "float32" else value


def _by_path(variables: Sequence[Any]) -> dict[str, Any]:
    """Variables by path; Keras allows layers of the same name, which a number tells apart."""
    by_path: dict[str, Any] = {}
    for variable in variables:
        path, number = variable.path, 2
        while path in by_path:
            path, number = f"{variable.path}#{number}", number + 1
        by_path[path] = variable
    return by_path


def input_batches(x: Any) -> Iterator[Nest]:
    """Slices of arrays, or the batches of a `tf.data.Dataset` without their labels."""
    if isinstance(x, tf.data.Dataset):
        yield from (element[0] if isinstance(element, tuple) else element for element in x)
        return
    arrays = nest.map(np.asarray, x)
    for first in range(0, len(nest.flatten(arrays)[0]), STATISTICS_BATCH):
        yield nest.map(lambda a, first=first: tf.convert_to_tensor(a[first : first + STATISTICS_BATCH]), arrays)

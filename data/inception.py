"""Inception-V3, trained on ImageNet, as a function from small images to the 2048 numbers before its classifier."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from data import downloads
from data.errors import DataError, first_line

WEIGHTS = "inception_v3_weights_tf_dim_ordering_tf_kernels_notop.h5"  # the file name in the cache of Keras
SIDE = 299
REMEDY = "make the file on another machine"

Network = Callable[[np.ndarray], np.ndarray]
"""uint8 [n, 32, 32, 3] -> numbers [n, d]."""


def inception(weights: str | None = "imagenet") -> Network:
    """The network from images to the 2048 pooled numbers before the classifier; `weights=None` draws random weights."""
    cache = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras")) / "models"
    if weights and not (cache / WEIGHTS).exists():
        downloads.require_host("the weights of Inception-V3", REMEDY)
    import tensorflow as tf

    applications = tf.keras.applications
    try:
        model = applications.InceptionV3(weights=weights, include_top=False, pooling="avg", input_shape=(SIDE, SIDE, 3))
    except Exception as error:  # Keras raises Exception itself
        raise DataError(
            f"the weights of Inception-V3 cannot be loaded ({first_line(error)}); empty {cache} and try again."
        ) from None

    @tf.function(autograph=False, reduce_retracing=True)
    def run(images: tf.Tensor) -> tf.Tensor:
        large = tf.image.resize(tf.cast(images, tf.float32), (SIDE, SIDE), "bilinear")
        return model(applications.inception_v3.preprocess_input(large), training=False)

    return lambda images: run(tf.constant(images)).numpy()

"""Models as people have them: every kind of layer, loss, optimiser and option of Keras, with data to train them on."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

L = keras.layers
SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
N = 24  # examples: three batches of eight


class Case(NamedTuple):
    """A model, its loss and data.

    Attributes:
      model: not compiled, unless the case is about that.
      loss, x, y: as for `fit`; a loss of None is that of the compiled model.
      optimizer: a Keras optimizer or None; the model is trained with it by rfho2 and by Keras.
      random: whether the layers draw random numbers, so that Keras's training is another one.
    """

    model: keras.Model
    loss: Any
    x: Any
    y: Any
    optimizer: Any = None
    random: bool = False


def numbers(*shape, seed=0):
    """Normal numbers, one row per example."""
    return np.random.default_rng(seed).normal(size=(N, *shape)).astype("float32")


def classes(count=3, *shape, seed=1):
    """Class indices."""
    return np.random.default_rng(seed).integers(0, count, (N, *shape)).astype("int32")


def layered(*layers, shape, head=True, dtype=None, **options):
    """The layers between an input and a linear head of three classes."""
    keras.utils.set_random_seed(0)
    stack = [
        keras.Input(shape, dtype=dtype),
        *(layer() if callable(layer) and not isinstance(layer, L.Layer) else layer for layer in layers),
    ]
    if head:
        stack += [L.Flatten(), L.Dense(3)]
    sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Case(keras.Sequential(stack), sparse, numbers(*shape), classes(), **options)


class OwnSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Warm-up, then the inverse root, as in the transformer's paper."""

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        return 0.01 * tf.minimum(tf.math.rsqrt(step + 1), (step + 1) / 4)


def without_decay(names, optimizer):
    """The optimizer, which leaves variables of these names alone when weights decay."""
    optimizer.exclude_from_weight_decay(var_names=[names])
    return optimizer


def with_loss(loss, y, activation=None, units=3):
    """A small network with this loss and these labels."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([4]), L.Dense(5, "tanh"), L.Dense(units, activation)])
    return Case(model, loss, numbers(4), y)


def functional(build, *shapes, y=None, loss=None, **options):
    """A functional model: `build` maps its inputs to its outputs."""
    keras.utils.set_random_seed(0)
    inputs = [keras.Input(shape) for shape in shapes]
    outputs = build(*inputs)
    x = [numbers(*shape, seed=i) for i, shape in enumerate(shapes)]
    sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = keras.Model(inputs if len(inputs) > 1 else inputs[0], outputs)
    return Case(model, loss or sparse, x if len(x) > 1 else x[0], classes() if y is None else y, **options)


def merged(layer):
    return lambda a, b: L.Dense(3)(layer([L.Dense(4, "tanh")(a), L.Dense(4, "tanh")(b)]))


def attended(layer):
    return lambda a: L.Dense(3)(L.GlobalAveragePooling1D()(layer(L.Dense(4)(a), L.Dense(4)(a))))


def frozen(layer, *rest, shape, **options):
    layer.trainable = False
    return layered(layer, *rest, shape=shape, **options)


def compiled(optimizer):
    case = layered(lambda: L.Dense(5, "tanh"), shape=(4,))
    case.model.compile(optimizer, case.loss)
    return case._replace(loss=None, optimizer=optimizer)


def backbone(make, size, **call):
    """Transfer learning: a frozen backbone of keras.applications, without its weights, and a new head."""
    keras.utils.set_random_seed(0)
    base = make(weights=None, include_top=False, input_shape=(size, size, 3))
    base.trainable = False
    inputs = keras.Input((size, size, 3))
    features = L.GlobalAveragePooling2D()(base(inputs, training=False))
    model = keras.Model(inputs, L.Dense(3)(features))
    sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Case(model, sparse, numbers(size, size, 3), classes())


class Branching(L.Layer):
    def call(self, x):
        return tf.cond(tf.reduce_mean(x) > 0, lambda: tf.tanh(x), lambda: 2 * tf.tanh(x))


class Looping(L.Layer):
    def call(self, x):
        return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.tanh(x)), (tf.constant(0), x))[1]


class Calling(L.Layer):
    """Leaves its inputs to Python."""

    def __init__(self, call_python):
        super().__init__()
        self.call_python = call_python

    def call(self, x):
        doubled = self.call_python(lambda x: 2 * x, [x], x.dtype)
        doubled.set_shape(x.shape)
        return doubled


def saved():
    """A trainable layer from a saved model."""
    model = keras.Sequential([keras.Input([4]), L.Dense(4)])
    with tempfile.TemporaryDirectory() as directory:
        model.export(directory, verbose=False)
        return L.TFSMLayer(directory, call_endpoint="serve")


def stateful():
    x = keras.Input(batch_shape=(10, *SERIES))
    model = keras.Model(x, L.Dense(3)(L.LSTM(3, stateful=True)(x)))
    return Case(model, keras.losses.SparseCategoricalCrossentropy(from_logits=True), numbers(*SERIES), classes())


def quantized(mode):
    case = layered(lambda: L.Dense(4), shape=(4,))
    case.model.layers[0].quantize(mode)
    return case


class Counting(L.Layer):
    def build(self, shape):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, x):
        self.count.assign(self.count + 1)
        return x


class Penalised(L.Layer):
    def call(self, x):
        self.add_loss(0.1 * keras.ops.mean(keras.ops.square(x)))
        return x


class Subclassed(keras.Model):
    def __init__(self, **options):
        super().__init__(**options)
        self.hidden, self.last = L.Dense(5, "tanh"), L.Dense(3)

    def call(self, x):
        return self.last(self.hidden(x))


class OwnStep(Subclassed):
    def train_step(self, data):
        return super().train_step(data)


class OwnLoss(Subclassed):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return 2 * super().compute_loss(x, y, y_pred, sample_weight, training)


class OwnConstraint(keras.constraints.Constraint):
    def __call__(self, w):
        return w


def subclassed(kind):
    keras.utils.set_random_seed(0)
    model = kind()
    model(numbers(4)[:1])
    return Case(model, keras.losses.SparseCategoricalCrossentropy(from_logits=True), numbers(4), classes())


def hidden(**options):
    return layered(lambda: L.Dense(5, "tanh", **options), shape=(4,))


def normalised():
    norm = L.Normalization()
    norm.adapt(numbers(4))
    return layered(norm, lambda: L.Dense(5, "tanh"), shape=(4,))


def embedded(*layers, **options):
    case = layered(lambda: L.Embedding(7, 4, **options), *layers, shape=(5,))
    return case._replace(x=classes(7, 5))


def two_outputs(as_dict):
    def build(a):
        shared = L.Dense(5, "tanh")(a)
        left, right = L.Dense(3, name="left")(shared), L.Dense(1, name="right")(shared)
        return {"left": left, "right": right} if as_dict else [left, right]

    sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    y = {"left": classes(), "right": numbers(1)} if as_dict else [classes(), numbers(1)]
    return functional(build, (4,), y=y, loss={"left": sparse, "right": "mse"} if as_dict else [sparse, "mse"])


def named_outputs(loss, y):
    """Two outputs in a list, with losses or labels by name."""
    return two_outputs(False)._replace(loss=loss, y=y)


def segmented(loss):
    """An image of classes for each example."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([4]), L.Dense(12), L.Reshape([2, 2, 3]), L.Softmax()])
    return Case(model, loss, numbers(4), keras.utils.to_categorical(classes(3, 2, 2), 3))


class Sampling(L.Layer):
    """Draws what a variational autoencoder decodes, also in inference, and adds the divergence to the loss."""

    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(1)

    def call(self, inputs):
        mean, log_variance = inputs[:, :2], inputs[:, 2:]
        self.add_loss(-0.5 * keras.ops.mean(1 + log_variance - mean**2 - keras.ops.exp(log_variance)))
        noise = keras.random.normal(keras.ops.shape(mean), seed=self.seed_generator)
        return mean + keras.ops.exp(0.5 * log_variance) * noise


def shared():
    layer = L.Dense(4, "tanh")
    return functional(lambda a, b: L.Dense(3)(layer(a) + layer(b)), (4,), (4,))


def nested():
    inner = keras.Sequential([keras.Input([4]), L.Dense(5, "tanh")])
    return functional(lambda a: L.Dense(3)(inner(a)), (4,))


class NormInInference(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.norm, self.last = L.Dense(5), L.BatchNormalization(), L.Dense(3)

    def call(self, x, training=None):
        return self.last(self.norm(self.hidden(x), training=False))


class WithoutTraining(keras.Model):
    """`call` has no argument `training`: Keras trains it with dropout off and with moving statistics."""

    def __init__(self):
        super().__init__()
        self.layers_in_order = [L.Dense(5), L.BatchNormalization(), L.Dropout(0.5), L.Dense(3)]

    def call(self, x):
        for layer in self.layers_in_order:
            x = layer(x)
        return x


def one_hot(count=3):
    return np.eye(count, dtype="float32")[classes(count)]


IMAGE, VOLUME, SERIES = (8, 8, 2), (4, 4, 4, 2), (6, 3)
ACTIVATIONS = (
    "relu", "gelu", "selu", "elu", "silu", "tanh", "softplus", "softsign", "mish", "leaky_relu", "hard_sigmoid",
    "exponential", "relu6", "hard_silu", "sigmoid", "softmax", "log_softmax", "celu", "tanh_shrink", "squareplus",
)  # fmt: skip
Make = Callable[[], Case]
LAYERS: dict[str, Make] = {
    **{
        f"activation {name}": functools.partial(layered, functools.partial(L.Dense, 5, name), shape=(4,))
        for name in ACTIVATIONS
    },
    "PReLU": lambda: layered(lambda: L.Dense(5), L.PReLU, shape=(4,)),
    "Conv1D": lambda: layered(lambda: L.Conv1D(4, 3, activation="relu"), shape=SERIES),
    "Conv1D causal": lambda: layered(lambda: L.Conv1D(4, 3, padding="causal", dilation_rate=2), shape=SERIES),
    "Conv2D": lambda: layered(lambda: L.Conv2D(4, 3, activation="relu"), shape=IMAGE),
    "Conv2D strides": lambda: layered(lambda: L.Conv2D(4, 3, 2, "same"), shape=IMAGE),
    "Conv3D": lambda: layered(lambda: L.Conv3D(3, 3, activation="relu"), shape=VOLUME),
    "SeparableConv1D": lambda: layered(lambda: L.SeparableConv1D(4, 3), shape=SERIES),
    "SeparableConv2D": lambda: layered(lambda: L.SeparableConv2D(4, 3), shape=IMAGE),
    "DepthwiseConv1D": lambda: layered(lambda: L.DepthwiseConv1D(3), shape=SERIES),
    "DepthwiseConv2D": lambda: layered(lambda: L.DepthwiseConv2D(3), shape=IMAGE),
    "Conv1DTranspose": lambda: layered(lambda: L.Conv1DTranspose(2, 3), shape=SERIES),
    "Conv2DTranspose": lambda: layered(lambda: L.Conv2DTranspose(2, 3), shape=IMAGE),
    "Conv3DTranspose": lambda: layered(lambda: L.Conv3DTranspose(2, 2), shape=VOLUME),
    **{
        f"{kind}{rank}D": functools.partial(
            layered,
            lambda r=rank: getattr(L, f"Conv{r}D")(4, 2),
            functools.partial(getattr(L, f"{kind}{rank}D"), *(() if "Global" in kind else (2,))),
            shape=shape,
        )
        for kind in ("MaxPooling", "AveragePooling", "GlobalMaxPooling", "GlobalAveragePooling")
        for rank, shape in ((1, SERIES), (2, IMAGE), (3, VOLUME))
    },
    "LayerNormalization": lambda: layered(lambda: L.Dense(5), L.LayerNormalization, shape=(4,)),
    "GroupNormalization": lambda: layered(lambda: L.Dense(6), lambda: L.GroupNormalization(2), shape=(4,)),
    "UnitNormalization": lambda: layered(lambda: L.Dense(5), L.UnitNormalization, shape=(4,)),
    "RMSNormalization": lambda: layered(lambda: L.Dense(5), L.RMSNormalization, shape=(4,)),
    "BatchNormalization": lambda: layered(lambda: L.Dense(5), L.BatchNormalization, L.ReLU, shape=(4,)),
    "BatchNormalization of images": lambda: layered(lambda: L.Conv2D(4, 3), L.BatchNormalization, L.ReLU, shape=IMAGE),
    "Dropout": lambda: layered(lambda: L.Dense(5), lambda: L.Dropout(0.3), shape=(4,), random=True),
    "SpatialDropout1D": lambda: layered(lambda: L.Conv1D(4, 2), lambda: L.SpatialDropout1D(0.3), shape=SERIES, random=True),
    "SpatialDropout2D": lambda: layered(lambda: L.Conv2D(4, 2), lambda: L.SpatialDropout2D(0.3), shape=IMAGE, random=True),
    "GaussianDropout": lambda: layered(lambda: L.Dense(5), lambda: L.GaussianDropout(0.3), shape=(4,), random=True),
    "GaussianNoise": lambda: layered(lambda: L.Dense(5), lambda: L.GaussianNoise(0.3), shape=(4,), random=True),
    "AlphaDropout": lambda: layered(lambda: L.Dense(5, "selu"), lambda: L.AlphaDropout(0.3), shape=(4,), random=True),
    "ActivityRegularization": lambda: layered(lambda: L.Dense(5), lambda: L.ActivityRegularization(0.1, 0.1), shape=(4,)),
    "LSTM": lambda: layered(lambda: L.LSTM(4), shape=SERIES),
    "GRU": lambda: layered(lambda: L.GRU(4), shape=SERIES),
    "SimpleRNN": lambda: layered(lambda: L.SimpleRNN(4), shape=SERIES),
    "LSTM unrolled": lambda: layered(lambda: L.LSTM(4, unroll=True), shape=SERIES),
    "LSTM stacked": lambda: layered(lambda: L.LSTM(4, return_sequences=True), lambda: L.LSTM(3), shape=SERIES),
    "RNN of cells": lambda: layered(lambda: L.RNN([L.LSTMCell(3), L.GRUCell(3)]), shape=SERIES),
    "Bidirectional": lambda: layered(lambda: L.Bidirectional(L.LSTM(3)), shape=SERIES),
    "ConvLSTM1D": lambda: layered(lambda: L.ConvLSTM1D(2, 2), shape=(3, 5, 2)),
    "ConvLSTM2D": lambda: layered(lambda: L.ConvLSTM2D(2, 2), shape=(3, 5, 5, 2)),
    "TimeDistributed": lambda: layered(lambda: L.TimeDistributed(L.Dense(3, "tanh")), shape=SERIES),
    "Masking": lambda: layered(L.Masking, lambda: L.LSTM(4), shape=SERIES),
    "Embedding": lambda: embedded(),
    "Embedding with mask": lambda: embedded(lambda: L.GRU(4), mask_zero=True),
    "Attention": lambda: functional(lambda a: attended(lambda q, v: L.Attention()([q, v]))(a), SERIES),
    "AdditiveAttention": lambda: functional(lambda a: attended(lambda q, v: L.AdditiveAttention()([q, v]))(a), SERIES),
    "MultiHeadAttention": lambda: functional(lambda a: attended(lambda q, v: L.MultiHeadAttention(2, 3)(q, v))(a), SERIES),
    "GroupQueryAttention": lambda: functional(
        lambda a: attended(lambda q, v: L.GroupQueryAttention(2, 2, 1)(q, v))(a), SERIES
    ),
    "transformer block": lambda: functional(
        lambda a: L.Dense(3)(L.GlobalAveragePooling1D()(L.LayerNormalization()(a + L.MultiHeadAttention(2, 3)(a, a)))),
        SERIES,
    ),
    "EinsumDense": lambda: layered(lambda: L.EinsumDense("abc,cd->abd", output_shape=(6, 4)), shape=SERIES),
    "Reshape and Permute": lambda: layered(
        lambda: L.Dense(4), lambda: L.Reshape((2, 2)), lambda: L.Permute((2, 1)), shape=(4,)
    ),
    "RepeatVector": lambda: layered(lambda: L.Dense(4), lambda: L.RepeatVector(2), shape=(4,)),
    "Cropping1D": lambda: layered(lambda: L.Conv1D(4, 2), L.Cropping1D, shape=SERIES),
    "Cropping2D": lambda: layered(lambda: L.Conv2D(4, 2), lambda: L.Cropping2D(1), shape=IMAGE),
    "ZeroPadding1D": lambda: layered(lambda: L.Conv1D(4, 2), L.ZeroPadding1D, shape=SERIES),
    "ZeroPadding2D": lambda: layered(lambda: L.Conv2D(4, 2), L.ZeroPadding2D, shape=IMAGE),
    "UpSampling1D": lambda: layered(lambda: L.Conv1D(4, 2), L.UpSampling1D, shape=SERIES),
    "UpSampling2D": lambda: layered(lambda: L.Conv2D(4, 2), L.UpSampling2D, shape=IMAGE),
    "UpSampling3D": lambda: layered(lambda: L.Conv3D(2, 2), L.UpSampling3D, shape=VOLUME),
    "Resizing of inputs": lambda: layered(lambda: L.Resizing(5, 5), lambda: L.Conv2D(4, 2), shape=IMAGE),
    "Rescaling": lambda: layered(lambda: L.Rescaling(0.5), lambda: L.Dense(5, "tanh"), shape=(4,)),
    "Normalization": normalised,
    "RandomFlip": lambda: layered(lambda: L.RandomFlip(seed=0), lambda: L.Conv2D(4, 2), shape=IMAGE, random=True),
    **{
        name: lambda name=name: functional(merged(getattr(L, name)()), (4,), (4,))
        for name in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")
    },
    "Dot": lambda: functional(lambda a, b: L.Dense(3)(L.Dot(1)([L.Dense(4)(a), L.Dense(4)(b)])), (4,), (4,)),
    "Lambda": lambda: layered(lambda: L.Dense(4), lambda: L.Lambda(lambda x: x**2), shape=(4,)),
    "tf.cond": lambda: layered(lambda: L.Dense(4), Branching, shape=(4,)),
    "tf.while_loop": lambda: layered(lambda: L.Dense(4), Looping, shape=(4,)),
    "recurrent dropout": lambda: layered(lambda: L.LSTM(3, dropout=0.2, recurrent_dropout=0.2), shape=SERIES, random=True),
    "RandomGrayscale": lambda: layered(lambda: L.RandomGrayscale(0.5), shape=(8, 8, 3), random=True),
    "MixUp": lambda: layered(lambda: L.MixUp(), shape=(8, 8, 3), random=True),
    "bilinear UpSampling2D": lambda: layered(
        lambda: L.Conv2D(4, 2), lambda: L.UpSampling2D(interpolation="bilinear"), shape=IMAGE
    ),
    "bicubic UpSampling2D": lambda: layered(
        lambda: L.Conv2D(4, 2), lambda: L.UpSampling2D(3, interpolation="bicubic"), shape=IMAGE
    ),
    "Resizing": lambda: layered(lambda: L.Conv2D(4, 2), lambda: L.Resizing(3, 5), shape=IMAGE),
}
MODELS: dict[str, Make] = {
    "subclassed": lambda: subclassed(Subclassed),
    "two inputs": shared,
    "two outputs in a list": lambda: two_outputs(False),
    "two outputs in a dict": lambda: two_outputs(True),
    "nested": nested,
    "batch norm with training=False": lambda: subclassed(NormInInference),
    "call without an argument training": lambda: subclassed(WithoutTraining),
    "frozen Dense": lambda: frozen(L.Dense(5, "tanh"), shape=(4,)),
    "frozen Conv2D": lambda: frozen(L.Conv2D(4, 3, activation="relu"), shape=IMAGE),
    "frozen SeparableConv2D": lambda: frozen(L.SeparableConv2D(4, 3), shape=IMAGE),
    "frozen LSTM": lambda: frozen(L.LSTM(4), shape=SERIES),
    "frozen batch norm": lambda: frozen(L.BatchNormalization(), lambda: L.Dense(4, "tanh"), shape=(4,)),
    "frozen MobileNetV2": lambda: backbone(keras.applications.MobileNetV2, 32),
    "frozen EfficientNetB0": lambda: backbone(keras.applications.EfficientNetB0, 32)._replace(random=True),
    "frozen ResNet50": lambda: backbone(keras.applications.ResNet50, 32),
}
LOSSES: dict[str, Make] = {
    "add_loss": lambda: layered(lambda: L.Dense(4), Penalised, shape=(4,)),
    "losses and labels by name of the output": lambda: named_outputs(
        {"right": "mse", "left": SPARSE}, {"right": numbers(1), "left": classes()}
    ),
    "an output without a loss": lambda: named_outputs([SPARSE, None], [classes(), numbers(1)]),
    "ignore_class": lambda: with_loss(
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=255),
        np.where(np.arange(N) % 3, classes(), 255),
    ),
    "Dice over axes": lambda: segmented(keras.losses.Dice(axis=(1, 2))),
    "Tversky over axes": lambda: segmented(keras.losses.Tversky(axis=(1, 2))),
    "mean_with_sample_weight": lambda: with_loss(
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight"), classes()
    ),
    "sampling with add_loss": lambda: layered(lambda: L.Dense(4), Sampling, shape=(4,), random=True),
    **{
        f"regulariser {name}": functools.partial(hidden, kernel_regularizer=regulariser)
        for name, regulariser in {
            "L1": keras.regularizers.L1(0.01),
            "L2": keras.regularizers.L2(0.01),
            "L1L2": keras.regularizers.L1L2(0.01, 0.01),
            "orthogonal": keras.regularizers.OrthogonalRegularizer(0.01),
        }.items()
    },
    **{
        f"loss {name}": functools.partial(with_loss, name, numbers(3, seed=2))
        for name in ("mse", "mae", "huber", "log_cosh", "cosine_similarity")
    },
    "loss msle": lambda: with_loss("msle", np.abs(numbers(3, seed=2)), "softplus"),
    "loss mape": lambda: with_loss("mape", 1 + np.abs(numbers(3, seed=2)), "softplus"),
    "loss poisson": lambda: with_loss("poisson", np.abs(numbers(3, seed=2)), "softplus"),
    "loss binary": lambda: with_loss("binary_crossentropy", classes(2), "sigmoid", units=1),
    "loss binary from logits": lambda: with_loss(keras.losses.BinaryCrossentropy(from_logits=True), classes(2), units=1),
    "loss binary focal": lambda: with_loss("binary_focal_crossentropy", classes(2), "sigmoid", units=1),
    "loss categorical": lambda: with_loss("categorical_crossentropy", one_hot(), "softmax"),
    "loss categorical, smoothed": lambda: with_loss(
        keras.losses.CategoricalCrossentropy(label_smoothing=0.1), one_hot(), "softmax"
    ),
    "loss categorical focal": lambda: with_loss("categorical_focal_crossentropy", one_hot(), "softmax"),
    "loss sparse": lambda: with_loss("sparse_categorical_crossentropy", classes(), "softmax"),
    "loss kl": lambda: with_loss("kl_divergence", one_hot(), "softmax"),
    "loss hinge": lambda: with_loss("hinge", 2.0 * classes(2) - 1, units=1),
    "loss squared hinge": lambda: with_loss("squared_hinge", 2.0 * classes(2) - 1, units=1),
    "loss categorical hinge": lambda: with_loss("categorical_hinge", one_hot(), "softmax"),
    "loss dice": lambda: with_loss(keras.losses.Dice(), one_hot(), "softmax"),
    "loss tversky": lambda: with_loss(keras.losses.Tversky(), one_hot(), "softmax"),
    "loss, summed": lambda: with_loss(keras.losses.MeanSquaredError(reduction="sum"), numbers(3, seed=2)),
    "loss, a function": lambda: with_loss(lambda y, p: keras.ops.mean(keras.ops.square(y - p), -1), numbers(3, seed=2)),
}
CONSTRAINTS: dict[str, Make] = {
    **{
        name: functools.partial(hidden, kernel_constraint=constraint)
        for name, constraint in {
            "NonNeg": "non_neg",
            "MaxNorm": keras.constraints.MaxNorm(0.3),
            "UnitNorm": keras.constraints.UnitNorm(0),
            "MinMaxNorm": keras.constraints.MinMaxNorm(0.2, 0.4, 0.5),
        }.items()
    },
}
OPTIMIZERS: dict[str, Make] = {
    "compiled SGD": lambda: compiled(keras.optimizers.SGD(0.05)),
    "compiled momentum": lambda: compiled(keras.optimizers.SGD(0.05, 0.8)),
    "compiled Nesterov": lambda: compiled(keras.optimizers.SGD(0.05, 0.8, nesterov=True)),
    "compiled Adam": lambda: compiled(keras.optimizers.Adam(3e-3, beta_1=0.8)),
    "compiled AdamW": lambda: compiled(keras.optimizers.AdamW(3e-3, weight_decay=0.1)),
    "compiled RMSprop": lambda: compiled(keras.optimizers.RMSprop(3e-3, rho=0.8)),
    "compiled Adagrad": lambda: compiled(keras.optimizers.Adagrad(0.05)),
    "compiled Adadelta": lambda: compiled(keras.optimizers.Adadelta(1.0, epsilon=1e-3)),
    "compiled Nadam": lambda: compiled(keras.optimizers.Nadam(3e-3)),
    "compiled Adamax": lambda: compiled(keras.optimizers.Adamax(3e-3)),
    "compiled Lamb": lambda: compiled(keras.optimizers.Lamb(3e-2, weight_decay=0.1)),
    "compiled Lion": lambda: compiled(keras.optimizers.Lion(3e-3, weight_decay=0.1)),
    "compiled Adafactor": lambda: compiled(keras.optimizers.Adafactor(3e-2)),
    **({"compiled Muon": lambda: compiled(keras.optimizers.Muon(3e-3))} if hasattr(keras.optimizers, "Muon") else {}),
    "compiled amsgrad": lambda: compiled(keras.optimizers.Adam(3e-3, amsgrad=True)),
    "compiled centered RMSprop": lambda: compiled(keras.optimizers.RMSprop(3e-3, momentum=0.5, centered=True)),
    "compiled SGD, decoupled decay": lambda: compiled(keras.optimizers.SGD(0.05, 0.8, weight_decay=0.1)),
    "compiled AdamW, biases without decay": lambda: compiled(without_decay("bias", keras.optimizers.AdamW(3e-3))),
    "compiled clipvalue": lambda: compiled(keras.optimizers.SGD(0.05, clipvalue=0.01)),
    "compiled clipnorm": lambda: compiled(keras.optimizers.Adam(3e-3, clipnorm=0.1)),
    "compiled global_clipnorm": lambda: compiled(keras.optimizers.SGD(0.05, 0.8, global_clipnorm=0.1)),
    "compiled EMA": lambda: compiled(keras.optimizers.Adam(3e-3, use_ema=True, ema_momentum=0.6)),
    "compiled accumulation": lambda: compiled(keras.optimizers.Adam(3e-3, gradient_accumulation_steps=2)),
    "compiled accumulation and EMA": lambda: compiled(
        keras.optimizers.SGD(0.05, 0.8, gradient_accumulation_steps=2, use_ema=True, ema_momentum=0.6, clipnorm=0.1)
    ),
    "compiled AdamW with a cosine schedule and clipnorm": lambda: compiled(
        keras.optimizers.AdamW(
            keras.optimizers.schedules.CosineDecay(1e-3, 6, warmup_target=1e-2, warmup_steps=2), clipnorm=1
        )
    ),
    "compiled momentum with a schedule": lambda: compiled(
        keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.05, 1, 0.5), 0.8, weight_decay=0.1)
    ),
    "compiled schedule and accumulation": lambda: compiled(
        keras.optimizers.SGD(
            keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.05, 0.1]), gradient_accumulation_steps=3
        )
    ),
    "compiled schedule of your own": lambda: compiled(keras.optimizers.Adam(OwnSchedule())),
}
WORKS: dict[str, Make] = LAYERS | MODELS | LOSSES | CONSTRAINTS | OPTIMIZERS
"""Cases in which training is Keras's."""

WARNED: dict[str, tuple[Make, str]] = {
    "state assigned in call": (lambda: layered(lambda: L.Dense(4), Counting, shape=(4,)), "assign to .*count"),
}
"""Cases that are trained with a warning."""

REFUSED: dict[str, tuple[Make, str]] = {
    "SpectralNormalization": (
        lambda: layered(lambda: L.SpectralNormalization(L.Dense(4)), shape=(4,)),
        "assigns to its own",
    ),
    "stop_gradient": (
        lambda: layered(lambda: L.Dense(4), lambda: L.Lambda(lambda x: x * tf.stop_gradient(x)), shape=(4,)),
        "wrong by .*StopGradient in '.*lambda",
    ),
    "SpectralNormalization of a convolution": (
        lambda: layered(lambda: L.SpectralNormalization(L.Conv2D(4, 2)), shape=IMAGE),
        "assigns to its own",
    ),
    "TFSMLayer": (lambda: layered(saved, shape=(4,)), "reads its variable .* directly .*trainable = False"),
    "float8": (lambda: quantized("float8"), "_scale' is overwritten with its gradient.*float8"),
    "py_function": (
        lambda: layered(lambda: L.Dense(4), lambda: Calling(tf.py_function), shape=(4,)),
        "EagerPyFunc in '.*calling.*' calls Python",
    ),
    "numpy_function": (
        lambda: layered(lambda: L.Dense(4), lambda: Calling(tf.numpy_function), shape=(4,)),
        "PyFunc in '.*calling.*' calls Python",
    ),
    "AugMix": (
        lambda: layered(lambda: L.AugMix(value_range=(-3, 3)), shape=(8, 8, 3)),
        "draws from Python's own .*AugMix",
    ),
    "stateful LSTM": (stateful, "layer 'lstm.*' is stateful"),
    "random op without a seed": (
        lambda: layered(lambda: L.Dense(4), lambda: L.Lambda(lambda x: x + tf.random.normal([4])), shape=(4,)),
        "RandomStandardNormal in '.*lambda.*' draws random numbers that no seed",
    ),
    "a custom train_step": (lambda: subclassed(OwnStep), "OwnStep.*its own train_step"),
    "a custom compute_loss": (lambda: subclassed(OwnLoss), "OwnLoss.*its own compute_loss"),
    "a custom constraint": (lambda: hidden(kernel_constraint=OwnConstraint()), "constraint OwnConstraint"),
    "compiled Ftrl": (
        lambda: compiled(keras.optimizers.Ftrl()),
        "compiled with Ftrl, which rfho2 does not support.*optimizer='adam'",
    ),
    "compiled ema_overwrite_frequency, a function as learning rate": (
        lambda: compiled(keras.optimizers.Adam(lambda: 0.1, use_ema=True, ema_overwrite_frequency=5, clipnorm=1.0)),
        "a function as learning rate.* and with ema_overwrite_frequency=5.*Adam.*learning_rate=.* clipnorm=1.0, use_ema",
    ),
    "loss, a metric": (lambda: with_loss("accuracy", classes()), "has no gradient"),
    "loss without reduction": (lambda: with_loss(keras.losses.MeanSquaredError(reduction=None), numbers(3)), "reduction"),
}
"""Cases that are refused, and what the message says."""

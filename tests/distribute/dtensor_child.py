"""Run by test_dtensor.py in a fresh process: engines on inputs sharded over two logical devices, method by method."""

import functools
import gc
import sys

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

import rfho2 as rf
from tests.support.problems import assert_agree

ENGINES = {
    "reverse": rf.reverse,
    "checkpointed": lambda problem, jit_compile: rf.reverse(problem, checkpoints=2, jit_compile=jit_compile),
    "forward": rf.forward,
    "forward_many": rf.forward,
    "forward_chunked": lambda problem, jit_compile: rf.forward(problem, chunk=2, jit_compile=jit_compile),
    "real_time": lambda problem, jit_compile: rf.real_time(problem, 4, jit_compile=jit_compile),
    "windows": lambda problem, jit_compile: rf.real_time(problem, 4, mode="reverse", jit_compile=jit_compile),
    "reverse_fixed": rf.reverse,
    "forward_fixed": rf.forward,
}
RNG = np.random.default_rng(0)
X, Y, W = RNG.normal(size=(16, 3)), RNG.integers(0, 2, 16), RNG.normal(size=(3, 2))


def hypergradient(method, jit_compile, shard, replicate):
    """The hypergradient of softmax regression; `shard` places the examples, `replicate` everything else."""
    data = (shard(tf.constant(X)), shard(tf.constant(Y)))
    fixed = method.endswith("fixed")
    product = rf.fixed_product(shard(tf.constant(np.tanh(X)))) if fixed else None

    def loss(p, hypers, batch):
        logits = product(p["w"]) if fixed else tf.tanh(batch[0]) @ p["w"]
        error = tf.nn.softmax_cross_entropy_with_logits(tf.one_hot(batch[1], 2, dtype=tf.float64), logits)
        return tf.reduce_mean(error) + tf.reduce_sum(hypers["l2"] * p["w"] ** 2)

    full = rf.batches.full(data)
    problem = rf.Problem(rf.momentum(loss, "lr", "mu"), loss, 4, full, full)
    hypers = {"lr": 0.1, "mu": 0.7, "l2": np.full((3, 2), 0.01) if method == "forward_many" else 0.01}
    hypers = {name: replicate(tf.constant(value, tf.float64)) for name, value in hypers.items()}
    engine = ENGINES[method](problem, jit_compile=jit_compile)
    return engine({"w": replicate(tf.constant(W))}, hypers, replicate(tf.constant(0)))


@functools.cache
def unsharded(method):
    return hypergradient(method, False, lambda v: v, lambda v: v)


def main(mode, *methods):
    devices = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(devices[0], [tf.config.LogicalDeviceConfiguration()] * 2)
    mesh = dtensor.create_mesh([("batch", 2)], devices=["CPU:0", "CPU:1"])
    whole = lambda v: dtensor.copy_to_mesh(v, dtensor.Layout.replicated(mesh, v.shape.rank))  # noqa: E731
    halves = lambda v: dtensor.relayout(whole(v), dtensor.Layout.batch_sharded(mesh, "batch", v.shape.rank))  # noqa: E731
    assert len(dtensor.unpack(halves(tf.constant(X)))[0]) == 8
    for method in methods:
        expected = unsharded("forward_many" if method == "forward_many" else "reverse")  # which all others agree with
        with dtensor.default_mesh(mesh):
            sharded = hypergradient(method, mode == "jit", halves, whole)
        numbers = {name: dtensor.unpack(grad)[0].numpy() for name, grad in sharded.grads.items()}
        assert_agree({name: grad.numpy() for name, grad in expected.grads.items()}, numbers, rtol=1e-10)
        np.testing.assert_allclose(expected.value, dtensor.unpack(sharded.value)[0], rtol=1e-10)
        print(method, "agrees", flush=True)
        gc.collect()  # DTensor cannot keep a graph with loops while it lowers another: see core/dtensors.py


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Run by test_dtensor.py in a fresh process: engines on inputs sharded over two logical devices."""

import sys

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

import rfho2 as rf
from tests.support.problems import assert_agree


def main(method, jit_compile):
    devices = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(devices[0], [tf.config.LogicalDeviceConfiguration()] * 2)
    mesh = dtensor.create_mesh([("batch", 2)], devices=["CPU:0", "CPU:1"])
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=(16, 3)), rng.integers(0, 2, 16), rng.normal(size=(3, 2))

    def engine_on(place_sharded, place):
        data = (place_sharded(tf.constant(x)), place_sharded(tf.constant(y)))
        fixed = method.endswith("fixed")
        product = rf.fixed_product(place_sharded(tf.constant(np.tanh(x)))) if fixed else None

        def loss(p, hypers, batch):
            error = tf.nn.softmax_cross_entropy_with_logits(
                tf.one_hot(batch[1], 2, dtype=tf.float64), product(p["w"]) if fixed else tf.tanh(batch[0]) @ p["w"]
            )
            return tf.reduce_mean(error) + tf.reduce_sum(hypers["l2"] * p["w"] ** 2)

        full = rf.batches.full(data)
        problem = rf.Problem(rf.momentum(loss, "lr", "mu"), loss, 4, full, full)
        make = {
            "reverse": lambda: rf.reverse(problem, jit_compile=jit_compile),
            "checkpointed": lambda: rf.reverse(problem, checkpoints=2, jit_compile=jit_compile),
            "forward_chunked": lambda: rf.forward(problem, chunk=2, jit_compile=jit_compile),
            "forward": lambda: rf.forward(problem, jit_compile=jit_compile),
            "forward_many": lambda: rf.forward(problem, jit_compile=jit_compile),
            "reverse_fixed": lambda: rf.reverse(problem, jit_compile=jit_compile),
            "forward_fixed": lambda: rf.forward(problem, jit_compile=jit_compile),
            "real_time": lambda: rf.real_time(problem, 4, jit_compile=jit_compile),
        }
        hypers = {"lr": 0.1, "mu": 0.7, "l2": np.full((3, 2), 0.01) if method == "forward_many" else 0.01}
        hypers = {name: place(tf.constant(value, tf.float64)) for name, value in hypers.items()}
        return make[method]()({"w": place(tf.constant(w))}, hypers, place(tf.constant(0)))

    alone = engine_on(lambda v: v, lambda v: v)
    whole = lambda v: dtensor.copy_to_mesh(v, dtensor.Layout.replicated(mesh, v.shape.rank))  # noqa: E731
    halves = lambda v: dtensor.relayout(whole(v), dtensor.Layout.batch_sharded(mesh, "batch", v.shape.rank))  # noqa: E731
    with dtensor.default_mesh(mesh):
        sharded = engine_on(halves, whole)
    assert len(dtensor.unpack(halves(tf.constant(x)))[0]) == 8
    numbers = lambda grads: {name: dtensor.unpack(g)[0].numpy() for name, g in grads.items()}  # noqa: E731
    assert_agree({name: g.numpy() for name, g in alone.grads.items()}, numbers(sharded.grads), rtol=1e-10)
    np.testing.assert_allclose(alone.value, dtensor.unpack(sharded.value)[0], rtol=1e-10)
    print("agree")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "jit")

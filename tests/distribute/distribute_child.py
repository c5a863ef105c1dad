"""Run by test_distribute.py in each process of a cluster: engines on a mesh, compared with the same engines without one."""

import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

import rfho2 as rf
from rfho2.hypergradients.sensitivity import SeparateColumns

RTOL = {"float64": 1e-10, "float32": 1e-5}
ENGINES = {
    "reverse": lambda problem: rf.reverse(problem, jit_compile=False),
    "checkpointed": lambda problem: rf.reverse(problem, checkpoints=2, jit_compile=False),
    "forward": lambda problem: rf.forward(problem, jit_compile=False),
    "real_time": lambda problem: rf.real_time(problem, 3, jit_compile=False),
    "online": lambda problem: rf.real_time(problem, 3, jit_compile=False),
}


def cleaning(dtype, mesh=None):
    """A small hyper-cleaning problem: softmax regression, a weight for each of 24 examples, 16 validation examples."""
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(n, 5)).astype(dtype), rng.integers(0, 3, n)) for n in (24, 16)]
    train, validation = parts if mesh is None else [rf.distribute.shard(part, mesh) for part in parts]
    products = [rf.fixed_product(x) for x, _ in (train, validation)]

    def errors(p, product, labels):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, product(p["w"]) + p["b"])

    def loss(p, hypers, batch):
        return tf.reduce_mean(hypers["weights"] * errors(p, products[0], train[1]))

    def objective(p, hypers, batch):
        return tf.reduce_mean(errors(p, products[1], validation[1]))

    problem = rf.Problem(rf.gradient_descent(loss, 0.5), objective, 7)
    return problem, {"w": np.zeros((5, 3), dtype), "b": np.zeros(3, dtype)}, {"weights": np.linspace(0.2, 0.9, 24)}


def regression(dtype, mesh=None):
    """Softmax regression, full batch, with a learning rate and an L2 penalty as hypers."""
    rng = np.random.default_rng(2)
    data = rng.normal(size=(16, 4)).astype(dtype), rng.integers(0, 2, 16)

    def loss(w, hypers, batch):
        error = tf.nn.sparse_softmax_cross_entropy_with_logits(batch[1], batch[0] @ w)
        return tf.reduce_mean(error) + tf.reduce_sum(hypers["l2"] * w**2)

    batches = rf.batches.full(data if mesh is None else rf.distribute.shard(data, mesh))
    problem = rf.Problem(rf.gradient_descent(loss, "lr"), loss, None, batches, batches)
    return problem, rng.normal(size=(4, 2)).astype(dtype), {"lr": 0.3, "l2": 0.01}


def network(dtype, mesh=None):
    """A small network on minibatches, with a learning rate, a momentum and an L2 penalty as hypers."""
    rng = np.random.default_rng(1)
    data = rng.normal(size=(26, 4)).astype(dtype), rng.integers(0, 2, 26)
    params = {"v": rng.normal(size=(4, 3)).astype(dtype), "w": rng.normal(size=(3, 2)).astype(dtype)}

    def loss(p, hypers, batch):
        logits = tf.tanh(batch[0] @ p["v"]) @ p["w"]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch[1], logits)) + hypers["l2"] * (
            tf.reduce_sum(p["v"] ** 2) + tf.reduce_sum(p["w"] ** 2)
        )

    batches = rf.batches.shuffled(data if mesh is None else rf.distribute.replicate(data, mesh), 8, seed=3)
    batches = batches if mesh is None else rf.distribute.split(batches, mesh)
    problem = rf.Problem(rf.momentum(loss, "lr", "mu"), loss, 6, batches, batches)
    return problem, params, {"lr": 0.1, "mu": 0.6, "l2": 0.01}


def follow(engine, params, hypers, iterations=2):
    """The hypergradients of a few hyper-iterations, with hypers that shrink from one to the next."""
    carry, results = engine.start(params, hypers), []
    for k in range(iterations):
        hypergradient, carry = engine.advance(carry, {name: value * 0.9**k for name, value in hypers.items()}, k)
        results.append(hypergradient)
    return results


def compare(kind, ordinary, distributed, params, hypers):
    """Prints a checksum of the distributed engine's results, which the chief first compares with an ordinary engine's."""
    results = follow(distributed, params, hypers)
    if rf.distribute.chief():
        assert_equal(follow(ordinary, params, hypers), results, RTOL[kind.split("-")[1]])
    bits = b"".join(tensor.numpy().tobytes() for tensor in tf.nest.flatten(results))
    print(kind, "agrees", zlib.crc32(bits), flush=True)


def assert_equal(expected, results, rtol):
    """Requires hypergradients and norms to agree, each tensor relative to its own norm."""
    assert [result.norms.keys() for result in expected] == [result.norms.keys() for result in results]
    assert all(len(result.norms) == 1 for result in results)
    for a, b in zip(*map(tf.nest.flatten, (expected, results)), strict=True):
        assert a.dtype == b.dtype
        assert np.linalg.norm(a - b) <= rtol * np.linalg.norm(a), (a, b)


def agree(mesh, *kinds):
    """Compares engines on the mesh with ordinary ones; each kind is METHOD-DTYPE."""
    parts = dtensor.unpack(rf.distribute.shard(np.arange(8.0), mesh))
    assert all(len(part) == 8 // mesh.size for part in parts), "each device has only its own examples"
    for kind in kinds:
        method, dtype = kind.split("-")
        if method == "columns":
            compare_columns(kind, mesh, dtype)
            continue
        build = {"reverse": cleaning, "checkpointed": cleaning, "online": regression}.get(method, network)
        problem, params, hypers = build(dtype)
        on_mesh = rf.distribute.on_mesh(ENGINES[method](build(dtype, mesh)[0]), mesh)
        compare(kind, ENGINES[method](problem), on_mesh, params, hypers)


def compare_columns(kind, mesh, dtype):
    """Nine columns divided over the processes, forward in chunks of two and in real time."""
    problem, params, hypers = regression(dtype)
    problem = rf.Problem(problem.dynamics, problem.objective, 6, problem.batches, problem.validation)
    hypers = {**hypers, "l2": np.linspace(0.01, 0.08, 8).reshape(4, 2)}
    pairs = [
        (ENGINES["forward"](problem), rf.distribute.forward_columns(problem, mesh, 2, jit_compile=False)),
        (ENGINES["real_time"](problem), rf.distribute.real_time_columns(problem, 3, mesh, jit_compile=False)),
    ]
    for ordinary, divided in pairs:
        compare(kind, ordinary, divided, params, hypers)
    columns = divided.start(params, hypers).sensitivity
    carried = len(columns.each) if isinstance(columns, SeparateColumns) else tf.nest.flatten(columns)[0].shape[0]
    assert carried == -(-9 // mesh.size), "each process carries only its own columns"


def traffic(mesh, method, rate):
    """Prints the bytes that arrive per training step, from runs of 20 and 10 steps; there are 8,000 weights of 8 bytes."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(16, 2000)), rng.integers(0, 4, 16)
    batches = rf.batches.full(rf.distribute.shard(data, mesh))

    def loss(w, hypers, batch):
        error = tf.nn.sparse_softmax_cross_entropy_with_logits(batch[1], batch[0] @ w)
        return hypers["scale"] * tf.reduce_mean(error)

    def bytes_of(steps):
        tuned = rate == "tuned"
        problem = rf.Problem(rf.gradient_descent(loss, "lr" if tuned else 0.1), loss, steps, batches, batches)
        engine = rf.distribute.on_mesh(ENGINES[method](problem), mesh)
        arguments = np.zeros((2000, 4)), {"lr": 0.1, "scale": 0.9} if tuned else {"scale": 0.9}
        engine(*arguments)
        return min(_received(lambda: engine(*arguments)) for _ in range(5))  # other programs may use it too

    print((bytes_of(20) - bytes_of(10)) / 10, flush=True)


def _received(action):
    """The bytes that arrive on the network device, loopback by default, while `action` runs."""
    device = os.environ.get("DEVICE", "lo")

    def now():
        lines = Path("/proc/net/dev").read_text().splitlines()
        return int(next(line for line in lines if line.strip().startswith(f"{device}:")).split()[1])

    before = now()
    action()
    return now() - before


def die(state, hypers, k):
    """A metric that kills process 1 in its second hyper-iteration."""
    if k == 1 and os.environ["DTENSOR_CLIENT_ID"] == "1":
        print(f"killed at {time.monotonic()}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return {}


def freeze(state, hypers, k):
    """A metric that stops process 1 in its second hyper-iteration, as if its host had failed, and kills it after 50 s."""
    if k == 1 and os.environ["DTENSOR_CLIENT_ID"] == "1":
        subprocess.Popen(["sh", "-c", f"sleep 50; kill -KILL {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    return {}


def stop(state, hypers, k):
    """A metric that sends process 1 a signal in its second hyper-iteration."""
    if k == 1 and os.environ["DTENSOR_CLIENT_ID"] == "1":
        os.kill(os.getpid(), signal.Signals[os.environ.get("SIGNAL", "SIGTERM")])
    return {}


def linger(state, hypers, k):
    """A metric that takes a while, so that something can happen in the meantime."""
    time.sleep(0.2)
    return {}


def run(mesh, directory, metrics=None, iterations=4):
    """A run with checkpoints; prints the bits of its hypers."""
    problem, params, hypers = cleaning("float32", mesh)
    engine = rf.distribute.on_mesh(ENGINES["reverse"](problem), mesh)
    optimizer = rf.projected_adam(0.02, {"weights": rf.BoxL1Ball(15.0)})
    callbacks = [rf.CSVLogger(Path(directory) / "history.csv")]
    tuner = rf.HyperOptimizer(engine, optimizer, callbacks, metrics)
    result = tuner.run(params, hypers, iterations, checkpoint_dir=Path(directory) / "checkpoints")
    print(result.hypers["weights"].numpy().tobytes().hex(), flush=True)


def run_columns(mesh, directory, metrics=None):
    """A run in real time, where each process has its own columns and checkpoints; prints the bits of its hypers."""
    problem, params, hypers = regression("float32")
    checkpoints = Path(directory) / os.environ["DTENSOR_CLIENT_ID"]
    rf.distribute.same_checkpoint(checkpoints, mesh)
    engine = rf.distribute.real_time_columns(problem, 3, mesh, jit_compile=False)
    tuner = rf.HyperOptimizer(engine, rf.projected_adam(0.01), metrics=metrics)
    result = tuner.run(params, hypers, 4, checkpoint_dir=checkpoints)
    print([value.numpy().tobytes().hex() for value in result.hypers.values()], flush=True)


def agree_and_die(mesh, directory, *kinds):
    """Two scenarios in the same processes, which take long to start."""
    agree(mesh, *kinds)
    run(mesh, directory, die)


def leave(mesh):
    """Process 1 ends normally, but too early."""
    problem, params, hypers = cleaning("float32", mesh)
    engine = rf.distribute.on_mesh(ENGINES["reverse"](problem), mesh)
    engine(params, hypers)
    if rf.distribute.chief():
        engine(params, hypers)


def differ(mesh):
    """Hypers that are not the same in all processes."""
    problem, params, hypers = cleaning("float32", mesh)
    process = float(os.environ["DTENSOR_CLIENT_ID"])
    rf.distribute.on_mesh(ENGINES["reverse"](problem), mesh)(params, {"weights": hypers["weights"] + process})


SCENARIOS = {
    "agree": agree,
    "agree_and_die": agree_and_die,
    "run": run,
    "die": lambda mesh, directory: run(mesh, directory, die),
    "freeze": lambda mesh, directory: run(mesh, directory, freeze),
    "stop": lambda mesh, directory: run(mesh, directory, stop),
    "linger": lambda mesh, directory: run(mesh, directory, linger, 20),
    "run_columns": run_columns,
    "stop_columns": lambda mesh, directory: run_columns(mesh, directory, stop),
    "die_columns": lambda mesh, directory: run_columns(mesh, directory, die),
    "differ": differ,
    "leave": leave,
    "traffic": traffic,
}

if __name__ == "__main__":
    rf.distribute.initialize(devices=int(os.environ.get("DEVICES", 1)))
    SCENARIOS[sys.argv[1]](rf.distribute.mesh(), *sys.argv[2:])

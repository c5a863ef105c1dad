"""Two bounds of `rf.implicit`: its time compared with reverse mode, and its memory compared with one training step.

Time: rf.implicit and rf.reverse on the cleaning problem at the same T, from w = 0, interleaved; the best of several counts.
Memory: of a 784-h-h-10 network on 100 digits with one weight each, trained by gradient descent, in a fresh process for each
T: the peak of resident memory during a second call above that before it, in states. A state is the weights of the network,
which outweigh the activations here. The graph and code of the engine do not count.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import rfho2 as rf
from data import mnist
from experiments.common import networks, timing
from experiments.error_against_cost import problems
from experiments.error_against_cost.tasks import Row
from rfho2.core.types import Hypers, Nest
from rfho2.planning import peaks

STEPS = 100  # T of the comparison of times
EXAMPLES = 100  # of the network


def compare_times(case: problems.Case, reference: problems.Reference, rounds: int) -> list[Row]:
    """Error and seconds of implicit, reverse and plain training at T = 100; implicit with the default settings too."""
    made = problems.functions(case, tf.float32)
    problem = problems.problem(case, made, STEPS)
    params, hypers = problems.start(case)
    engines = {
        "reverse": rf.reverse(problem),
        "implicit": rf.implicit(problem),
        "implicit, tolerance 1e-2": rf.implicit(problem, tolerance=1e-2),
    }
    train = tf.function(problem.train, jit_compile=True, autograph=False)
    calls = {name: functools.partial(call, params, hypers) for name, call in {"plain training": train, **engines}.items()}
    hypergradients = {name: engine(params, hypers) for name, engine in engines.items()}
    errors = {name: reference.error(hypergradient.grads["h"].numpy()) for name, hypergradient in hypergradients.items()}
    products = {name: int(h.norms["products"]) for name, h in hypergradients.items() if "products" in h.norms}
    seconds = timing.best_times(calls, rounds)
    return [
        {"timed": name, "steps": STEPS, "products": products.get(name), "error": errors.get(name), "seconds": best}
        for name, best in seconds.items()
    ]


def network(hidden: int, steps: int) -> tuple[rf.Problem, Nest, Hypers]:
    """A network with an L2 term, and the weight of each example as hypers."""
    digits = mnist.load()
    x, y = tf.constant(digits.images[:EXAMPLES]), tf.constant(digits.labels[:EXAMPLES])

    def error(p: Nest) -> tf.Tensor:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(y, networks.tanh_logits(p, x))

    def loss(p: Nest, hypers: Hypers, batch: None) -> tf.Tensor:
        decay = tf.add_n([tf.reduce_sum(leaf**2) for leaf in tf.nest.flatten(p)])
        return tf.reduce_mean(hypers["h"] * error(p)) + problems.L2 * decay

    def objective(p: Nest, hypers: Hypers, batch: None) -> tf.Tensor:
        return tf.reduce_mean(error(p))

    params = networks.layers((784, hidden, hidden, mnist.CLASSES), np.random.default_rng(0))
    return rf.Problem(rf.gradient_descent(loss, 0.01), objective, steps), params, {"h": tf.ones(EXAMPLES)}


def measure_memory(hidden: int, steps: int | None) -> Row:
    """Bytes of a call of `rf.implicit` with T steps, or, without T, of one plain training step."""
    problem, params, hypers = network(hidden, steps or 1)
    train: Callable[..., Any] = tf.function(problem.train, jit_compile=True, autograph=False)
    call = train if steps is None else rf.implicit(problem, iterations=10)
    warnings.simplefilter("ignore")  # a network is not at a solution, which does not matter for memory
    call(params, hypers)
    since = peaks.watch()
    call(params, hypers)
    peak = since()
    weights = sum(int(tf.size(leaf)) for leaf in tf.nest.flatten(params))
    what = "plain step" if steps is None else "implicit"
    return {"memory": what, "steps": steps, "state_bytes": 4 * weights, "peak_bytes": peak}

"""The precision of hypergradients of the transformer: products in TF32 or bfloat16, for windows of several lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from experiments.benchmarks import gpt, gpt_numbers
from experiments.benchmarks.precision import Arithmetic, rounded
from rfho2.core import loops
from rfho2.core.compiled import Compiled
from rfho2.core.types import Hypers, Nest
from rfho2.hypergradients.reverse import Sweep

BATCHES = 9


def hypergradients(size: str, arithmetic: Arithmetic, windows: Sequence[int], epsilon: float) -> list[dict[str, np.ndarray]]:
    """Those of the first window, for each of its lengths; one program, because compiling takes the time."""
    tf.config.experimental.enable_tensor_float_32_execution(arithmetic.tf32)
    numbers, dtype = gpt_numbers.SIZES[size], arithmetic.dtype.as_numpy_dtype
    text = gpt_numbers.text(numbers, BATCHES)
    problem = gpt.problem(numbers, text, compute=arithmetic.compute, epsilon=epsilon, loop=True)

    def grads(params: Nest, hypers: Hypers, steps: tf.Tensor) -> Nest:
        sweep = Sweep(problem, hypers, tf.constant(0))
        trajectory, last = loops.record(sweep.step, problem.dynamics.init(params, hypers), 0, steps, max(windows))
        turned = sweep.turn(last, sweep.nothing(last), steps)
        (cost,), _ = loops.fold_back(sweep.back, turned, trajectory, 0, steps)
        return cost.hypers

    compiled = Compiled(grads)
    params = {name: tf.constant(w) for name, w in gpt_numbers.initial_params(numbers, dtype, stacked=True).items()}
    hypers = {name: tf.constant(h) for name, h in gpt_numbers.hypers(dtype).items()}
    return [{name: g.numpy() for name, g in compiled(params, hypers, tf.constant(n)).items()} for n in windows]


def table(size: str, windows: Sequence[int], reference: Arithmetic, epsilon: float = gpt_numbers.EPSILON) -> Iterator[str]:
    """|g - g_reference| / |g_reference| of each hyper."""
    ways = [way for way in rounded() if way != reference]
    exact = hypergradients(size, reference, windows, epsilon)
    grads = [hypergradients(size, way, windows, epsilon) for way in ways]
    yield f"| weights | steps | hyper | {' | '.join(way.name for way in ways)} |"
    yield "|---|---|---|" + "---|" * len(ways)
    for i, window in enumerate(windows):
        for name, truth in exact[i].items():
            errors = [np.linalg.norm(each[i][name] - truth) / np.linalg.norm(truth) for each in grads]
            yield f"| {size} | {window} | {name} | {' | '.join(f'{error:.1e}' for error in errors)} |"

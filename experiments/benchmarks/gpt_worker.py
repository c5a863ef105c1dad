"""One contestant of the transformer benchmark in a process of its own, so that peak memory is its own.

python -m experiments.benchmarks.gpt_worker '{"framework": "rfho2", "size": "1M", "window": 8, "rounds": 3}'

prints one line that begins with `ANSWER`: seconds of the first call, which compiles, and of the best of the following ones,
the peak memory of the device in bytes if the framework knows it, and the last value and hypergradient. The framework "plan"
gives the seconds and bytes that `rf.plan` predicts instead.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np

from experiments.benchmarks import gpt_numbers
from experiments.benchmarks.gpt_numbers import SIZES, Size, Text

ANSWER = "ANSWER "
BATCHES = 9  # one of them for validation
Answer = tuple[float, dict[str, np.ndarray]]


def problem_in_rfho2(size: Size, text: Text, options: dict[str, Any]) -> Any:
    """The problem, with the precision that is asked for."""
    import tensorflow as tf

    from experiments.benchmarks import gpt

    tf.config.experimental.enable_tensor_float_32_execution(options.get("tf32", True))
    compute = None if options.get("compute") is None else tf.as_dtype(options["compute"])
    return gpt.problem(size, text, options.get("recompute", True), compute, loop=options.get("loop", False))


def inputs_of_rfho2(size: Size, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Params and hypers."""
    import tensorflow as tf

    params = gpt_numbers.initial_params(size, stacked=options.get("loop", False))
    return tuple({name: tf.constant(x) for name, x in each.items()} for each in (params, gpt_numbers.hypers()))  # type: ignore[return-value]


def planned(size: Size, text: Text, window: int, options: dict[str, Any]) -> dict[str, float]:
    """What `rf.plan` predicts for a window whose states are all saved."""
    import rfho2 as rf

    plan = rf.plan(problem_in_rfho2(size, text, options), *inputs_of_rfho2(size, options), 1e15, hyper_batch=window)
    choice = next(choice for choice in plan.choices if "checkpoints" not in choice.settings)
    return {"seconds": choice.seconds, "bytes": choice.bytes}


def in_rfho2(size: Size, text: Text, window: int, options: dict[str, Any]) -> tuple[Iterator[Answer], Any]:
    """The answers of the windows of one training run, and a function that tells the peak memory."""
    import tensorflow as tf

    import rfho2 as rf

    problem = problem_in_rfho2(size, text, options)
    engine = rf.real_time(
        problem, window, mode="reverse", checkpoints=options.get("checkpoints"), jit_compile=options.get("jit", True)
    )

    def windows() -> Iterator[Answer]:
        params, hypers = inputs_of_rfho2(size, options)
        carry = engine.start(params, hypers)
        del params
        k = 0
        while True:
            hypergradient, carry = engine.advance(carry, hypers, k)
            answer = float(cast(Any, hypergradient.value)), {name: g.numpy() for name, g in hypergradient.grads.items()}
            del hypergradient
            yield answer
            k += 1

    def peak() -> int | None:
        if not tf.config.list_physical_devices("GPU"):
            return None
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])

    return windows(), peak


def in_jax(size: Size, text: Text, window: int, options: dict[str, Any]) -> tuple[Iterator[Answer], Any]:
    """The same in JAX."""
    import jax
    import jax.numpy as jnp

    from experiments.benchmarks import jax_gpt

    if not options.get("tf32", True):
        jax.config.update("jax_default_matmul_precision", "highest")
    names = ("recompute", "mixed", "keep_steps", "compute", "loop")
    chosen = {name: options[name] for name in names if name in options}
    advance: Callable[..., Any] = jax_gpt.window(size, text, window, **chosen)

    def windows() -> Iterator[Answer]:
        params = jax.tree.map(jnp.asarray, gpt_numbers.initial_params(size, stacked=options.get("loop", False)))
        state = (params, *(jax.tree.map(jnp.zeros_like, params) for _ in range(2)))
        del params
        hypers, t = jax.tree.map(jnp.asarray, gpt_numbers.hypers()), 0
        while True:
            value, grads, state = advance(state, hypers, jnp.asarray(t, jnp.int32))
            yield float(value), {name: np.asarray(g) for name, g in grads.items()}
            t += window

    def peak() -> int | None:
        return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")

    return windows(), peak


def main() -> None:
    """Runs the contestant that the argument describes."""
    asked = json.loads(sys.argv[1])
    size = SIZES[asked["size"]]
    text = gpt_numbers.text(size, BATCHES)
    if asked["framework"] == "plan":
        print(ANSWER + json.dumps(planned(size, text, asked["window"], asked)), flush=True)
        return
    make = {"rfho2": in_rfho2, "jax": in_jax}[asked["framework"]]
    windows, peak = make(size, text, asked["window"], asked)
    seconds = []
    for _ in range(1 + asked["rounds"]):
        began = time.perf_counter()
        value, grads = next(windows)
        seconds.append(time.perf_counter() - began)
    answer = {
        "first": seconds[0],
        "seconds": min(seconds[1:]),
        "peak": peak(),
        "value": value,
        "grads": {name: np.asarray(g, float).tolist() for name, g in grads.items()},
    }
    print(ANSWER + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

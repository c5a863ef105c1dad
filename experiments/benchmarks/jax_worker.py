"""A process that computes with JAX for another one, which cannot load JAX together with TensorFlow.

It reads one JSON object from each line of its input, and answers each with one on a line that begins with `ANSWER`:

{"build": name, "arrays": file, "options": {...}, "precision": "highest"}  builds a contestant of `jax_peers`
{"call": [numbers]}                                                       calls it: its values and its seconds
{"peak": true}                                                            the largest number of bytes used on the device
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

ANSWER = "ANSWER "


def main() -> None:
    """Answers until its input ends."""
    import jax

    from experiments.benchmarks import jax_peers

    contestant: Any = None
    for line in sys.stdin:
        asked = json.loads(line)
        if "build" in asked:
            jax.config.update("jax_default_matmul_precision", asked["precision"])
            contestant = jax_peers.CONTESTANTS[asked["build"]](dict(np.load(asked["arrays"])), **asked["options"])
            answer: Any = jax_peers.description()
        elif "call" in asked:
            argument = np.asarray(asked["call"], np.float32)
            began = time.perf_counter()
            values = contestant(argument)
            answer = {"seconds": time.perf_counter() - began, "values": values.tolist()}
        else:
            answer = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
        print(ANSWER + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

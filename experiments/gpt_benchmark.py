"""A small GPT in real time in reverse mode, compared with JAX: time and peak memory of a window, and its hypergradient.

python -m experiments.gpt_benchmark --sizes=1M --windows=4 --frameworks=rfho2
python -m experiments.gpt_benchmark --sizes=10M --windows=8 --jax_command="python3"
python -m experiments.gpt_benchmark --sizes=10M,50M --windows=8,32 --plan  # on a GPU: predicted and measured peaks
python -m experiments.gpt_benchmark --sizes=1010M --frameworks=rfho2 --checkpoints=3 --least_memory --rounds=1  # on an H200

The network and its hypers are described in benchmarks/gpt_numbers.py; each variant computes in a process of its own. The
time is that of the best of several windows after the first, which compiles.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import sys
from typing import Any

import numpy as np

from data.errors import DataError
from experiments.benchmarks.gpt_numbers import SIZES
from experiments.benchmarks.gpt_worker import ANSWER
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags, setting
from experiments.common.tables import Table

VARIANTS: dict[str, dict[str, Any]] = {
    "rfho2": {"framework": "rfho2", "recompute": False},
    "rfho2, blocks recomputed": {"framework": "rfho2"},
    "rfho2, blocks recomputed in a loop": {"framework": "rfho2", "loop": True},
    "JAX, activations of all steps kept": {"framework": "jax", "recompute": False, "keep_steps": True},
    "JAX": {"framework": "jax", "recompute": False},
    "JAX, blocks recomputed": {"framework": "jax"},
    "JAX, blocks recomputed, forward over reverse": {"framework": "jax", "mixed": True},
    "JAX, blocks recomputed in a scan": {"framework": "jax", "loop": True},
    "JAX, blocks recomputed in a scan, forward over reverse": {"framework": "jax", "loop": True, "mixed": True},
}
LEAST_MEMORY = ("rfho2, blocks recomputed in a loop", "JAX, blocks recomputed in a scan, forward over reverse")


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured."""

    sizes: tuple[str, ...] = setting(("1M",), "Sizes of the network.", choices=tuple(SIZES))
    windows: tuple[int, ...] = setting((8,), "Steps of a window.", at_least=1)
    frameworks: tuple[str, ...] = setting(("rfho2", "jax"), "Frameworks.", choices=("rfho2", "jax"))
    checkpoints: int | None = setting(None, "States of a window that rfho2 saves; all by default.", at_least=1)
    least_memory: bool = setting(False, "Only the variant of each framework with the lowest peak.")
    rounds: int = setting(5, "Timed windows, of which the best counts.", at_least=1)
    tf32: bool = setting(True, "Whether products of float32 may be rounded to TF32 on a GPU.")
    compute: str | None = setting(None, "Dtype of activations and products.", choices=["bfloat16"])
    plan: bool = setting(False, "Compare what rf.plan predicts with the peak instead, for blocks in a loop.")
    jax_command: str = setting(sys.executable, "The Python that has JAX.")


def main() -> None:
    """Prints a table for each size and window."""
    config = from_flags(Config)
    for size in config.sizes:
        for window in config.windows:
            print(f"{size}, {SIZES[size].weights:,} weights, windows of {window} steps:", flush=True)
            print((predictions if config.plan else table)(config, size, window), flush=True)


def table(config: Config, size: str, window: int) -> Table:
    """A row for each variant."""
    made = Table("variant", "seconds", "peak GB", "seconds of the first call", "value", "norm of the hypergradient")
    for name, variant in VARIANTS.items():
        if variant["framework"] in config.frameworks and (name in LEAST_MEMORY or not config.least_memory):
            answer = ask(variant | shared(config, size, window), config.jax_command)
            norm = np.linalg.norm(np.concatenate([np.ravel(g) for g in answer["grads"].values()]))
            peak = "-" if answer["peak"] is None else f"{answer['peak'] / 1e9:.2f}"
            made.add(
                name, f"{answer['seconds']:.3f}", peak, f"{answer['first']:.0f}", f"{answer['value']:.4f}", f"{norm:.4g}"
            )
    return made


def predictions(config: Config, size: str, window: int) -> Table:
    """What `rf.plan` says before, and what is measured."""
    made = Table("", "seconds", "peak GB")
    question = {"loop": True} | shared(config, size, window)
    planned = ask(question | {"framework": "plan"}, config.jax_command)
    measured = ask(question | {"framework": "rfho2"}, config.jax_command)
    if measured["peak"] is None:
        raise DataError("predicted and measured peaks can be compared on a GPU only.")
    made.add("predicted by rf.plan", f"{planned['seconds']:.3f}", f"{planned['bytes'] / 1e9:.2f}")
    made.add("measured", f"{measured['seconds']:.3f}", f"{measured['peak'] / 1e9:.2f}")
    seconds, peak = planned["seconds"] / measured["seconds"], planned["bytes"] / measured["peak"]
    made.add("ratio", f"{seconds:.2f}", f"{peak:.2f}")
    return made


def shared(config: Config, size: str, window: int) -> dict[str, Any]:
    """The part of a question that is the same for all variants."""
    settings = {name: getattr(config, name) for name in ("rounds", "tf32", "compute", "checkpoints")}
    return {"size": size, "window": window, **settings}


def ask(question: dict[str, Any], jax_command: str) -> dict[str, Any]:
    """The answer of a worker."""
    python = shlex.split(jax_command) if question["framework"] == "jax" else [sys.executable]
    command = [*python, "-m", "experiments.benchmarks.gpt_worker", json.dumps(question)]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.splitlines()
    answers = [line for line in lines if line.startswith(ANSWER)]
    if not answers:
        raise DataError(f"the process for {question} ended without an answer; its errors are above.")
    return json.loads(answers[-1].removeprefix(ANSWER))


if __name__ == "__main__":
    define_flags(Config)
    run_main(main)

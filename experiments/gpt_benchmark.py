"""A small GPT in real time in reverse mode, compared with JAX: time and peak memory of a window, and its hypergradient.

python -m experiments.gpt_benchmark --sizes=1M --windows=4 --frameworks=rfho2
python -m experiments.gpt_benchmark --sizes=10M --windows=8 --jax_command="python3"

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
    "JAX, activations of all steps kept": {"framework": "jax", "recompute": False, "keep_steps": True},
    "JAX": {"framework": "jax", "recompute": False},
    "JAX, blocks recomputed": {"framework": "jax"},
    "JAX, blocks recomputed, forward over reverse": {"framework": "jax", "mixed": True},
}


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured."""

    sizes: tuple[str, ...] = setting(("1M",), "Sizes of the network.", choices=tuple(SIZES))
    windows: tuple[int, ...] = setting((8,), "Steps of a window.", at_least=1)
    frameworks: tuple[str, ...] = setting(("rfho2", "jax"), "Frameworks.", choices=("rfho2", "jax"))
    checkpoints: int | None = setting(None, "States of a window that rfho2 saves; all by default.", at_least=1)
    rounds: int = setting(5, "Timed windows, of which the best counts.", at_least=1)
    tf32: bool = setting(True, "Whether products of float32 may be rounded to TF32 on a GPU.")
    compute: str | None = setting(None, "Dtype of activations and products.", choices=["bfloat16"])
    jax_command: str = setting(sys.executable, "The Python that has JAX.")


def main() -> None:
    """Prints a table for each size and window."""
    config = from_flags(Config)
    for size in config.sizes:
        for window in config.windows:
            print(f"{size}, {SIZES[size].weights:,} weights, windows of {window} steps:", flush=True)
            print(table(config, size, window), flush=True)


def table(config: Config, size: str, window: int) -> Table:
    """A row for each variant."""
    made = Table("variant", "seconds", "peak GB", "seconds of the first call", "value", "norm of the hypergradient")
    for name, variant in VARIANTS.items():
        if variant["framework"] in config.frameworks:
            shared = {
                "size": size,
                "window": window,
                "rounds": config.rounds,
                "tf32": config.tf32,
                "compute": config.compute,
            }
            answer = ask(variant | shared, config.jax_command)
            norm = np.linalg.norm(np.concatenate([np.ravel(g) for g in answer["grads"].values()]))
            peak = "-" if answer["peak"] is None else f"{answer['peak'] / 1e9:.2f}"
            made.add(
                name, f"{answer['seconds']:.3f}", peak, f"{answer['first']:.0f}", f"{answer['value']:.4f}", f"{norm:.4g}"
            )
    return made


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

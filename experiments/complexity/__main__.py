"""What a hypergradient costs (paper, Appendix A): seconds against the number of hypers, memory against that of the weights.

python -m experiments.complexity --preset=quick
python -m experiments.complexity --preset=paper --output_dir=results/complexity_paper
python -m experiments.complexity --slopes

A 784-h-h-10 tanh network learns 5,000 digits in T steps with momentum, batches of 100. The m hypers (hyperparameters whose
gradient is computed) are learning rate, momentum and the weights of the first m - 2 digits in the loss; the objective is the
error on 5,000 other digits.

Each measurement runs in a fresh process, with XLA where the engine chooses it by default.
Seconds: of one hypergradient, best of `rounds` calls; an earlier call compiles and does not count. A measurement that would
exceed the budget runs fewer steps at two lengths, and the line through both is followed to T: "extrapolated".
Memory: the peak resident memory during a second call above that before the engine was built. Its graph and code, the states
it keeps, the sensitivities and the objective's activations count. TensorFlow, the digits, the initial weights, and what a
run of three steps by an engine of the same kind left behind do not; nor does memory that the compiler has freed.
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import tensorflow as tf
from absl import flags

from data.errors import DataError
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags, setting
from experiments.common.results import write_results
from experiments.complexity import report, slopes
from experiments.complexity.experiment import PRESETS, Config, run
from experiments.complexity.measure import digits, measure
from experiments.complexity.tasks import Task
from rfho2.planning import memory

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Invocation:
    """Flags that no measurement depends on."""

    slopes: bool = setting(False, "Fit log-log slopes instead, on a smaller network: slopes.json.")
    measure: str | None = setting(None, "For internal use: print one measurement, given and printed as JSON.")


def run_slopes(output: Path) -> None:
    """Fits the slopes and reports them."""
    config, began = slopes.SlopeConfig(), time.perf_counter()
    memory.keep_freed()  # otherwise blocks above 32 MB, the states of 200 steps, cost page faults in every call
    tf.get_logger().setLevel("ERROR")  # it would warn that many engines are traced
    rows = slopes.measure_slopes(config)
    write_results(output / "slopes.json", "complexity", config, rows, {"whole run": time.perf_counter() - began})
    print(slopes.table(rows))


def run_panels(config: Config, output: Path) -> None:
    """Measures seconds and memory, and reports them."""
    if not memory.CLEAR_REFS.exists():
        raise DataError(f"{memory.CLEAR_REFS} is missing: peak memory needs Linux; --slopes runs anywhere.")
    began = time.perf_counter()
    rows = run(config, output / "measurements.json", FLAGS.resume)
    write_results(output / "results.json", "complexity", config, rows, {"whole run": time.perf_counter() - began})
    print(report.write(output, rows))


def main() -> None:
    """Runs what the flags ask for."""
    invocation = from_flags(Invocation)
    if invocation.measure is not None:
        return print(json.dumps(measure(Task.of(json.loads(invocation.measure)))))
    digits()  # bad data should fail before hours of measurements
    if invocation.slopes:
        return run_slopes(Path(FLAGS.output_dir))
    run_panels(from_flags(Config, PRESETS), Path(FLAGS.output_dir))


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="quick: T = 50, 3 numbers of hypers, 2 widths; paper: T = 1000.",
        output_dir="results/complexity",
        resume=True,
    )
    define_flags(Invocation)
    run_main(main)

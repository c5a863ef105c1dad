"""Learning rate, momentum and L2 of a network tuned in real time, while it learns digits.

python -m experiments.real_time_digits --output_dir=results/real_time_digits
"""

from __future__ import annotations

from pathlib import Path

from absl import flags

import rfho2 as rf
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import write_results
from experiments.real_time_digits import report
from experiments.real_time_digits.experiment import Config, clean_split, run

FLAGS = flags.FLAGS


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config), Path(FLAGS.output_dir)
    callbacks = [rf.ProgressBar(show=("value", "lr", "mu", "validation accuracy")), rf.CSVLogger(output / "history.csv")]
    if FLAGS.tensorboard:
        callbacks.append(rf.TensorBoard(output / "tensorboard", every=10))
    result = run(config, clean_split(config.seed), callbacks, output / "checkpoints")
    report.curves(result.history, config, output / "curves")
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in result.history]
    write_results(output / "results.json", "real_time_digits", config, rows, {"seconds": result.history[-1]["seconds"]})
    print(f"{report.summary(result.history, config)}\nCurves: {output / 'curves.png'}")


if __name__ == "__main__":
    define_flags(Config, output_dir="results/real_time_digits", tensorboard=True)
    run_main(main)

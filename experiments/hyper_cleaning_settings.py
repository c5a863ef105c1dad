"""How the results of hyper-cleaning depend on its settings: F1 along each run, in one figure.

python -m experiments.hyper_cleaning_settings --output_dir=results/hyper_cleaning_settings
"""

from __future__ import annotations

from pathlib import Path

from absl import flags

from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import write_results
from experiments.data_hyper_cleaning import experiment as cleaning
from experiments.data_hyper_cleaning import settings_study

FLAGS = flags.FLAGS


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(settings_study.Config), Path(FLAGS.output_dir)
    base = cleaning.Config(hyper_iterations=config.hyper_iterations)
    curves, timing = settings_study.run(base, output, FLAGS.resume)
    rows = [{"setting": name, "value": value, "f1": curve} for (name, value), curve in curves.items()]
    write_results(output / "results.json", "hyper_cleaning_settings", base, rows, timing)
    settings_study.draw(curves, base, output / "settings")
    for (name, value), curve in curves.items():
        print(f"{name:<12} {value:<6g} F1 {curve[-1]:.4f} at the end, {max(curve):.4f} at best")
    print(f"Figure: {output / 'settings.png'}")


if __name__ == "__main__":
    define_flags(settings_study.Config, output_dir="results/hyper_cleaning_settings", resume=True)
    run_main(main)

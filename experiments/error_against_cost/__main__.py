"""Error against cost: how near does each method come to the hypergradient at the solution, in which time and memory?

python -m experiments.error_against_cost --preset=quick
pip install -e ".[peers]" && git clone https://github.com/prolearner/hypertorch DIR
python -m experiments.error_against_cost --hypertorch=DIR

Reverse, checkpointed, truncated and forward mode and implicit differentiation on hyper-cleaning (one weight per digit, with
an L2 term) and logistic regression (one L2 strength per feature), beside hypertorch and jaxopt where they are installed.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from absl import flags

from data.errors import DataError
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags, setting
from experiments.common.results import keep_settings, write_results
from experiments.error_against_cost import report
from experiments.error_against_cost.experiment import run
from experiments.error_against_cost.tasks import PRESETS, Config
from rfho2.planning import memory

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Invocation:
    """Flags that no result depends on."""

    hypertorch: str | None = setting(
        None, "A checkout of github.com/prolearner/hypertorch; without it, its rows are left out."
    )


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config, PRESETS), Path(FLAGS.output_dir)
    if not memory.CLEAR_REFS.exists():
        raise DataError(f"{memory.CLEAR_REFS} is missing: peak memory needs Linux.")
    keep_settings(output / "settings.json", dataclasses.asdict(config), FLAGS.resume)
    began = time.perf_counter()
    rows = run(config, output, FLAGS.resume, from_flags(Invocation).hypertorch)
    write_results(output / "results.json", "error_against_cost", config, rows, {"whole run": time.perf_counter() - began})
    print(report.write(output, config, rows))


if __name__ == "__main__":
    define_flags(
        Config,
        PRESETS,
        preset_help="full: 5,000 digits, all settings; quick: 1,000 digits, few settings.",
        output_dir="results/error_against_cost",
        resume=True,
    )
    define_flags(Invocation)
    run_main(main)

"""Our methods on two problems of the bilevel-optimisation benchmark, with its metrics and, on request, its solvers.

python -m experiments.bilevel_benchmark --checkout=BENCHMARK --jax_command=PYTHON   # 22 minutes on two cores
python -m experiments.bilevel_benchmark                                             # without the benchmark's solvers
python -m experiments.bilevel_benchmark --preset=quick                              # two minutes: whether it works

BENCHMARK is a work tree of benchopt/benchmark_bilevel, and PYTHON one with JAX and benchopt. Each method's settings are
chosen on the first seed; the results are those of the other seeds. docs/experiments/bilevel_benchmark.md has the problems
and the results.
"""

from __future__ import annotations

from pathlib import Path

from absl import flags

from experiments.benchmarks import bilevel_report as report
from experiments.benchmarks.bilevel_methods import PRESETS, Config, Invocation, run
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import write_results, write_text

FLAGS = flags.FLAGS


def main() -> None:
    """Flags to config, run, report."""
    config, output = from_flags(Config, PRESETS), Path(FLAGS.output_dir)
    rows = run(config, from_flags(Invocation), lambda line: print(line, flush=True))
    write_results(output / "results.json", config, rows, {})
    text = "\n".join(report.table(rows, problem) for problem in config.problems)
    write_text(output / "table.md", text)
    report.draw(rows, output / "bilevel")
    print(f"\n{text}\nWritten to {output}.")


if __name__ == "__main__":
    define_flags(Invocation)
    define_flags(
        Config,
        PRESETS,
        preset_help="full: 3 and 6 seconds for each run; quick: one.",
        output_dir="results/bilevel_benchmark",
    )
    run_main(main)

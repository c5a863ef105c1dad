"""What the average over several episodes costs, one after the other and together, compared with one hypergradient.

python -m experiments.average_benchmark
python -m experiments.average_benchmark --nomemory --rounds=3

Reverse mode; a 1-40-40-1 network on sinusoids, and a 784-200-10 network on digits whose episodes are random seeds.
"""

from __future__ import annotations

from pathlib import Path

from experiments.benchmarks import averages
from experiments.benchmarks.averages import Config, Invocation
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.results import write_results, write_text


def main() -> None:
    """Measures everything, or the memory that the parent process asked for."""
    config, invocation = from_flags(Config), from_flags(Invocation)
    if invocation.peak_of is not None:
        name, compiler, mode = invocation.peak_of.split("/")
        return print(averages.peak_memory(name, compiler, mode, config))
    rows, output = averages.run(config), Path(invocation.output_dir)
    text = averages.table(rows)
    write_text(output / "table.md", text)
    results = [{key: row[key] for key in ("network", "compiler")} for row in rows]
    costs = {f"{row['network']}, {row['compiler']}": {k: row[k] for k in ("seconds", "peak_bytes")} for row in rows}
    write_results(output / "results.json", "average_benchmark", config, results, costs)
    print(f"\n{text}")


if __name__ == "__main__":
    define_flags(Config)
    define_flags(Invocation)
    run_main(main)

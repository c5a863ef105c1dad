"""What several hyper-iterations in one compiled call save, in milliseconds per hyper-iteration.

python -m experiments.call_benchmark
python -m experiments.call_benchmark --other=../rfho2-1.0.0

in calls: `rf.HyperOptimizer` without callbacks. one at a time: the same with iterations_per_call=1. with logs: with
`rf.CSVLogger`, `rf.TensorBoard` and a checkpoint at every 20th hyper-iteration. compiled alone: the hypergradients and
updates as one compiled loop, which checks, records and keeps nothing.

Each checkout runs in a separate process. Rounds are interleaved, and the best of each counts; the first one, which
compiles, does not.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from experiments.benchmarks import calls
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags, setting
from experiments.common.results import write_results, write_text


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured."""

    rounds: int = setting(5, "Rounds, of which the best counts.", at_least=1)
    cases: tuple[str, ...] = setting(tuple(calls.CASES), "Which cases.", choices=list(calls.CASES))
    other: str | None = setting(None, "Another checkout to compare with, such as one of version 1.0.0.")
    output_dir: str = setting("results/call_benchmark", "Where table.md and results.json go.")


def main() -> None:
    """Measures, and writes the table."""
    config = from_flags(Config)
    checkouts = {calls.THIS: Path(__file__).parents[1], **({"other": Path(config.other).resolve()} if config.other else {})}
    rows, output = calls.measure(config.cases, config.rounds, checkouts), Path(config.output_dir)
    write_text(output / "table.md", calls.table(rows))
    write_results(
        output / "results.json", "call_benchmark", config, [{"case": row["case"]} for row in rows], {"milliseconds": rows}
    )
    print(f"\n{calls.table(rows)}")
    for row in rows:
        print(f"{row['case']}, first round: " + ", ".join(f"{k} {v:.4g} ms" for k, v in row.items() if "first" in k))


if __name__ == "__main__":
    define_flags(Config)
    run_main(main)

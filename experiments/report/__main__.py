"""One page of all results: tables with the paper's numbers, figures, settings, commands.

python -m experiments.report
python -m experiments.report --results=results --output=results/report.html

It shows what the experiments wrote below `--results`, whatever the directories are called, and recomputes nothing. The page
is one file that loads nothing else. Where something is missing or broken, the page says so. The output of experiments that
only print is shown if it was kept: python -m experiments.benchmark > results/benchmark.txt
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags, setting
from experiments.report.page import write


@dataclasses.dataclass(frozen=True)
class Config:
    """Where results are, and where the page goes."""

    results: str = setting("results", "The directory that the experiments wrote to.")
    output: str | None = setting(None, "The file of the page; by default report.html in that directory.")


def main() -> None:
    """Flags to page."""
    config = from_flags(Config)
    root = Path(config.results)
    print(write(root, Path(config.output) if config.output else root / "report.html"))


if __name__ == "__main__":
    define_flags(Config)
    run_main(main)

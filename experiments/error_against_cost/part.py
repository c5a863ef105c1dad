"""For internal use: one part of the experiment, described in JSON; the last line that it prints has its rows.

A separate process has no leftover memory, compiled code or warm caches.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from experiments.common import processes
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags, setting
from experiments.error_against_cost import alone, bounds, honesty, measure
from experiments.error_against_cost.tasks import Config, Row, case_of

NAME = "error_against_cost.part"


@dataclasses.dataclass(frozen=True)
class Invocation:
    """The flags of this module."""

    part: str = setting("{}", "What to do: kind, config, and the arguments of the kind, as JSON.")


def do(kind: str, config: Config, hypertorch: str | None = None, **arguments: Any) -> list[Row]:
    """The rows of a part; those of "rows" and "reference" go to files."""
    if kind == "reference":
        measure.solve_reference(config, arguments["problem"], Path(arguments["solved"]))
        return []
    if kind == "rows":
        kept, solved = Path(arguments["kept"]), Path(arguments["solved"])
        measure.measure_all(config, arguments["problem"], arguments["framework"], hypertorch, kept, solved)
        return []
    if kind == "memory":
        return [bounds.measure_memory(config.hidden, arguments["steps"])]
    case, reference = case_of(config, "cleaning"), measure.read_reference(Path(arguments["solved"]))
    if kind == "honesty":
        return honesty.table_rows(hypertorch, case, reference)
    if kind == "times":
        return bounds.compare_times(case, reference, 2 * config.rounds)
    assert kind == "alone"
    return alone.compare(case, reference, config.accuracy, 2 * config.rounds, hypertorch)


def in_fresh_process(kind: str, config: Config, say: Callable[[str], None] = print, **arguments: Any) -> list[Row]:
    """`do` in a child process, whose lines go to `say`; if that fails, the one row says why."""
    spec = json.dumps({"kind": kind, "config": dataclasses.asdict(config), **arguments})
    line = ""
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(processes.command(NAME, f"--part={spec}"), stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert child.stdout is not None
            for line in child.stdout:
                if not line.startswith("["):
                    say(line.strip())
            code = child.wait()
        finally:
            child.kill()  # nothing happens if it has ended
            child.wait()
        errors.seek(0)
        return json.loads(line) if code == 0 else [{"missing": processes.failure(code, errors.read())}]


def main() -> None:
    """Does what the flag describes, and prints the rows."""
    spec = json.loads(from_flags(Invocation).part)
    tf.get_logger().setLevel("ERROR")  # it would warn that many engines are traced
    config: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in spec.pop("config").items()}
    print(json.dumps(do(config=Config(**config), **spec)))


if __name__ == "__main__":
    define_flags(Invocation)
    run_main(main)

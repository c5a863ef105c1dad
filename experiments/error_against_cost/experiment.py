"""Which parts there are, which are finished, and what they found."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from experiments.common.figures import slug
from experiments.common.results import write_text
from experiments.error_against_cost import hypertorch_peer
from experiments.error_against_cost.measure import read_rows
from experiments.error_against_cost.part import in_fresh_process
from experiments.error_against_cost.tasks import FRAMEWORKS, Config, Row, Task, case_of, names, omitted, rows_of, tasks

Runner = Callable[..., list[Row]]
"""(kind, config, say, **arguments) -> rows; see `part.in_fresh_process`."""


class Part(NamedTuple):
    """A part that runs in a process of its own.

    Attributes:
      kind, arguments: as in `part.do`.
      file: the file that it leaves; a part whose file exists is finished, but for "rows", which continue theirs.
    """

    kind: str
    arguments: dict[str, Any]
    file: Path


def plan(config: Config, output: Path, hypertorch: str | None) -> Iterator[Part]:
    """All parts in their order: references first. Parts without hypertorch have files of their own."""
    without = "" if hypertorch else "_without_hypertorch"
    solved = {name: output / "reference" / f"{slug(name)}.npz" for name in names(config)}
    for name, path in solved.items():
        yield Part("reference", {"problem": name, "solved": str(path)}, path)
    cleaning = {"solved": str(solved["cleaning"])}
    yield Part("alone", {**cleaning, "hypertorch": hypertorch}, output / "runs" / f"alone{without}.json")
    yield Part("times", cleaning, output / "runs" / "times.json")
    for steps in (None, *config.memory_steps):
        yield Part("memory", {"steps": steps}, output / "runs" / f"memory_{steps or 'plain'}.json")
    yield Part("honesty", {**cleaning, "hypertorch": hypertorch}, output / "runs" / f"honesty{without}.json")
    for name, path in solved.items():
        for framework in FRAMEWORKS:
            kept = output / "runs" / f"rows_{slug(name)}_{framework}.jsonl"
            arguments = {"problem": name, "framework": framework, "solved": str(path), "kept": str(kept)}
            yield Part("rows", {**arguments, "hypertorch": hypertorch}, kept)


def run(
    config: Config, output: Path, resume: bool = True, hypertorch: str | None = None, runner: Runner = in_fresh_process
) -> list[Row]:
    """All rows, those of methods first. What is finished is not run again; what failed is tried again."""
    parts = list(plan(config, output, hypertorch))
    if not resume:
        for part in parts:
            part.file.unlink(missing_ok=True)
    rows: list[Row] = []
    bar = tqdm(parts, unit="part")
    for part in bar:
        bar.set_postfix_str(part.kind)
        run_part = functools.partial(runner, part.kind, config, say=bar.set_postfix_str, **part.arguments)
        rows += _task_rows(config, part, run_part) if part.kind == "rows" else _rows(part, run_part)
    return sorted(rows, key=lambda row: "along" not in row)


def _rows(part: Part, run_part: Callable[[], list[Row]]) -> list[Row]:
    """The rows of a part that is run as a whole."""
    if part.file.exists():
        return json.loads(part.file.read_text()) if part.file.suffix == ".json" else []
    rows = run_part()
    if [list(row) for row in rows] == [["missing"]]:
        return [{**rows[0], "failed": f"{part.kind} {part.arguments}"}]
    if part.file.suffix == ".json":
        write_text(part.file, json.dumps(rows, indent=1) + "\n")
    return rows


def _task_rows(config: Config, part: Part, run_part: Callable[[], list[Row]]) -> list[Row]:
    """The rows of all tasks of a part, measured before or now; others say why they are missing."""
    name, framework = part.arguments["problem"], part.arguments["framework"]
    wanted, hypers = tasks(config, name, framework), case_of(config, name).hypers.size
    why = unavailable(framework, part.arguments["hypertorch"])
    unfinished = [task for task in wanted if not rows_of(read_rows(part.file), **task.key) and not omitted(task, hypers)]
    if unfinished and not why:
        why = next((row["missing"] for row in run_part()), "")
    return [_row(task, rows_of(read_rows(part.file), **task.key), omitted(task, hypers) or why) for task in wanted]


def unavailable(framework: str, hypertorch: str | None) -> str:
    """Why a peer cannot be run, or nothing."""
    needed = {"hypertorch": "torch", "jaxopt": "jaxopt"}.get(framework)
    if needed and importlib.util.find_spec(needed) is None:
        return f'{needed} is not installed: pip install -e ".[peers]"'
    return hypertorch_peer.missing(hypertorch) if framework == "hypertorch" else ""


def _row(task: Task, measured: list[Row], reason: str) -> Row:
    row = measured[-1] if measured else {"error": None, "seconds": None, "peak_bytes": None, "missing": reason}
    return {**task.key, "along": task.method.along, "framework": task.method.framework, **row}

"""The files that a run leaves behind: its results, and the settings that a resumed run must agree with."""

from __future__ import annotations

import dataclasses
import datetime
import json
import sys
from pathlib import Path
from typing import Any

from data.errors import DataError
from experiments.common import meshes
from experiments.common.binary import command, environment


def write_results(path: Path, name: str, config: Any, results: list[dict[str, Any]], timing: dict[str, Any]) -> None:
    """Writes `results.json`, and beside it `results.run.json` with the command and the date.

    The name is that of the module in `experiments`, by which the page of results recognises them.
    Apart from `timing`, two runs with the same seed write the same `results.json`.
    """
    content: dict[str, Any] = {"experiment": name, "config": dataclasses.asdict(config), "environment": environment()}
    content |= {"results": results, "timing": timing}
    write_text(path, json.dumps(content, indent=2, default=str) + "\n")
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    run = {"command": command(sys.argv[1:]), "finished": now}
    write_text(path.with_suffix(".run.json"), json.dumps(run, indent=2) + "\n")


def keep_settings(path: Path, settings: dict[str, Any], resume: bool) -> None:
    """Writes the settings that the runs beside the file depend on; refuses to resume runs that had other settings."""
    if not meshes.writes():  # the process that writes compares for all
        return
    text = json.dumps(settings, indent=2, default=str) + "\n"
    if resume and path.exists() and path.read_text() != text:
        before, now = json.loads(path.read_text()), json.loads(text)
        changed = [f"{k} was {before.get(k)!r} and is {now.get(k)!r}" for k in before | now if before.get(k) != now.get(k)]
        raise DataError(
            f"{path.parent} has runs with other settings ({'; '.join(changed)}); choose another --output_dir, or --noresume."
        )
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Writes the whole file or nothing: a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text)
    draft.replace(path)

"""What the experiments left in a directory: which results there are, whose they are, and what is missing or broken."""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from experiments.common.figures import slug
from experiments.report import blocks
from experiments.report.catalogue import EXPERIMENTS, OTHER, Content, Experiment

INTERNAL = {"runs", "checkpoints", "tensorboard"}  # directories that a run keeps for itself
SHOWN = (".md", ".png", ".svg")
SECTIONS: dict[str, type] = {"config": dict, "environment": dict, "results": list, "timing": dict}
UNFINISHED = "There is no results.json: the run was stopped or has not finished, or the file was deleted."
AGAIN = "run the experiment again; what it has finished is kept."


class Found(NamedTuple):
    """Results of an experiment, with the versions and the machine that produced them."""

    experiment: Experiment
    entry: blocks.Entry
    environment: str


def collect(root: Path) -> list[Found]:
    """All results below a directory."""
    return [examine(root, directory, file) for directory, file in find(root)]


def find(root: Path) -> Iterator[tuple[Path, str | None]]:
    """Directories with results, and the file that has them; None if that is missing, for example during a run."""
    special = [e.file for e in EXPERIMENTS if e.file != "results.json"]
    patterns = [name for e in EXPERIMENTS for name in e.captions]
    for directory, inner, files in os.walk(root):
        begun = not INTERNAL.isdisjoint(inner) or "measurements.json" in files
        inner[:] = sorted(set(inner) - INTERNAL)
        if "results.json" in files:
            yield Path(directory), "results.json"
        elif begun or any(fnmatchcase(file, pattern) for file in files for pattern in patterns):
            yield Path(directory), None
        yield from ((Path(directory), file) for file in special if file in files)


def examine(root: Path, directory: Path, file: str | None) -> Found:
    """Everything that can be shown of a directory and the file that has its results."""
    printed = file is not None and file.endswith(".txt")
    relative = (directory / file if file and printed else directory).relative_to(root).as_posix()
    content, problem = ({}, "") if printed else read(directory / file) if file else ({}, UNFINISHED)
    experiment = experiment_of(directory, file, content)
    parts: list[blocks.Block] = [blocks.Note(problem)] if problem else []
    parts += results_table(experiment, content)
    if file in ("results.json", None):
        parts += pieces(directory, experiment, content, finished=file is not None)
    elif printed:
        parts.append(load(directory / file, f"What experiments.{experiment.name} printed"))
    entry = blocks.Entry(
        relative if relative != "." else str(root),
        facts(directory / file, experiment, content.get("timing", {})) if file else {},
        {str(name): shown(value) for name, value in content.get("config", {}).items()},
        parts,
    )
    environment = ", ".join(f"{name} {version}" for name, version in content.get("environment", {}).items())
    return Found(experiment, entry, environment)


def read(path: Path) -> tuple[Content, str]:
    """The valid parts of a results file, and what is wrong with the others."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {}, f"{path.name} cannot be read ({error}); {AGAIN}"
    if not isinstance(content, dict):
        return {}, f"{path.name} is not what an experiment writes; {AGAIN}"
    valid = {name: content[name] for name, kind in SECTIONS.items() if isinstance(content.get(name), kind)}
    wrong = [name for name in SECTIONS if name not in valid]
    valid |= {"experiment": content["experiment"]} if isinstance(content.get("experiment"), str) else {}
    return valid, f"{path.name} has no {', no '.join(wrong)}; {AGAIN}" if wrong else ""


def experiment_of(directory: Path, file: str | None, content: Content) -> Experiment:
    """The experiment whose name the results record; where they do not, from the other files or the directory."""
    written = content.get("experiment") or _named_by_command(directory)
    signs: list[Callable[[Experiment], bool]] = [
        lambda e: e.name == written,
        lambda e: any(caption.always and (directory / name).exists() for name, caption in e.captions.items()),
        lambda e: any(name.startswith(e.name) for name in directory.absolute().parts[-2:]),
    ]
    special = [e for e in EXPERIMENTS if e.file == file != "results.json"]
    usual = [e for sign in signs for e in EXPERIMENTS if e.file == "results.json" and sign(e)]
    return next(iter(special + usual), OTHER)


def _named_by_command(directory: Path) -> str | None:
    """The name of the module in the command that wrote the results, which version 1.0.0 recorded too."""
    try:
        command = json.loads((directory / "results.run.json").read_text(encoding="utf-8"))["command"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    module = re.search(r"-m experiments\.(\w+)", str(command))
    return module[1] if module else None


def load(path: Path, caption: str) -> blocks.Block:
    """A table or a figure, or a note that it is missing or broken."""
    try:
        if path.suffix in (".md", ".txt"):
            return blocks.Table(caption, path.read_text(encoding="utf-8"), verbatim=path.suffix == ".txt")
        return blocks.image(caption, path.read_bytes(), path.suffix[1:])
    except FileNotFoundError:
        return blocks.Note(f"{path.name} is missing; {AGAIN}")
    except (OSError, ValueError) as error:
        return blocks.Note(f"{path.name} cannot be read ({error}); {AGAIN}")


def pieces(directory: Path, experiment: Experiment, content: Content, finished: bool) -> Iterator[blocks.Block]:
    """The tables and figures of a directory: those of the experiment in their order, then others under their names."""
    present = {path.name for path in directory.iterdir() if path.suffix in SHOWN}
    left = sorted(present | {f"{path.stem}.png" for path in directory.glob("*.pdf")})  # each .pdf has a .png beside it
    rows = [row for row in content.get("results", []) if isinstance(row, dict)]
    methods = {slug(str(row.get("method"))): str(row.get("method")) for row in rows}
    for pattern, caption in experiment.captions.items():
        matching = [name for name in left if fnmatchcase(name, pattern)]
        left = [name for name in left if name not in matching]
        for name in matching or ([pattern] if caption.always and finished else []):
            before, _, after = pattern.partition("*")
            star = name.removeprefix(before).removesuffix(after)
            yield load(directory / name, caption.text.format(methods.get(star, star)))
    yield from (load(directory / name, name) for name in left)


def results_table(experiment: Experiment, content: Content) -> Iterator[blocks.Block]:
    """The table of results for which the experiment writes no file."""
    if experiment.table and content:
        try:
            yield blocks.Table(experiment.caption, experiment.table(content))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
            yield blocks.Note(f"{experiment.file} does not have what its table needs ({error!r}); {AGAIN}")


def facts(path: Path, experiment: Experiment, timing: Content) -> dict[str, str]:
    """When and how the results were produced, as far as that was recorded."""
    try:
        run = json.loads(path.with_suffix(".run.json").read_text(encoding="utf-8"))
        when = datetime.datetime.fromisoformat(run["finished"])
        told = {"Finished": f"{when.astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC", "Command": str(run["command"])}
    except (OSError, ValueError, KeyError, TypeError):
        when = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)
        told = {"Finished": f"{when:%Y-%m-%d %H:%M} UTC, according to the date of {path.name}"}
        if experiment is not OTHER:
            told["Module"] = f"experiments.{experiment.name}; its flags were not recorded"
    seconds = timing.get("whole run")
    if isinstance(seconds, float):
        told["Took"] = f"{seconds // 60:.0f} min {seconds % 60:.0f} s since it was last started"
    return told


def shown(value: Any) -> str:
    """A setting in readable form."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        consecutive = len(value) > 3 and value == list(range(len(value)))
        return f"0 to {len(value) - 1}" if consecutive else ", ".join(map(shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)

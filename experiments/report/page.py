"""One page of all results, to look at: tables beside the paper's, figures, settings, commands.

    python -m experiments.report
    python -m experiments.report --results=results --output=results/report.html

It shows what the experiments wrote below `--results`, whatever the directories are called, and computes nothing again. The
page is one file that loads nothing else. What is missing or broken is said where it would stand. Experiments that only print
are shown if what they print was kept: python -m experiments.benchmark > results/benchmark.txt
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from data.errors import DataError
from experiments.common import binary as common
from experiments.report import html
from experiments.report.catalogue import EXPERIMENTS, OTHER, Content, Experiment

FLAGS = flags.FLAGS
INSIDE = {"runs", "checkpoints", "tensorboard"}  # directories that a run keeps for itself
SHOWN = (".md", ".png", ".svg")
UNFINISHED = "There is no results.json: the run was stopped or is going on, or the file was deleted."
AGAIN = "run the experiment again; what it has finished is kept."


def find(root: Path) -> Iterator[tuple[Path, str | None]]:
    """Directories with results, and the file that has them; None where that is missing, as while a run is going on."""
    special = [e.file for e in EXPERIMENTS if e.file != "results.json"]
    known = [piece.name for e in EXPERIMENTS for piece in e.pieces]
    for directory, inner, files in os.walk(root):
        begun = not INSIDE.isdisjoint(inner) or "measurements.json" in files
        inner[:] = sorted(set(inner) - INSIDE)
        if "results.json" in files:
            yield Path(directory), "results.json"
        elif begun or any(fnmatchcase(file, name) for file in files for name in known):
            yield Path(directory), None
        yield from ((Path(directory), file) for file in special if file in files)


def read(path: Path) -> tuple[Content, str]:
    """The parts of a results file that are as they should be, and what is wrong with the others."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {}, f"{path.name} cannot be read ({error}); {AGAIN}"
    kinds: dict[str, type] = {"config": dict, "environment": dict, "results": list, "timing": dict}
    if not isinstance(content, dict):
        return {}, f"{path.name} is not what an experiment writes; {AGAIN}"
    good = {name: content[name] for name, kind in kinds.items() if isinstance(content.get(name), kind)}
    wrong = [name for name in kinds if name not in good]
    return good, f"{path.name} has no {', no '.join(wrong)}; {AGAIN}" if wrong else ""


def experiment_of(directory: Path, file: str | None, content: Content) -> Experiment:
    """Told by the file, else by the rows of the results, by the files beside it, by the directory or the one above."""
    first = next(iter(content.get("results", [])), None)
    ways: list[Callable[[Experiment], bool]] = [
        lambda e: isinstance(first, dict) and e.key in first,
        lambda e: any(piece.always and (directory / piece.name).exists() for piece in e.pieces),
        lambda e: any(name.startswith(e.name) for name in directory.absolute().parts[-2:]),
    ]
    special = [e for e in EXPERIMENTS if e.file == file != "results.json"]
    usual = [e for way in ways for e in EXPERIMENTS if e.file == "results.json" and way(e)]
    return next(iter(special + usual), OTHER)


def load(path: Path, caption: str) -> html.Block:
    """A table or a figure, or what is wrong with it."""
    try:
        if path.suffix in (".md", ".txt"):
            return html.Table(caption, path.read_text(encoding="utf-8"), verbatim=path.suffix == ".txt")
        return html.picture(caption, path.read_bytes(), path.suffix[1:])
    except FileNotFoundError:
        return html.Note(f"{path.name} is missing; {AGAIN}")
    except (OSError, ValueError) as error:
        return html.Note(f"{path.name} cannot be read ({error}); {AGAIN}")


def pieces(directory: Path, experiment: Experiment, content: Content, finished: bool) -> Iterator[html.Block]:
    """The tables and figures of a directory: those of the experiment in their order, then others under their names."""
    there = {path.name for path in directory.iterdir() if path.suffix in SHOWN}
    left = sorted(there | {f"{path.stem}.png" for path in directory.glob("*.pdf")})  # each .pdf has a .png beside it
    rows = [row for row in content.get("results", []) if isinstance(row, dict)]
    methods = {common.slug(str(row.get("method"))): str(row.get("method")) for row in rows}
    for piece in experiment.pieces:
        found = [name for name in left if fnmatchcase(name, piece.name)]
        left = [name for name in left if name not in found]
        for name in found or ([piece.name] if piece.always and finished else []):
            before, _, after = piece.name.partition("*")
            star = name.removeprefix(before).removesuffix(after)
            yield load(directory / name, piece.caption.format(methods.get(star, star)))
    yield from (load(directory / name, name) for name in left)


def own_table(experiment: Experiment, content: Content) -> Iterator[html.Block]:
    """The table of results that have none in a file."""
    if experiment.table and content:
        try:
            yield html.Table(experiment.caption, experiment.table(content))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
            yield html.Note(f"{experiment.file} does not have what its table needs ({error!r}); {AGAIN}")


def facts(path: Path, experiment: Experiment, timing: Content) -> dict[str, str]:
    """When and how the results were made, as far as that is known."""
    try:
        run = json.loads(path.with_suffix(".run.json").read_text(encoding="utf-8"))
        when = datetime.datetime.fromisoformat(run["finished"])
        found = {"Finished": f"{when.astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC", "Command": str(run["command"])}
    except (OSError, ValueError, KeyError, TypeError):
        when = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)
        found = {"Finished": f"{when:%Y-%m-%d %H:%M} UTC, by the date of {path.name}"}
        if experiment is not OTHER:
            found["Module"] = f"experiments.{experiment.name}; its flags were not recorded"
    seconds = timing.get("whole run")
    if isinstance(seconds, float):
        found["Took"] = f"{seconds // 60:.0f} min {seconds % 60:.0f} s since it was last started"
    return found


def shown(value: Any) -> str:
    """A setting, for people."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        numbers = len(value) > 3 and value == list(range(len(value)))
        return f"0 to {len(value) - 1}" if numbers else ", ".join(map(shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


class Found(NamedTuple):
    """Results of an experiment, and the versions and machine they are from."""

    experiment: Experiment
    entry: html.Entry
    environment: str


def examine(root: Path, directory: Path, file: str | None) -> Found:
    """All that there is to show of a directory and a file in it."""
    printed = file is not None and file.endswith(".txt")
    shortened = (directory / file if file and printed else directory).relative_to(root).as_posix()
    place = shortened if shortened != "." else str(root)
    content, problem = ({}, "") if printed else read(directory / file) if file else ({}, UNFINISHED)
    experiment = experiment_of(directory, file, content)
    blocks: list[html.Block] = [html.Note(problem)] if problem else []
    blocks += own_table(experiment, content)
    if file in ("results.json", None):
        blocks += pieces(directory, experiment, content, finished=file is not None)
    elif printed:
        blocks.append(load(directory / file, f"What experiments.{experiment.name} printed"))
    told = facts(directory / file, experiment, content.get("timing", {})) if file else {}
    settings = {str(name): shown(value) for name, value in content.get("config", {}).items()}
    environment = ", ".join(f"{name} {version}" for name, version in content.get("environment", {}).items())
    return Found(experiment, html.Entry(place, told, settings, blocks), environment)


def suggested(experiment: Experiment, root: Path) -> str:
    """A command that makes results of an experiment in the directory."""
    start = f"python -m experiments.{experiment.name}{experiment.flags}"
    if experiment.file.endswith(".txt"):
        return f"{start} > {root / experiment.file}"
    return start if root == Path("results") else f"{start} --output_dir={root / experiment.name}"


def page(root: Path, found: Sequence[Found], now: datetime.datetime) -> str:
    """The page of what was found."""
    environments = list(dict.fromkeys(f.environment for f in found if f.environment))
    lines = [f"What the experiments wrote to {root}, put together on {now:%Y-%m-%d at %H:%M} UTC."]
    if len(environments) == 1:
        lines.append(f"Versions and machine: {environments[0]}.")
    elif environments:
        lines.append("Versions or machines differ; they stand with each result.")
        found = [
            f._replace(entry=f.entry._replace(facts={**f.entry.facts, "Made with": f.environment or "unknown"}))
            for f in found
        ]
    chapters, missing = [], {}
    for experiment in (*EXPERIMENTS, OTHER):
        entries = [f.entry for f in found if f.experiment is experiment]
        if entries:
            anchor = Path(experiment.file).stem if experiment.file != "results.json" else experiment.name
            chapters.append(html.Chapter(anchor, experiment.title, experiment.what, entries))
        elif experiment is not OTHER:
            missing[experiment.title] = suggested(experiment, root)
    return html.page("Results of the experiments", lines, chapters, missing)


def write(root: Path, output: Path) -> str:
    """Writes the page; returns what is broken on it, and where it is."""
    found = [examine(root, directory, file) for directory, file in find(root)]
    if not found:
        commands = "; ".join(suggested(e, root) for e in EXPERIMENTS if e.pieces)
        raise DataError(f"--results is {root}, where no experiment has written anything; these would: {commands}")
    if output.is_dir():
        raise DataError(f"--output is {output}, which is a directory; give a file, such as {output / 'report.html'}.")
    try:
        common.write_text(output, page(root, found, datetime.datetime.now(datetime.UTC)))
    except OSError as error:
        raise DataError(f"--output is {output}, which cannot be written ({error.strerror}); give another file.") from None
    notes = [f"{f.entry.place}: {block.text}\n" for f in found for block in f.entry.blocks if isinstance(block, html.Note)]
    return f"{''.join(notes)}Written to {output}: {len(found)} results of {len({f.experiment for f in found})} experiments."


def main() -> None:
    """Flags to page."""
    root = Path(FLAGS.results)
    print(write(root, Path(FLAGS.output) if FLAGS.output else root / "report.html"))


def command_line() -> None:
    """Defines the flags and runs."""
    flags.DEFINE_string("results", "results", "The directory that the experiments wrote to.")
    flags.DEFINE_string("output", None, "The page; report.html in that directory if not given.")
    common.run_main(main)

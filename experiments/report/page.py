"""The page of all results below a directory."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from data.errors import DataError
from experiments.common.results import write_text
from experiments.report import html
from experiments.report.blocks import Chapter, Note
from experiments.report.catalogue import EXPERIMENTS, OTHER, Experiment
from experiments.report.collect import Found, collect


def write(root: Path, output: Path) -> str:
    """Writes the page; returns what is broken on it, and where it is."""
    results = collect(root)
    if not results:
        commands = "; ".join(suggested(e, root) for e in EXPERIMENTS if e.captions)
        raise DataError(f"--results is {root}, where no experiment has written anything; these would: {commands}")
    if output.is_dir():
        raise DataError(f"--output is {output}, which is a directory; give a file, for example {output / 'report.html'}.")
    try:
        write_text(output, page(root, results, datetime.datetime.now(datetime.UTC)))
    except OSError as error:
        raise DataError(f"--output is {output}, which cannot be written ({error.strerror}); give another file.") from None
    notes = [f"{r.entry.place}: {block.text}\n" for r in results for block in r.entry.blocks if isinstance(block, Note)]
    experiments = {r.experiment.title for r in results}
    return f"{''.join(notes)}Written to {output}: {len(results)} results of {len(experiments)} experiments."


def page(root: Path, results: Sequence[Found], now: datetime.datetime) -> str:
    """The HTML of the results."""
    environments = list(dict.fromkeys(r.environment for r in results if r.environment))
    lines = [f"What the experiments wrote to {root}, collected on {now:%Y-%m-%d at %H:%M} UTC."]
    if len(environments) == 1:
        lines.append(f"Versions and machine: {environments[0]}.")
    elif environments:
        lines.append("Versions or machines differ; they are given with each result.")
        results = [_with_environment(result) for result in results]
    chapters, missing = [], {}
    for experiment in (*EXPERIMENTS, OTHER):
        entries = [r.entry for r in results if r.experiment is experiment]
        if entries:
            anchor = Path(experiment.file).stem if experiment.file != "results.json" else experiment.name
            chapters.append(Chapter(anchor, experiment.title, experiment.what, entries))
        elif experiment is not OTHER:
            missing[experiment.title] = suggested(experiment, root)
    return html.page("Results of the experiments", lines, chapters, missing)


def _with_environment(result: Found) -> Found:
    facts = {**result.entry.facts, "Made with": result.environment or "unknown"}
    return result._replace(entry=result.entry._replace(facts=facts))


def suggested(experiment: Experiment, root: Path) -> str:
    """A command that produces results of an experiment in the directory."""
    command = f"python -m experiments.{experiment.name}{experiment.flags}"
    if experiment.file.endswith(".txt"):
        return f"{command} > {root / experiment.file}"
    return command if root == Path("results") else f"{command} --output_dir={root / experiment.name}"

"""A study is a value: what to compute, and how to show it. `main(study)` is the whole binary.

STUDY = Study("example", "An example", "What it is about.", Config, PRESETS, units, compute, tables, figures, captions)
main(STUDY)  # flags, rows that a stopped run left, missing rows, results.json, tables, figures, what was written
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
from absl import flags

from data.errors import DataError
from experiments.common import pool
from experiments.common.binary import run_main
from experiments.common.config import define_flags, from_flags
from experiments.common.figures import save_figure
from experiments.common.pool import Row, Unit
from experiments.common.results import write_results, write_text
from experiments.common.tables import without

FLAGS = flags.FLAGS
BEFORE = ("trainings.json", "settings.json")  # beside rows or runs in other forms, up to version 1.0.0


class Caption(NamedTuple):
    """What the page of results says about a table or a figure.

    Attributes:
      text: the caption, where {} stands for what * stands for in the name of the file.
      always: whether every run writes the file.
    """

    text: str
    always: bool = True


class Study(NamedTuple):
    """An experiment that computes rows, one for each unit, and shows them in tables and figures.

    Attributes:
      name: of its package.
      title, about: the heading of its chapter on the page of results, and a sentence about it.
      config: a dataclass with everything that the results depend on.
      presets: configs by name, the default first.
      units: (config, rows so far) -> all units that these rows call for. It is asked again after their rows are computed,
        until it wants no more.
      compute: (unit, output folder) -> the row of the unit, which has the unit's name as "unit"; a function of a module.
      tables: (config, results, output folder) -> texts by the names of their files; they are also printed.
      figures: (config, results) -> figures by the names of their files, without suffix.
      captions: of the files, in the order of the page.
      results: (config, rows) -> what results.json, tables and figures are made from; the rows themselves by default. If
        there are none yet, nothing else is written.
      recorded: results -> those that results.json has; by default all of them. The names of their units are left out.
      timing: keys of the results that results.json keeps apart, because they differ between two runs.
      preset_help: what `--help` says about the presets.
      workers: processes that compute side by side with one thread each; None computes in this process with all threads.
      check: refuses a config with a sentence, before anything is computed.
    """

    name: str
    title: str
    about: str
    config: type
    presets: Mapping[str, Any]
    units: Callable[[Any, Sequence[Row]], Iterable[Unit]]
    compute: Callable[[Any, Path], Row]
    tables: Callable[[Any, list[Row], Path], Mapping[str, str]]
    figures: Callable[[Any, list[Row]], Mapping[str, plt.Figure]]
    captions: Mapping[str, Caption]
    results: Callable[[Any, list[Row]], list[Row]] = lambda config, rows: rows
    recorded: Callable[[list[Row]], list[Row]] = lambda results: results
    timing: tuple[str, ...] = ()
    preset_help: str = "The settings to start from; other flags change single ones."
    workers: int | None = None
    check: Callable[[Any], None] = lambda config: None


def main(study: Study) -> None:
    """Defines the flags of a study, and runs it."""
    define_flags(
        study.config,
        study.presets,
        preset_help=study.preset_help,
        output_dir=f"results/{study.name}",
        resume=True,
        workers=study.workers,
    )
    run_main(lambda: print(run_from_flags(study)), sys.modules["__main__"].__doc__)


def run_from_flags(study: Study) -> str:
    """Computes what is missing, writes everything, and returns the tables."""
    config, output = from_flags(study.config, study.presets), Path(FLAGS.output_dir)
    study.check(config)
    if not FLAGS.resume:
        pool.afresh(output)
        for name in BEFORE:
            (output / name).unlink(missing_ok=True)
    return write(study, config, rows_of(study, config, output, FLAGS.workers if study.workers else None), output)


def rows_of(study: Study, config: Any, output: Path, workers: int | None = None) -> list[Row]:
    """The rows of all units, read where the output folder has them, and computed otherwise."""
    earlier = [output / name for name in BEFORE if (output / name).exists()]
    if earlier and not (output / pool.ROWS).exists():
        raise DataError(
            f"{earlier[0]} is from an earlier version, which kept rows in another form; choose another --output_dir, "
            f"or start afresh with --noresume."
        )
    rows: list[Row] = []
    while True:
        units = list(study.units(config, rows))
        before, rows = len(rows), pool.run(units, study.compute, output, workers)
        if len(rows) == before:
            return rows


def write(study: Study, config: Any, rows: list[Row], output: Path) -> str:
    """Writes results, tables and figures; returns the tables."""
    results = study.results(config, rows)
    if not results:
        return f"{output / pool.ROWS} has {len(rows)} rows, which are not enough to show."
    recorded = study.recorded(results)
    timing = {key: [row[key] for row in recorded] for key in study.timing}
    write_results(output / "results.json", study.name, config, without(recorded, "unit", *study.timing), timing)
    tables = study.tables(config, results, output)
    for name, text in tables.items():
        write_text(output / name, text)
    for name, figure in study.figures(config, results).items():
        save_figure(figure, output / name)
    return "\n".join([*tables.values(), f"Written to {output}."])

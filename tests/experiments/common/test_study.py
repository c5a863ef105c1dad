"""A study as a value: rows are computed once, later units may depend on earlier rows, everything is written."""

import dataclasses
import json
from typing import NamedTuple

import matplotlib.pyplot as plt
import pytest
from absl import flags

from data.errors import DataError
from experiments.common import pool, study
from experiments.common.config import setting
from experiments.common.study import Caption, Study
from experiments.common.tables import Table, mean, without


@dataclasses.dataclass(frozen=True)
class Config:
    seeds: tuple[int, ...] = setting((0, 1), "Seeds.")


class Unit(NamedTuple):
    seed: int
    again: bool = False

    @property
    def name(self):
        return f"{self.seed} {self.again}"


def units(config, rows):
    """The better seed once more, when all are known."""
    first = [Unit(seed) for seed in config.seeds]
    best = max(rows, key=lambda row: row["score"])["seed"] if len(rows) >= len(first) else None
    return first if best is None else [*first, Unit(best, again=True)]


COMPUTED = []


def compute(unit, output):
    COMPUTED.append(unit.name)
    return {"unit": unit.name, "seed": unit.seed, "score": unit.seed / 10, "seconds": 2.0, "curve": [0, 1]}


def tables(config, rows, output):
    table = Table("seeds", "score")
    table.add(len(rows), f"{mean(rows, 'score'):.2f}")
    return {"table.md": str(table)}


STUDY = Study(
    "example", "An example", "What it is about.", Config, {"full": Config(), "quick": Config((0,))}, units, compute, tables,
    lambda config, rows: {"scores": plt.figure()}, {"table.md": Caption("Scores")},
    lambda config, rows: rows if len(rows) > 1 else [], lambda rows: without(rows, "curve"), timing=("seconds",),
)  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_computed():
    COMPUTED.clear()


def test_units_may_depend_on_rows_and_a_second_run_computes_nothing(tmp_path):
    rows = study.rows_of(STUDY, Config(), tmp_path)
    assert [row["unit"] for row in rows] == ["0 False", "1 False", "1 True"]
    assert study.rows_of(STUDY, Config(), tmp_path) == rows
    assert len(COMPUTED) == 3
    study.rows_of(STUDY, Config((0, 1, 2)), tmp_path)
    assert COMPUTED[3:] == ["2 False", "2 True"], "other settings compute only what is missing"


def test_results_tables_and_figures_are_written(tmp_path):
    text = study.write(STUDY, Config(), study.rows_of(STUDY, Config(), tmp_path), tmp_path)
    assert text.startswith("| seeds | score |\n|---|---|\n| 3 | 0.07 |")
    content = json.loads((tmp_path / "results.json").read_text())
    assert (content["experiment"], content["results"][2]) == ("example", {"seed": 1, "score": 0.1})
    assert content["timing"] == {"seconds": [2.0] * 3}
    assert (tmp_path / "table.md").read_text() in text
    assert (tmp_path / "scores.png").stat().st_size > 1000


def test_nothing_is_written_while_there_are_no_results(tmp_path):
    assert "rows.jsonl has 1 rows, which are not enough to show" in study.write(STUDY, Config(), [{"seed": 0}], tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", study.BEFORE)
def test_rows_of_an_earlier_version_are_refused_with_a_sentence(name, tmp_path):
    (tmp_path / name).write_text("[]")
    with pytest.raises(DataError, match=rf"{name} is from an earlier version.*--noresume"):
        study.rows_of(STUDY, Config(), tmp_path)


def test_flags_choose_a_preset_and_a_fresh_start(tmp_path, monkeypatch):
    values = flags.FlagValues()
    monkeypatch.setattr(study, "FLAGS", values)
    study.define_flags(Config, STUDY.presets, output_dir=str(tmp_path), resume=True, flag_values=values)
    values(["example", "--preset=quick"])
    monkeypatch.setattr(study, "from_flags", lambda *args: STUDY.presets[values.preset])
    study.run_from_flags(STUDY)
    study.run_from_flags(STUDY)
    assert COMPUTED == ["0 False", "0 True"]
    for name in study.BEFORE:
        (tmp_path / name).write_text("")
    values(["example", "--preset=quick", "--noresume"])
    study.run_from_flags(STUDY)
    assert len(COMPUTED) == 4
    assert len(pool.read(tmp_path / pool.ROWS)) == 2
    assert not any((tmp_path / name).exists() for name in study.BEFORE)

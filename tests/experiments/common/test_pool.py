"""Trainings in several processes: they resume, and a cut line is computed again."""

import os
from typing import NamedTuple

import pytest

from experiments.common import pool
from tests.support.pools import Pool


class Unit(NamedTuple):
    seed: int

    @property
    def name(self):
        return f"split {self.seed}"


def compute(unit, output):
    return {"unit": unit.name, "seed": unit.seed, "accuracy": 0.5}


def threads(unit, output):
    if unit.seed == 4:
        raise ValueError("no split 4")
    return {"unit": unit.name, "seed": unit.seed, "threads": os.environ["OPENBLAS_NUM_THREADS"]}


def broken(unit, output):
    raise ValueError(f"split {unit.seed} was computed before")


def test_finished_units_are_read_and_a_cut_line_is_computed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(pool.concurrent.futures, "ProcessPoolExecutor", Pool)
    two = [Unit(0), Unit(1)]
    assert [row["seed"] for row in pool.run(two, compute, tmp_path, 1)] == [0, 1]
    path = tmp_path / "rows.jsonl"
    path.write_text(path.read_text().replace("0.5", "0.75")[:-20])
    for _ in range(2):
        rows = pool.run([*two, Unit(0)], compute, tmp_path, 1)
        assert sorted(row["accuracy"] for row in rows) == [0.5, 0.75]  # which line was last depends on the pool
    assert len(pool.read(path)) == 2
    (tmp_path / "checkpoints" / "of one").mkdir(parents=True)
    pool.afresh(tmp_path)
    assert pool.read(path) == []
    assert list(tmp_path.iterdir()) == []
    pool.afresh(tmp_path)  # there need not be any


def test_processes_have_one_thread_rows_come_in_order_and_an_error_is_the_users_to_see(tmp_path, monkeypatch):
    """In one pool, because a process takes seconds to start."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with pytest.raises(ValueError, match="no split 4"):
        pool.run([Unit(seed) for seed in range(5)], threads, tmp_path, 1)
    assert "OPENBLAS_NUM_THREADS" not in os.environ
    rows = pool.run([Unit(seed) for seed in (3, 0, 2, 1)], broken, tmp_path, 1)
    assert [(row["seed"], row["threads"]) for row in rows] == [(3, "1"), (0, "1"), (2, "1"), (1, "1")]


@pytest.mark.slow
def test_two_processes_compute_in_any_order_fresh_ones_go_on_and_rows_come_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "UNITS", 1)
    rows = pool.run([Unit(seed) for seed in range(4)], compute, tmp_path, 2)
    assert [row["seed"] for row in rows] == [0, 1, 2, 3]

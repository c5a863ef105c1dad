"""Logs a run to a CSV file."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np

from rfho2.core.types import HyperGradient, Hypers, Run
from rfho2.monitor.base import Callback, values


class CSVLogger(Callback):
    """Writes one row per hyper-iteration: values, hypers and hypergradients (norms of arrays), scalar metrics.

    A resumed run continues the same file; rows that it repeats appear once.

    Args:
      path: the file; missing parent directories are created.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self._path = Path(path)
        self._norms: dict[str, float] = {}

    def on_start(self, run: Run) -> None:
        """Keeps the rows before the first hyper-iteration of this run and drops the rest."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        rows: list[dict[str, Any]] = []
        if run.first > 0 and self._path.exists():
            with self._path.open(newline="") as file:
                rows = [row for row in csv.DictReader(file) if _before(row, run.first)]
        self._titles: list[str] = list(rows[0]) if rows else []
        self._rewrite(rows)

    def on_norms(self, k: int, norms: dict[str, float]) -> None:
        """Stores the norms for the next row."""
        self._norms = norms

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: HyperGradient, extra: dict[str, Any]) -> None:
        """Appends the row of hyper-iteration k."""
        reserved = {"iteration": k, **{name: _number(value) for name, value in values(hypergradient).items()}}
        row: dict[str, Any] = dict(reserved)
        row |= {_title(name, hyper): _number(hyper) for name, hyper in hypers.items()}
        row |= {_title(f"hypergradient/{name}", grad): _number(grad) for name, grad in hypergradient.grads.items()}
        row |= self._norms
        row |= {name: _number(value) for name, value in extra.items() if np.ndim(value) == 0}
        row |= reserved  # again: a hyper or metric of the same name must not hide the driver's values
        new = [title for title in row if title not in self._titles]
        if new:
            with self._path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            self._titles += new
            self._rewrite(rows)
        with self._path.open("a", newline="") as file:
            csv.DictWriter(file, self._titles).writerow(row)

    def _rewrite(self, rows: list[dict[str, Any]]) -> None:
        draft = self._path.with_name(self._path.name + ".draft")
        with draft.open("w", newline="") as file:
            if self._titles:
                writer = csv.DictWriter(file, self._titles)
                writer.writeheader()
                writer.writerows(rows)
        draft.replace(self._path)


def _before(row: dict[str, str], first: int) -> bool:
    """Whether a row is complete and from before hyper-iteration `first`; a killed process may leave half a line."""
    return (
        None not in row
        and None not in row.values()
        and str(row.get("iteration", "")).isdigit()
        and int(row["iteration"]) < first
    )


def _title(name: str, value: Any) -> str:
    return name if np.ndim(value) == 0 else f"norm of {name}"


def _number(value: Any) -> Any:
    if isinstance(value, str):
        return value
    return float(value) if np.ndim(value) == 0 else float(np.linalg.norm(np.asarray(value).ravel()))

"""Logs a run to a CSV file."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

from rfho2.core import files, rows
from rfho2.core.types import HyperGradient, Hypers, Result, Run
from rfho2.core.warn import warn
from rfho2.monitor.base import Callback

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of a cell that a spreadsheet takes for a formula


class CSVLogger(Callback):
    """Writes one row per hyper-iteration, with the columns of `result.history` except the seconds, and with text metrics.

    A resumed run continues the same file; rows that it repeats appear once. If the disk is full, the run continues with
    a warning, and the rows are written when there is space again.

    Args:
      path: the file; missing parent directories are created.
    """

    needs_state = False

    def __init__(self, path: str | os.PathLike[str]):
        self._path = Path(path)
        self._titles: list[str] = []
        self._whole = False  # whether the file has the titles, and nothing that this run is going to repeat
        self._size = 0  # of the file up to the last row that is whole
        self._pending: list[dict[str, Any]] = []
        self._warned = False

    def on_start(self, run: Run) -> None:
        """Keeps the rows before the first hyper-iteration of this run and drops all others."""
        self._pending, self._titles, self._whole = [], [], False
        try:
            files.make_directory(self._path.parent)
            self._rewrite(run.first)
        except OSError as error:
            self._warn(error)

    def on_hyper_iteration(self, k: int, hypers: Hypers, hypergradient: HyperGradient, extra: dict[str, Any]) -> None:
        """Appends the row of hyper-iteration k."""
        row: dict[str, Any] = dict(rows.row(k, rows.numbers(hypers, hypergradient), extra))
        texts = {name: value for name, value in extra.items() if isinstance(value, str) and name not in row}
        self._pending.append({_safe(name): _safe(value) for name, value in (row | texts).items()})
        self._write_pending()

    def on_end(self, result: Result) -> None:
        """Writes rows that a full disk has delayed."""
        if self._pending:
            self._write_pending()

    def _write_pending(self) -> None:
        new = any(title not in self._titles for row in self._pending for title in row)
        try:
            if new or not self._whole:
                self._rewrite(self._pending[0]["iteration"])
            else:
                self._size = files.append(self._path, self._size, _lines(self._titles, self._pending))
            self._pending = []
        except OSError as error:
            self._warn(error)

    def _read(self) -> list[dict[str, Any]]:
        return list(csv.DictReader(io.StringIO(files.read(self._path).decode(errors="replace"), newline="")))

    def _rewrite(self, first: int) -> None:
        """Replaces the file: the rows from before hyper-iteration `first` that are in it, and those that are pending."""
        earlier = [row for row in self._read() if _before(row, first)] if first > 0 and self._path.exists() else []
        table = earlier + self._pending
        titles = list(dict.fromkeys(title for row in table for title in row))
        draft = self._path.with_name(self._path.name + ".draft")
        text = _lines(titles, table, header=bool(titles))
        files.write(draft, text, durable=False)
        files.rename(draft, self._path)
        self._titles, self._size, self._whole = titles, len(text), True

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            warn(f"{self._path} cannot be written ({error}); the run continues, and tries again.")
        self._warned = True


def _lines(titles: list[str], table: list[dict[str, Any]], header: bool = False) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, titles)
    if header:
        writer.writeheader()
    writer.writerows(table)
    return text.getvalue().encode()


def _before(row: dict[str, Any], first: int) -> bool:
    """Whether a row is complete and from before hyper-iteration `first`; a killed process may leave half a line."""
    complete = None not in row and None not in row.values()
    return complete and row.get("iteration", "").isdigit() and int(row["iteration"]) < first


def _safe(cell: Any) -> Any:
    """A text that a spreadsheet does not take for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell

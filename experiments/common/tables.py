"""Rows that are filtered and grouped, and Markdown tables that are filled cell by cell."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from experiments.common.pool import Row


def where(rows: Iterable[Row], **values: Any) -> list[Row]:
    """The rows that have these values.

    >>> where([{"seed": 0, "method": "a"}, {"seed": 1, "method": "a"}], seed=1)
    [{'seed': 1, 'method': 'a'}]
    """
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def without(rows: Iterable[Row], *keys: str) -> list[Row]:
    """The rows without these keys.

    >>> without([{"seed": 0, "loss": 0.5}], "loss")
    [{'seed': 0}]
    """
    return [{key: value for key, value in row.items() if key not in keys} for row in rows]


def distinct(rows: Iterable[Row], *keys: str) -> list[Any]:
    """The different values of a key, or tuples of several keys, in the order of their first row.

    >>> distinct([{"seed": 1}, {"seed": 0}, {"seed": 1}], "seed")
    [1, 0]
    """
    return list(dict.fromkeys(row[keys[0]] if len(keys) == 1 else tuple(row[key] for key in keys) for row in rows))


def groups(rows: Sequence[Row], *keys: str) -> list[list[Row]]:
    """The rows with the same values of these keys, in the order of the first of each."""
    made: dict[Hashable, list[Row]] = {}
    for row in rows:
        made.setdefault(tuple(row[key] for key in keys), []).append(row)
    return list(made.values())


def column(rows: Iterable[Row], key: str, order: str | None = None) -> np.ndarray:
    """The values of one key, sorted by another.

    >>> column([{"seed": 1, "loss": 0.5}, {"seed": 0, "loss": 0.25}], "loss", order="seed").tolist()
    [0.25, 0.5]
    """
    chosen = list(rows) if order is None else sorted(rows, key=lambda row: row[order])
    return np.array([row[key] for row in chosen])


def mean(rows: Iterable[Row], key: str) -> float:
    """The mean of one key."""
    return float(np.mean(column(rows, key)))


def spread(values: np.ndarray, places: int) -> str:
    """The mean ± half the range; the mean alone of one value.

    >>> spread(np.array([1.0, 2.0]), 1), spread(np.array([1.0]), 1)
    ('1.5 ± 0.5', '1.0')
    """
    half = np.ptp(values) / 2
    return f"{np.mean(values):.{places}f}" + (f" ± {half:.{places}f}" if len(values) > 1 else "")


class Table:
    """A Markdown table that is filled row by row.

    >>> table = Table("method", "error")
    >>> table.add("ours", f"{0.5:.2f}")
    >>> print(table)
    | method | error |
    |---|---|
    | ours | 0.50 |
    <BLANKLINE>
    """

    def __init__(self, *titles: str):
        self.titles, self.lines = titles, [_line(titles), "|---" * len(titles) + "|"]

    def add(self, *cells: Any) -> None:
        """One more row."""
        if len(cells) != len(self.titles):
            raise ValueError(f"{len(cells)} cells for {len(self.titles)} titles: {cells}")
        self.lines.append(_line(cells))

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


def _line(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"

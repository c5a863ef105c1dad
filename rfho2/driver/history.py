"""A history on disk in pieces that do not change any more, so that the checkpoints of a long run do not grow with it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]
ROWS = 256  # in a piece


def write(place: Path, history: Rows, known: Path | None) -> Rows:
    """Writes the whole pieces of a history as files of their own; the rows after them.

    Args:
      place: the directory.
      history: all rows.
      known: a directory that has the first pieces of the same history, or None; they are linked instead of written.
    """
    whole = len(history) - len(history) % ROWS
    for first in range(0, whole, ROWS):
        name = f"history-{first:08d}.json"
        if known is None or not _link(known / name, place / name):
            (place / name).write_text(json.dumps(history[first : first + ROWS]))
    return history[whole:]


def read(place: Path, rest: Rows, length: int) -> Rows:
    """All rows: of the pieces, and `rest`; an error if they are not `length`."""
    history = [row for piece in sorted(place.glob("history-*.json")) for row in json.loads(piece.read_text())] + rest
    if len(history) != length:
        raise ValueError(f"of {length} rows of the history {len(history)} are there")
    return history


def _link(there: Path, here: Path) -> bool:
    try:
        os.link(there, here)
    except OSError:  # it has no such piece, or the file system no links
        return False
    return True

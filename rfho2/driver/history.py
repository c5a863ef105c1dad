"""The history on disk, in pieces that never change again, so that checkpoints do not grow with the length of a run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]
ROWS = 256  # per piece


def write(place: Path, history: Rows, earlier: Path | None) -> Rows:
    """Writes the complete pieces of a history to one file each, and returns the remaining rows.

    Args:
      place: the directory to write to.
      history: all rows.
      earlier: a directory with the first pieces of the same history, which are linked instead of written again, or None.
    """
    whole = len(history) - len(history) % ROWS
    for first in range(0, whole, ROWS):
        name = f"history-{first:08d}.json"
        if earlier is None or not _link(earlier / name, place / name):
            (place / name).write_text(json.dumps(history[first : first + ROWS]))
    return history[whole:]


def read(place: Path, rest: Rows, length: int) -> Rows:
    """All rows, from the pieces and `rest`; an error unless there are `length` of them."""
    history = [row for piece in sorted(place.glob("history-*.json")) for row in json.loads(piece.read_text())] + rest
    if len(history) != length:
        raise ValueError(f"the history has {len(history)} of {length} rows")
    return history


def _link(existing: Path, new: Path) -> bool:
    try:
        os.link(existing, new)
    except OSError:  # there is no such piece, or the file system has no hard links
        return False
    return True

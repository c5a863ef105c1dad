"""The history on disk, in pieces that are never rewritten, so that checkpoints do not grow with the length of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rfho2.core import files

Rows = list[dict[str, Any]]
ROWS = 256  # per piece
PREFIX = "history-"


def write(place: Path, history: Rows, earlier: Path | None, known: Mapping[str, str]) -> tuple[Rows, dict[str, str]]:
    """Writes the complete pieces of a history to one file each; returns the remaining rows, and the hashes of all pieces.

    Args:
      place, history: the directory to write to, and all rows.
      earlier: a directory with the first pieces of the same history, which are linked instead of written again, or None.
      known: the hashes of pieces as they were written or verified; a piece that is not among them is not linked.
    """
    whole = len(history) - len(history) % ROWS
    hashes = {}
    for first in range(0, whole, ROWS):
        name = f"{PREFIX}{first:08d}.json"
        if earlier is not None and name in known and files.link(earlier / name, place / name):
            hashes[name] = known[name]
        else:
            hashes[name] = files.write(place / name, json.dumps(history[first : first + ROWS]).encode())
    return history[whole:], hashes


def read(contents: Mapping[str, bytes], rest: Rows, length: int) -> Rows:
    """All rows, from the pieces among the files of a checkpoint and `rest`; an error unless there are `length` of them."""
    pieces = [contents[name] for name in sorted(contents) if name.startswith(PREFIX)]
    history = [row for piece in pieces for row in json.loads(piece)] + rest
    if len(history) != length:
        raise ValueError(f"the history has {len(history)} of {length} rows")
    return history

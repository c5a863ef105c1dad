"""The parts of a page of results, before they are HTML."""

from __future__ import annotations

import struct
from typing import NamedTuple

PNG_START = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"  # width and height follow
PNG_END = b"\0\0\0\0IEND\xaeB`\x82"


class Table(NamedTuple):
    """Markdown with tables; `verbatim`: plain text with Markdown tables, whose other lines keep their columns."""

    caption: str
    text: str
    verbatim: bool = False


class Figure(NamedTuple):
    """An image with its media type and, if known, its width and height."""

    caption: str
    data: bytes
    kind: str
    size: tuple[int, int] | None


class Note(NamedTuple):
    """What is missing or broken."""

    text: str


Block = Table | Figure | Note


class Entry(NamedTuple):
    """The results of one run: their directory, facts such as the command, settings, tables and figures."""

    place: str
    facts: dict[str, str]
    settings: dict[str, str]
    blocks: list[Block]


class Chapter(NamedTuple):
    """An experiment with its runs."""

    name: str
    title: str
    what: str
    entries: list[Entry]


def image(caption: str, data: bytes, kind: str) -> Figure:
    """A PNG or SVG image; ValueError if the file is incomplete."""
    if not (data.startswith(PNG_START) and data.endswith(PNG_END) if kind == "png" else data.rstrip().endswith(b"</svg>")):
        raise ValueError(f"not a complete {kind.upper()} image")
    if kind == "svg":
        return Figure(caption, data, "image/svg+xml", None)
    width, height = struct.unpack(">II", data[16:24])
    return Figure(caption, data, "image/png", (width, height))

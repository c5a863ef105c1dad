"""Markdown to HTML: tables, lists and paragraphs. Everything else, raw HTML in particular, is shown as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

PARSER = MarkdownIt("zero").enable(["table", "list"])  # "zero" knows nothing but paragraphs
TABLES = MarkdownIt("zero").enable("table")
BOLD = re.compile(r"^\*\*([\d.]+)\*\*$")  # a number that a table emphasises; here it is one like the others
NUMBER = re.compile(r"(≈ ?|< ?)?[+-]?[\d,]*\.?\d+(e[+-]?\d+)?( ± [\d.]+)?( ?[%x])?|[+-]?(nan|inf)|-")


def render(text: str, label: str) -> str:
    """Markdown as HTML; `label` names each table for screen readers."""
    return "".join(_block(node, label) for node in SyntaxTreeNode(PARSER.parse(text)).children)


def render_verbatim(text: str, label: str) -> str:
    """Plain text as HTML; Markdown tables in it become tables, all other lines keep their columns."""
    lines, parts, done = text.splitlines(), [], 0
    for node in SyntaxTreeNode(TABLES.parse(text)).children:
        if node.type == "table" and node.map:
            start, end = node.map
            parts += [_preformatted(lines[done:start], label), _block(node, label)]
            done = end
    return "".join([*parts, _preformatted(lines[done:], label)])


def scrollable(inside: str, label: str) -> str:
    """A region for content that may be wider than the screen."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">\n{inside}</div>\n'


def _block(node: SyntaxTreeNode, label: str) -> str:
    if node.type == "table":
        return scrollable(_table(*(list(_cells(part)) for part in node.children)), label)
    return PARSER.renderer.render(node.to_tokens(), PARSER.options, {})


def _preformatted(lines: Sequence[str], label: str) -> str:
    text = "\n".join(lines).strip("\n")
    return scrollable(f"<pre>{escape(text)}</pre>\n", label) if text.strip() else ""


def _cells(part: SyntaxTreeNode) -> Iterator[list[str]]:
    """The text of each cell, row by row; `part` is the head or the body of a table."""
    for row in part.children:
        yield [BOLD.sub(r"\1", cell.children[0].content.strip()) for cell in row.children]


def _table(head: list[list[str]], body: Sequence[list[str]] = ()) -> str:
    """A table with numbers aligned to the right and the columns of the paper marked."""
    (titles,) = head
    classes = [_classes(title, [row[i] for row in body], first=i == 0) for i, title in enumerate(titles)]
    top = "".join(f'<th scope="col"{c}>{_unbroken(title)}</th>' for title, c in zip(titles, classes, strict=True))
    rows = ""
    for name, *values in body:
        cells = "".join(f"<td{c}>{escape(value)}</td>" for value, c in zip(values, classes[1:], strict=True))
        rows += f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>\n'
    return f"<table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n"


def _classes(title: str, values: Sequence[str], first: bool) -> str:
    """The class attribute of a column."""
    numbers = bool(values) and all(NUMBER.fullmatch(value) or not value for value in values)
    names = ["number"] * (numbers and not first) + ["paper"] * title.startswith("paper:")
    return f' class="{" ".join(names)}"' if names else ""


def _unbroken(title: str) -> str:
    """A title whose words with hyphens stay on one line."""
    return re.sub(r"\S+-\S+", r'<span class="word">\g<0></span>', escape(title))

"""A page of results as HTML: one file that loads nothing, for light and dark, wide and narrow screens."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from experiments.report.blocks import Block, Chapter, Entry, Figure, Note, Table
from experiments.report.markdown import render, render_verbatim, scrollable

PAPER = "https://arxiv.org/abs/1703.01785"
WIDE = 1.5  # width over height, from which a figure has a line to itself
LONG = 24  # characters, from which a setting has a line to itself


def page(title: str, lines: Sequence[str], chapters: Sequence[Chapter], missing: dict[str, str]) -> str:
    """The whole page, in ASCII.

    Args:
      title: its heading.
      lines: the paragraphs below the heading.
      chapters: the experiments that have results.
      missing: titles of experiments without results, and the commands that produce them.
    """
    style = Path(__file__).with_name("style.css").read_text(encoding="ascii")
    about = "".join(f"<p>{escape(line)}</p>\n" for line in lines)
    text = f"""<!DOCTYPE html>
<html lang="en-GB">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
{about}<p>Tinted columns, named <span class="paper">paper</span>, have the numbers of
<a href="{PAPER}">Forward and Reverse Gradient-Based Hyperparameter Optimization</a>; all others were computed here.</p>
</header>
{_contents(chapters, bool(missing))}<main>
{"".join(map(_chapter, chapters))}{_missing(missing)}</main>
</body>
</html>
"""
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")  # valid in whatever encoding it is written


def _contents(chapters: Sequence[Chapter], missing: bool) -> str:
    items = []
    for chapter in chapters:
        entries = enumerate(chapter.entries)
        links = [f'<li><a href="#{_anchor(chapter, i)}">{_breakable(e.place)}</a></li>' for i, e in entries]
        items.append(f'<li><a href="#{escape(chapter.name)}">{escape(chapter.title)}</a>\n<ul>{"".join(links)}</ul></li>\n')
    last = '<li><a href="#not-here">Not here yet</a></li>\n' if missing else ""
    return f'<nav aria-labelledby="contents">\n<h2 id="contents">Contents</h2>\n<ul>\n{"".join(items)}{last}</ul>\n</nav>\n'


def _missing(commands: dict[str, str]) -> str:
    if not commands:
        return ""
    items = "".join(f"<dt>{escape(title)}</dt><dd><code>{escape(how)}</code></dd>\n" for title, how in commands.items())
    return f'<section id="not-here">\n<h2>Not here yet</h2>\n<dl class="facts">\n{items}</dl>\n</section>\n'


def _anchor(chapter: Chapter, i: int) -> str:
    return f"{escape(chapter.name)}-{i + 1}"


def _breakable(name: str) -> str:
    """A path that may break after underscores and slashes."""
    return re.sub(r"([_/])", r"\1<wbr>", escape(name))


def _chapter(chapter: Chapter) -> str:
    entries = "".join(_entry(entry, _anchor(chapter, i)) for i, entry in enumerate(chapter.entries))
    head = f"<h2>{escape(chapter.title)}</h2>\n<p>{escape(chapter.what)}</p>\n"
    return f'<section id="{escape(chapter.name)}">\n{head}{entries}</section>\n'


def _entry(entry: Entry, anchor: str) -> str:
    facts = "".join(_fact(name, value) for name, value in entry.facts.items())
    settings = "".join(_setting(name, value) for name, value in entry.settings.items())
    parts = [f'<article id="{anchor}">\n<h3>{_breakable(entry.place)}</h3>\n']
    parts += [f'<dl class="facts">\n{facts}</dl>\n'] if facts else []
    for kind, blocks in groupby(entry.blocks, type):
        rendered = "".join(map(_block, blocks))
        parts.append(f'<div class="figures">\n{rendered}</div>\n' if kind is Figure else rendered)
    parts += [f'<h4>Settings</h4>\n<dl class="settings">\n{settings}</dl>\n'] if settings else []
    return "".join(parts) + "</article>\n"


def _fact(name: str, value: str) -> str:
    text = f"<code>{escape(value)}</code>" if name == "Command" else escape(value)
    return f"<dt>{escape(name)}</dt><dd>{text}</dd>\n"


def _setting(name: str, value: str) -> str:
    start = '<div class="long">' if len(value) > LONG else "<div>"
    return f"{start}<dt>{_breakable(name)}</dt><dd>{escape(value)}</dd></div>\n"


def _block(block: Block) -> str:
    if isinstance(block, Note):
        return f'<p class="note">{escape(block.text)}</p>\n'
    if isinstance(block, Table):
        inside = (render_verbatim if block.verbatim else render)(block.text, block.caption)
        return f'<figure class="table">\n<figcaption>{escape(block.caption)}</figcaption>\n{inside}</figure>\n'
    return _figure(block)


def _figure(figure: Figure) -> str:
    width, height = figure.size or (2, 1)
    size = f' width="{width}" height="{height}"' if figure.size else ""
    source = f"data:{figure.kind};base64,{base64.b64encode(figure.data).decode('ascii')}"
    image = f'<img src="{source}" alt="{escape(figure.caption)}"{size}>\n'
    kind = "whole" if width >= WIDE * height else "half"
    if kind == "whole":  # a narrow screen scrolls it, because it would be too small to read
        image = scrollable(image, figure.caption)
    return f'<figure class="{kind}">\n{image}<figcaption>{escape(figure.caption)}</figcaption>\n</figure>\n'

"""A page of results as HTML: one file that loads nothing, for light and dark, wide and narrow screens."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

PAPER = "https://arxiv.org/abs/1703.01785"
START, END = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\0\0\0\0IEND\xaeB`\x82"  # of a PNG; width and height follow the start
WIDE = 1.5  # width over height, from which a figure has a line to itself
LONG = 24  # letters, from which a setting has a line to itself
NUMBER = re.compile(r"(≈ ?|< ?)?[+-]?[\d,]*\.?\d+(e[+-]?\d+)?( ± [\d.]+)?( ?[%x])?|[+-]?(nan|inf)|-")
RULE = re.compile(r"\|(\s*:?-+:?\s*\|)+\s*")


class Table(NamedTuple):
    """Markdown with tables; `verbatim`: the lines between them keep their columns."""

    caption: str
    text: str
    verbatim: bool = False


class Figure(NamedTuple):
    """A picture with its type and, if known, its width and height."""

    caption: str
    data: bytes
    kind: str
    size: tuple[int, int] | None


class Note(NamedTuple):
    """What is missing or broken."""

    text: str


Block = Table | Figure | Note


class Entry(NamedTuple):
    """The results of one run: where they are, facts such as the command, settings, tables and figures."""

    place: str
    facts: dict[str, str]
    settings: dict[str, str]
    blocks: list[Block]


class Chapter(NamedTuple):
    """An experiment with the runs there are of it."""

    name: str
    title: str
    what: str
    entries: list[Entry]


def picture(caption: str, data: bytes, kind: str) -> Figure:
    """The figure; ValueError if its end is missing."""
    if not (data.startswith(START) and data.endswith(END) if kind == "png" else data.rstrip().endswith(b"</svg>")):
        raise ValueError(f"no whole {kind.upper()} picture")
    if kind == "svg":
        return Figure(caption, data, "image/svg+xml", None)
    width, height = struct.unpack(">II", data[16:24])
    return Figure(caption, data, "image/png", (width, height))


def page(title: str, lines: Sequence[str], chapters: Sequence[Chapter], missing: dict[str, str]) -> str:
    """The whole page, in ASCII.

    Args:
      title: its heading.
      lines: paragraphs below that.
      chapters: what there is.
      missing: titles of experiments without results, and the commands that make them.
    """
    about = "".join(f"<p>{escape(line)}</p>\n" for line in lines)
    absent = "".join(f"<dt>{escape(name)}</dt><dd><code>{escape(how)}</code></dd>\n" for name, how in missing.items())
    body = "".join(map(_chapter, chapters))
    if absent:
        body += f'<section id="not-here">\n<h2>Not here yet</h2>\n<dl class="facts">\n{absent}</dl>\n</section>\n'
    text = f"""<!DOCTYPE html>
<html lang="en-GB">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
{about}<p>Tinted columns, named <span class="paper">paper</span>, have the numbers of
<a href="{PAPER}">Forward and Reverse Gradient-Based Hyperparameter Optimization</a>; all others were computed here.</p>
</header>
{_contents(chapters, bool(absent))}<main>
{body}</main>
</body>
</html>
"""
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")  # whatever encoding files have where it is written


def _contents(chapters: Sequence[Chapter], absent: bool) -> str:
    items = []
    for chapter in chapters:
        links = [f'<li><a href="#{_anchor(chapter, i)}">{_soft(e.place)}</a></li>' for i, e in enumerate(chapter.entries)]
        items.append(f'<li><a href="#{escape(chapter.name)}">{escape(chapter.title)}</a>\n<ul>{"".join(links)}</ul></li>\n')
    last = '<li><a href="#not-here">Not here yet</a></li>\n' if absent else ""
    return f'<nav aria-labelledby="contents">\n<h2 id="contents">Contents</h2>\n<ul>\n{"".join(items)}{last}</ul>\n</nav>\n'


def _anchor(chapter: Chapter, i: int) -> str:
    return f"{escape(chapter.name)}-{i + 1}"


def _soft(name: str) -> str:
    """A path that may break at its underscores and slashes."""
    return re.sub(r"([_/])", r"\1<wbr>", escape(name))


def _chapter(chapter: Chapter) -> str:
    entries = "".join(_entry(entry, _anchor(chapter, i)) for i, entry in enumerate(chapter.entries))
    head = f"<h2>{escape(chapter.title)}</h2>\n<p>{escape(chapter.what)}</p>\n"
    return f'<section id="{escape(chapter.name)}">\n{head}{entries}</section>\n'


def _entry(entry: Entry, anchor: str) -> str:
    facts = "".join(
        f"<dt>{escape(name)}</dt><dd>{f'<code>{escape(fact)}</code>' if name == 'Command' else escape(fact)}</dd>\n"
        for name, fact in entry.facts.items()
    )
    settings = "".join(_setting(name, value) for name, value in entry.settings.items())
    parts = [f'<article id="{anchor}">\n<h3>{_soft(entry.place)}</h3>\n']
    parts += [f'<dl class="facts">\n{facts}</dl>\n'] if facts else []
    for kind, blocks in groupby(entry.blocks, type):
        rendered = "".join(map(_block, blocks))
        parts.append(f'<div class="figures">\n{rendered}</div>\n' if kind is Figure else rendered)
    parts += [f'<h4>Settings</h4>\n<dl class="settings">\n{settings}</dl>\n'] if settings else []
    return "".join(parts) + "</article>\n"


def _setting(name: str, value: str) -> str:
    start = '<div class="long">' if len(value) > LONG else "<div>"
    return f"{start}<dt>{_soft(name)}</dt><dd>{escape(value)}</dd></div>\n"


def _block(block: Block) -> str:
    if isinstance(block, Note):
        return f'<p class="note">{escape(block.text)}</p>\n'
    if isinstance(block, Table):
        inside = "".join(_markdown(block.text, block.caption, block.verbatim))
        return f'<figure class="table">\n<figcaption>{escape(block.caption)}</figcaption>\n{inside}</figure>\n'
    width, height = block.size or (2, 1)
    known = f' width="{width}" height="{height}"' if block.size else ""
    source = f"data:{block.kind};base64,{base64.b64encode(block.data).decode('ascii')}"
    image = f'<img src="{source}" alt="{escape(block.caption)}"{known}>\n'
    kind = "whole" if width >= WIDE * height else "half"
    if kind == "whole":  # too small to read on a narrow screen, which scrolls it instead
        image = _scroll(image, block.caption)
    return f'<figure class="{kind}">\n{image}<figcaption>{escape(block.caption)}</figcaption>\n</figure>\n'


def _scroll(inside: str, label: str) -> str:
    """What may be wider than the screen."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">\n{inside}</div>\n'


def _markdown(text: str, label: str, verbatim: bool) -> Iterator[str]:
    """Tables, lists and paragraphs: all that the reports of the experiments write."""

    def kind_of(line: str) -> str:
        return "table" if line.startswith("|") else "list" if line.startswith("- ") and not verbatim else "text"

    for kind, group in groupby(text.splitlines(), kind_of):
        lines = [line for line in group if line.strip() or verbatim]
        if kind == "table" and len(lines) > 1:
            yield _scroll(table(lines), label)
        elif kind == "list":
            yield "<ul>\n" + "".join(f"<li>{escape(line[2:])}</li>\n" for line in lines) + "</ul>\n"
        elif verbatim and "".join(lines).strip():
            kept = "\n".join(lines).strip("\n")
            yield _scroll(f"<pre>{escape(kept)}</pre>\n", label)
        elif not verbatim:
            yield "".join(f"<p>{escape(line)}</p>\n" for line in lines)


def table(lines: Sequence[str]) -> str:
    """Lines of a Markdown table as HTML: numbers to the right, the paper's columns marked, short rows filled up."""
    head, *rows = [_cells(line) for i, line in enumerate(lines) if i != 1 or not RULE.fullmatch(line)]
    width = max(map(len, [head, *rows]))
    head, *rows = [[*row, *[""] * (width - len(row))] for row in [head, *rows]]
    classes = []
    for i, title in enumerate(head):
        numbers = rows and all(NUMBER.fullmatch(row[i]) or not row[i] for row in rows)
        names = ["number"] * bool(i and numbers) + ["paper"] * title.startswith("paper:")
        classes.append(f' class="{" ".join(names)}"' if names else "")
    titles = [re.sub(r"\S+-\S+", r'<span class="word">\g<0></span>', escape(title)) for title in head]
    top = "".join(f'<th scope="col"{c}>{title}</th>' for title, c in zip(titles, classes, strict=True))
    body = ""
    for first, *others in rows:
        cells = "".join(f"<td{c}>{escape(cell)}</td>" for cell, c in zip(others, classes[1:], strict=True))
        body += f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>\n'
    return f"<table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n"


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


STYLE = """
:root { --ground: #fff; --ink: #1d2330; --soft: #5b6475; --line: #d9dee7; --band: #f4f6f9; --link: #1a56b8;
  --paper: #fdf3dc; --warn: #fdeceb; --warn-line: #c9372c; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171d; --ink: #e3e7ee; --soft: #9aa5b8; --line: #343b48;
  --band: #1d222b; --link: #86b4ff; --paper: #3a311c; --warn: #3a1f1e; --warn-line: #f0857c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1.25rem 4rem; max-width: 54rem; background: var(--ground); color: var(--ink);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; overflow-wrap: break-word; }
h1, h2, h3, h4 { line-height: 1.25; margin: 2em 0 .5em; text-wrap: balance; }
h1 { font-size: 2rem; margin-top: 1rem; }
h2 { font-size: 1.5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.1rem; font-family: ui-monospace, "Liberation Mono", monospace; }
h4 { font-size: 1rem; }
section, article { scroll-margin-top: 1rem; }
p, ul { max-width: 44rem; }
a { color: var(--link); }
code, pre { font: .875em/1.5 ui-monospace, "Liberation Mono", monospace; }
code { background: var(--band); padding: .1em .35em; border-radius: 4px; overflow-wrap: anywhere; }
pre { margin: 0; padding: .75rem 1rem; background: var(--band); width: max-content; min-width: 100%; }
nav { font-size: .9rem; line-height: 1.4; }
nav h2 { font-size: 1rem; border: 0; padding: 0; margin: 1rem 0 .5rem; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav ul ul { padding-left: .9rem; font-size: .9em; border-left: 2px solid var(--line); margin: .2rem 0 .6rem; }
nav li { margin: .25rem 0; }
nav a { text-decoration: none; }
nav a:hover { text-decoration: underline; }
dl { margin: 1rem 0; font-size: .9rem; }
dd { margin: 0; }
dt { color: var(--soft); }
.facts { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .25rem 1rem; }
.settings { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); grid-auto-flow: dense;
  gap: 0 2rem; }
.settings div { display: flex; justify-content: space-between; gap: 1rem; padding: .2rem 0;
  border-bottom: 1px solid var(--line); }
.settings .long { grid-column: 1 / -1; justify-content: flex-start; }
.settings dd { text-align: right; min-width: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.note { background: var(--warn); border-left: 4px solid var(--warn-line); padding: .5rem .9rem; border-radius: 0 4px 4px 0; }
figure { margin: 1.5rem 0; }
figcaption { color: var(--soft); font-size: .9rem; line-height: 1.45; max-width: 44rem; margin: .4rem 0; }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; border: 1px solid var(--line); border-radius: 6px; }
.scroll:focus-visible, a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
table { border-collapse: separate; border-spacing: 0; width: 100%;
  font-size: .875rem; line-height: 1.25rem; font-variant-numeric: tabular-nums; }
th, td { padding: .375rem .55rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
tbody tr:last-child > * { border-bottom: 0; }
thead th { background: var(--band); vertical-align: bottom; min-width: 4.5rem; }
tbody th { background: var(--ground); font-weight: 600; }
th:first-child { position: sticky; left: 0; }
thead th:first-child { min-width: 7.5rem; }
td, tbody th, .word { white-space: nowrap; }
.number { text-align: right; }
.paper, thead .paper { background: var(--paper); }
span.paper { padding: 0 .3em; border-radius: 3px; }
.figures { display: flex; flex-wrap: wrap; gap: 0 1.5rem; }
.whole { flex: 1 1 100%; min-width: 0; }
.half { flex: 0 1 calc(50% - .75rem); }
img { display: block; width: 100%; height: auto; background: #fff; padding: .5rem; }
.half img { border: 1px solid var(--line); border-radius: 6px; }
@media (max-width: 44rem) { .whole img { min-width: 38rem; } .half { flex-basis: 100%; } }
@media (max-width: 30rem) { .facts { grid-template-columns: 1fr; gap: 0; } .facts dd { margin-bottom: .5rem; } }
@media (min-width: 72rem) {
  body { display: grid; grid-template: auto 1fr / 15rem minmax(0, 62rem); column-gap: 3rem; max-width: 83rem; }
  header, main { grid-column: 2; }
  nav { grid-area: 1 / 1 / 3 / 2; position: sticky; top: 0; align-self: start; max-height: 100vh; overflow-y: auto;
    padding: 1rem 0; } }
@media print { nav { display: none; } body { display: block; max-width: none; } .scroll { overflow: visible; } }
"""

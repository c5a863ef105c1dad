"""The fenced blocks of a Markdown page, and what stands between two of its markers."""

import re
import textwrap
from typing import NamedTuple

FENCE = re.compile(r"^ *(?:<!-- (?P<note>[^\n]*) -->\n *)?```(?P<language>[^\n]*)\n(?P<text>.*?)^ *```$", re.M | re.S)


class Block(NamedTuple):
    """A fenced block, the comment on the line before it, and the text between the previous block and this one."""

    language: str
    text: str
    note: str
    between: str


def blocks(page):
    """The fenced blocks of a page; those inside a multi-line comment do not count."""
    text = re.sub(r"<!--\n.*?-->", "", page.read_text(), flags=re.S)
    matches = list(FENCE.finditer(text))
    ends = [0, *(match.end() for match in matches)]
    return [
        Block(match["language"], textwrap.dedent(match["text"]), match["note"] or "", text[end : match.start()].strip())
        for match, end in zip(matches, ends, strict=False)
    ]


def python_blocks(page):
    return [block for block in blocks(page) if block.language == "python"]


def replaced(text, begin, end, content):
    """The text with this content between two markers."""
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"

"""Sphinx configuration: Markdown pages, and the API reference from docstrings. `sphinx-build docs docs/_build` builds it."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

project = "rfho2"
author = copyright = "the rfho2 maintainers"
(version,) = re.findall(r'__version__ = "(.+)"', (ROOT / "rfho2" / "__init__.py").read_text())
release = version

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "examples", "gallery", "notebooks"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_title = f"rfho2 {version}"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
default_role = "code"  # the role of single backticks in a docstring

autodoc_member_order = "bysource"
autodoc_type_aliases = {name: name for name in ("Nest", "Hypers", "Batches", "Value", "Loss", "Setting", "Metrics", "Stop")}
autodoc_typehints_format = "short"
napoleon_use_ivar = True  # the signature of a NamedTuple already lists its fields
python_maximum_signature_line_length = 100

FORMULA = re.compile(r"^[\w{}(), +-]*[\w})] = |^grad = ")


def as_restructured_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turns paragraphs of equations, one per line, into literal blocks, and lets plurals such as `Objective`s through."""
    paragraphs = "\n".join(lines).split("\n\n")
    for i, paragraph in enumerate(paragraphs):
        if i and all(FORMULA.match(line) for line in paragraph.splitlines()) and paragraph.strip():
            paragraphs[i] = "::\n\n" + "\n".join("    " + line for line in paragraph.splitlines())
    text = re.sub(r"(`[^`\n]+`)(\w?)", lambda m: m[1] + ("\\ " + m[2] if m[2] else ""), "\n\n".join(paragraphs))
    lines[:] = text.split("\n")


def aliases_by_name(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Shortens the aliases inside tuple[...] and dict[...], which autodoc shows as TypeAliasForwardRef('Nest')."""
    shorten = functools.partial(re.sub, r"TypeAliasForwardRef\('(\w+)'\)", r"\1")
    return signature and shorten(signature), returns and shorten(returns)


def setup(app: Any) -> None:
    """Connects the handlers; docstrings are changed before napoleon reads their sections."""
    app.connect("autodoc-process-docstring", as_restructured_text, priority=400)
    app.connect("autodoc-process-signature", aliases_by_name)

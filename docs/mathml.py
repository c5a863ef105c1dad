"""Formulas as MathML, which browsers show without a script and without the internet."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.errors import ExtensionError


def inline(writer: Any, node: nodes.math) -> None:
    """A formula in a sentence."""
    writer.body.append(as_mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def displayed(writer: Any, node: nodes.math_block) -> None:
    """A formula in a line of its own, which can be scrolled where the screen is narrow."""
    writer.body.append(f'<div class="formula">{as_mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def as_mathml(latex: str, display: str) -> str:
    """A formula, or an error if a part of it would stay TeX."""
    try:
        mathml = str(convert(latex, display=display))
    except Exception as error:
        raise ExtensionError(f"latex2mathml cannot read {latex!r}: {type(error).__name__} {error}") from error
    if "\\" in mathml or ">&<" in mathml:
        raise ExtensionError(f"latex2mathml does not know a command in {latex!r}; write it in another way.")
    return mathml


def setup(app: Any) -> dict[str, bool]:
    """Replaces Sphinx's default renderer, which needs MathJax."""
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

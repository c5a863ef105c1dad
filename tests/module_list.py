"""The list of modules in docs/architecture.md, made from the first lines of their docstrings.

`python -m tests.module_list` writes it anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.layers import LAYERS
from tests.support.markdown import replaced

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- modules: written by `python -m tests.module_list` -->"
END = "<!-- end of modules -->"


def summary(path: Path) -> str:
    """The first line of the docstring of a module or package."""
    source = path / "__init__.py" if path.is_dir() else path
    return (ast.get_docstring(ast.parse(source.read_text())) or "").split("\n", 1)[0]


def children(folder: Path) -> list[Path]:
    """The modules and packages in a folder, modules first."""
    inside = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    return sorted((path for path in inside if path.stem != "__init__"), key=lambda path: (path.is_dir(), path.name))


def entries(path: Path, indent: int = 0, deep: bool = True, note: str = "") -> Iterator[str]:
    """One line for a module, or for a package and, if `deep`, for everything in it."""
    name = f"{path.name}/" if path.is_dir() else path.stem if indent else path.name
    yield f"{'  ' * indent}- `{name}`{note}: {summary(path)}"
    if path.is_dir() and deep:
        for child in children(path):
            yield from entries(child, indent + 1)


def module_list() -> str:
    """The library by layers, lowest first; then the experiments, a line for each, with what they share; then the data."""
    lines = ["### `rfho2/`", ""]
    for number, names in enumerate(LAYERS, start=1):
        for name in names:
            path = ROOT / "rfho2" / name
            lines += entries(path if path.is_dir() else path.with_suffix(".py"), note=f" (layer {number})")
    lines += ["", "### `experiments/`", ""]
    for path in children(ROOT / "experiments"):
        lines += entries(path, deep=path.name in ("benchmarks", "common"))
    lines += ["", "### `data/`", ""]
    for path in children(ROOT / "data"):
        lines += entries(path)
    return "\n".join(lines)


def with_module_list(text: str) -> str:
    """The text of the page with the present list between its two markers."""
    return replaced(text, BEGIN, END, module_list())


if __name__ == "__main__":
    PAGE.write_text(with_module_list(PAGE.read_text()))

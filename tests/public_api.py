"""The public API as text: what the reference pages document, with parameters and defaults.

`python -m tests.public_api` writes it anew. A difference is a change for users: it belongs in the changelog, and what breaks
their code waits for the next major version (CONTRIBUTING.md).
"""

from __future__ import annotations

import inspect
import operator
import re
from pathlib import Path
from typing import Any

import rfho2 as rf

STORED = Path(__file__).with_name("public_api.txt")
DOCS = Path(__file__).parents[1] / "docs"
DIRECTIVE = re.compile(r"^\.\. (?:auto(?:class|function)|py:type):: rfho2\.([\w.]+)\n(?:   :members:( [\w, ]+)?(\n))?", re.M)


def documented() -> dict[str, list[str]]:
    """The public names of the reference, and the public methods of those whose members it shows."""
    members = {}
    for page in ("api.md", "methods.md"):
        for name, member, all_members in DIRECTIVE.findall((DOCS / page).read_text()):
            thing = operator.attrgetter(name)(rf)
            public = [key for key in vars(thing) if not key.startswith("_") or key == "__call__"] if all_members else []
            named = member.strip().split(", ") if member else []
            members[name] = named or sorted(key for key in public if callable(getattr(thing, key)))
    return members


def described() -> str:
    """A line for each public name, and one for each public method."""
    lines = []
    for name, members in sorted(documented().items(), key=lambda item: item[0].lower()):
        thing = operator.attrgetter(name)(rf)
        lines.append(f"rf.{name}{_parameters(thing)}")
        lines += [f"    .{member}{_parameters(getattr(thing, member))}" for member in members]
    return "\n".join(lines) + "\n"


def _parameters(thing: Any) -> str:
    """Names, kinds and defaults; annotations are left out, because versions of Python show them differently."""
    if not (inspect.isfunction(thing) or (inspect.isclass(thing) and thing.__module__.startswith("rfho2"))):
        return ""  # a type alias
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return ""  # an exception that takes what its built-in base takes
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))


if __name__ == "__main__":
    STORED.write_text(described())

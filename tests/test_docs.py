"""The documentation: what it links to exists, what it shows runs and prints what it says, what it names is there."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import rfho2 as rf

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LEFT_OUT = {"_build", "examples", "notebooks"}  # as in docs/conf.py
PAGES = [ROOT / "README.md", *sorted(p for p in DOCS.rglob("*.md") if not LEFT_OUT & set(p.relative_to(DOCS).parts))]
SLOW = {"README.md", "docs/keras.md", "docs/methods.md", "docs/tour.md"}  # more than about five seconds
FENCE = re.compile(r"^(?:<!-- (?P<note>[^\n]*) -->\n)?```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"python -m (experiments|data)\.(\w+)([^\n`#&|]*)")


class Block(NamedTuple):
    """A fenced block, the text of the comment on the line before it, and what lies between it and the block before."""

    language: str
    text: str
    note: str
    between: str


def blocks(page):
    """The fenced blocks of a page, comments that hide some of it taken away."""
    text = re.sub(r"<!--\n.*?-->", "", page.read_text(), flags=re.S)
    found, end = [], 0
    for match in FENCE.finditer(text):
        found.append(Block(match["language"], match["text"], match["note"] or "", text[end : match.start()].strip()))
        end = match.end()
    return found


def name(page):
    return str(page.relative_to(ROOT))


def not_run(page):
    """The python blocks that a page leaves out, with the reason."""
    return [block for block in blocks(page) if block.language == "python" and block.note.startswith("not run: ")]


def contents(page):
    """The entries of the tables of contents on a page."""
    lines = [line for b in blocks(page) if b.language == "{toctree}" for line in b.text.splitlines()]
    return [line for line in lines if line and not line.startswith(":")]


def written_out():
    """(page, part of its text) for what is code on it: blocks of shell, and spans."""
    for page in PAGES:
        for block in blocks(page):
            if block.language in ("sh", ""):
                yield page, block.text
        for span in re.findall(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)", FENCE.sub("", page.read_text())):
            yield page, span.replace("\n", " ")


def test_there_are_pages_and_they_have_blocks():
    assert {"README.md", "docs/index.md", "docs/tour.md", "docs/methods.md", "docs/api.md"} <= set(map(name, PAGES))
    assert len([b for b in blocks(DOCS / "tour.md") if b.language == "python"]) >= 8


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_and_figures_exist(page):
    text = FENCE.sub("", page.read_text())
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    entries = [f"{entry}.md" for entry in contents(page)]
    local = [target.split("#")[0] for target in targets if not re.match(r"[a-z]+:|#", target)]
    for target in [*local, *entries]:
        assert (page.parent / target).exists(), f"{name(page)} points to {target}"


def test_every_page_is_in_the_table_of_contents():
    pages = {str(p.relative_to(DOCS).with_suffix("")) for p in PAGES if p.is_relative_to(DOCS)}
    assert pages - {"index"} == set(contents(DOCS / "index.md"))


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=[pytest.mark.slow] if name(p) in SLOW else [], id=name(p)) for p in PAGES]
)
def test_code_runs_as_written_and_prints_what_is_shown(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace, printed = {"__name__": "__page__"}, None
    for block in blocks(page):
        if block.language == "python" and not block.note.startswith("not run: "):
            capsys.readouterr()
            exec(compile(block.text, name(page), "exec"), namespace)
            printed = capsys.readouterr().out
        elif block.language == "text" and not block.between and printed is not None:
            varies = block.note.startswith("varies: ")
            same = printed == block.text or (varies and printed.strip() and block.text.strip())
            assert same, f"{name(page)} shows other output than its code prints"
            printed = None


def test_blocks_that_are_not_run_say_why():
    for page in PAGES:
        for block in not_run(page):
            print(f"{name(page)}: not run: {block.note.removeprefix('not run: ')}")
            assert len(block.note) > len("not run: ") + 5


def test_commands_name_modules_and_flags_that_exist():
    seen = 0
    for page, text in written_out():
        for package, module, arguments in COMMAND.findall(text):
            path = ROOT / package / f"{module}.py"
            assert path.exists(), f"{name(page)}: python -m {package}.{module}"
            defined = flags_of(path) | flags_of(ROOT / "experiments" / "common.py")
            for flag in re.findall(r"--(\w+)", arguments):
                seen += 1
                known = flag in defined or (flag.startswith("no") and flag[2:] in defined)
                assert known, f"{name(page)}: {package}.{module} has no flag --{flag}"
    assert seen >= 20


def flags_of(path):
    """The names of the absl flags that a source defines, itself or by `define_flag` of a module of experiments."""
    text = path.read_text()
    found = set(re.findall(r'DEFINE_\w+\(\s*"(\w+)"', text))
    return found.union(
        *(flags_of(ROOT / "experiments" / f"{module}.py") for module in re.findall(r"(\w+)\.define_flag\(", text))
    )


def test_make_targets_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {(name(page), t) for page, text in written_out() for t in re.findall(r"(?:^|\s)make ([\w-]+)", text)}
    assert {t for _, t in named} >= {"test", "demo", "bench"}
    assert not {(page, t) for page, t in named if t not in targets}


def test_every_public_name_is_on_the_api_page():
    text = "\n".join(block.text for block in blocks(DOCS / "api.md"))
    documented = set(re.findall(r":: rfho2\.(\w+)$", text, re.M))
    assert set(rf.__all__) == documented


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path):
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip("sphinx is not installed")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", tmp_path / "trees", DOCS, tmp_path / "html"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr[-3000:]
    page = (tmp_path / "html" / "api.html").read_text()
    for public in rf.__all__:
        assert f'id="rfho2.{public}"' in page or f'id="module-rfho2.{public}"' in page, public

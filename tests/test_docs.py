"""The documentation: links lead somewhere, code runs and prints what is shown, and every name, flag and target exists."""

import importlib
import re
import runpy
from pathlib import Path

import absl.app
import pytest
from absl import flags

import rfho2 as rf
from tests import keras_table, module_list
from tests.support.markdown import FENCE, blocks, python_blocks

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXCLUDED = {"_build", "examples", "gallery", "notebooks"}  # as in docs/conf.py
SITE = sorted(path for path in DOCS.rglob("*.md") if not EXCLUDED & set(path.relative_to(DOCS).parts))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *SITE]
SLOW = {
    "README.md",
    "docs/coming_from.md",
    "docs/index.md",
    "docs/keras.md",
    "docs/methods.md",
    "docs/monitoring.md",
    "docs/tour.md",
    "docs/what_to_tune.md",
}  # pages whose code takes more than about three seconds
COMMAND = re.compile(r"python -m ((?:experiments|data)\.\w+)([^\n`#&|]*)")


def name(page):
    return str(page.relative_to(ROOT))


def skipped(block):
    return block.note.startswith("not run: ")


def toctree(page):
    """The entries of the tables of contents on a page."""
    lines = [line for block in blocks(page) if block.language == "{toctree}" for line in block.text.splitlines()]
    return [line for line in lines if line and not line.startswith(":")]


def code_snippets():
    """(page, text) for every shell block and every inline code span."""
    for page in PAGES:
        for block in blocks(page):
            if block.language in ("sh", ""):
                yield page, block.text
        for span in re.findall(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)", FENCE.sub("", page.read_text())):
            yield page, span.replace("\n", " ")


def test_there_are_pages_and_they_have_blocks():
    assert {"README.md", "docs/index.md", "docs/tour.md", "docs/methods.md", "docs/api.md"} <= set(map(name, PAGES))
    assert len(python_blocks(DOCS / "tour.md")) >= 8


def test_relative_links_and_figures_exist():
    for page in PAGES:
        targets = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text()))
        local = [target.split("#")[0] for target in targets if not re.match(r"[a-z]+:|#", target)]
        for target in [*local, *(f"{entry}.md" for entry in toctree(page))]:
            assert (page.parent / target).exists(), f"{name(page)} links to {target}, which does not exist"


def test_every_page_is_in_the_table_of_contents():
    pages = {str(path.relative_to(DOCS).with_suffix("")) for path in SITE}
    assert pages - {"index"} == set(toctree(DOCS / "index.md"))


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if name(page) in SLOW else [], id=name(page))
        for page in PAGES
        if not all(map(skipped, python_blocks(page)))
    ],
)
def test_code_runs_as_written_and_prints_what_is_shown(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace, printed = {"__name__": "__page__"}, None
    for block in blocks(page):
        if block.language == "python" and not skipped(block):
            capsys.readouterr()
            exec(compile(block.text, name(page), "exec"), namespace)
            printed = capsys.readouterr().out
        elif block.language == "text" and not block.between and printed is not None:
            assert same_output(printed, block), f"{name(page)} shows other output than its code prints:\n{printed}"
            printed = None


def same_output(printed, block):
    """Whether a block shows what was printed; the comment before it may allow for numbers, or anything, that varies."""
    if block.note == "varies: the last digits":
        return without_numbers(printed) == without_numbers(block.text)
    if block.note.startswith("varies: "):
        return bool(printed.strip() and block.text.strip())
    return printed == block.text


def without_numbers(text):
    return re.sub(r"-?\d[\d.]*(e[+-]\d+)?", "#", text).split()


def test_blocks_that_are_not_run_give_a_reason():
    for page in PAGES:
        for block in filter(skipped, python_blocks(page)):
            reason = block.note.removeprefix("not run: ")
            assert len(reason) > 5, f"{name(page)}: {reason}"


def test_commands_name_modules_and_flags_that_exist(monkeypatch):
    used = {}  # (page, flag) pairs by module
    for page, text in code_snippets():
        for module, arguments in COMMAND.findall(text):
            used.setdefault(module, set()).update((name(page), flag) for flag in re.findall(r"--(\w+)", arguments))
    assert sum(map(len, used.values())) >= 20
    for module, flags_used in used.items():
        defined = flags_defined_by(module, monkeypatch)
        unknown = {
            (page, flag) for page, flag in flags_used if flag not in defined and flag.removeprefix("no") not in defined
        }
        assert not unknown, f"python -m {module} has no such flag: {unknown}"


def flags_defined_by(module, monkeypatch):
    """The flags that `python -m module` has when it begins to parse them."""
    importlib.import_module("experiments.common.binary")  # its flags are defined once per process, at import
    before, defined = set(flags.FLAGS), set()
    with monkeypatch.context() as patch:
        patch.setattr(absl.app, "run", lambda *_, **__: defined.update(flags.FLAGS))
        runpy.run_module(module, run_name="__main__")
    for flag in set(flags.FLAGS) - before:
        delattr(flags.FLAGS, flag)
    assert defined, f"python -m {module} does not parse flags"
    return defined


def test_make_targets_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {(name(page), t) for page, text in code_snippets() for t in re.findall(r"(?:^|\s)make ([\w-]+)", text)}
    assert {target for _, target in named} >= {"test", "demo", "bench"}
    assert not {(page, target) for page, target in named if target not in targets}


def test_every_public_name_is_documented():
    text = "\n".join(block.text for page in ("api.md", "methods.md") for block in blocks(DOCS / page))
    documented = set(re.findall(r":: rfho2\.(\w+)$", text, re.M))
    assert documented == set(rf.__all__)


def test_the_list_of_modules_and_the_table_of_keras_cases_are_up_to_date():
    text = module_list.PAGE.read_text()
    assert text == module_list.with_module_list(text), "a docstring or a module has changed: `python -m tests.module_list`"
    text = keras_table.PAGE.read_text()
    assert text == keras_table.with_table(text), "a case has changed: run `python -m tests.keras_table`"


def test_the_citation_has_the_version_of_the_library():
    assert f"\nversion: {rf.__version__}\n" in (ROOT / "CITATION.cff").read_text()

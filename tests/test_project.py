"""The structure of the project: layers, sizes, public names, docstrings, and the README's example."""

import ast
import graphlib
import re
from pathlib import Path

import pytest

import rfho2 as rf
from tests.support.layers import LAYERS

ROOT = Path(__file__).parents[1]
LIBRARY = sorted((ROOT / "rfho2").rglob("*.py"))
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
LOOSE = {"__init__", "batches", "memory", "problem"}
LARGEST = 300  # lines


def imported(path):
    """The modules of the library that a file imports, as dotted names below `rfho2`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "rfho2":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rfho2."):
            parent = node.module.removeprefix("rfho2.")
            children = {f"{parent}.{alias.name}" for alias in node.names}
            yield from (children & MODULES) or {parent}


def dotted(path):
    """`rfho2/core/nest.py` -> `core.nest`; a package is named after its folder."""
    return ".".join(path.relative_to(ROOT / "rfho2").with_suffix("").parts).removesuffix(".__init__")


MODULES = {dotted(path) for path in LIBRARY} - {"__init__"}


def test_only_two_concepts_and_two_entry_points_lie_outside_the_folders():
    assert {path.stem for path in (ROOT / "rfho2").glob("*.py")} <= LOOSE
    folders = {dotted(path).split(".")[0] for path in LIBRARY if path.parent.name != "rfho2"}
    assert folders | LOOSE - {"__init__"} == set(LEVEL)


def test_rooms_of_the_keras_bridge_import_one_way():
    rooms = ["wrapping", "training", "data", "tuners"]
    for path in (path for path in LIBRARY if path.parent.name in rooms):
        imported_rooms = {module.split(".")[1] for module in imported(path) if module.startswith("keras_bridge.")}
        assert {rooms.index(room) for room in imported_rooms} <= set(range(rooms.index(path.parent.name) + 1)), dotted(path)


def test_folders_import_from_lower_layers_only():
    for path in LIBRARY:
        folder = dotted(path).split(".")[0]
        if folder == "__init__":
            continue
        for lower in {module.split(".")[0] for module in imported(path)}:
            assert lower == folder or LEVEL[lower] < LEVEL[folder], f"{dotted(path)} imports {lower}"


def test_no_import_cycles():
    graph = {dotted(path): set(imported(path)) & MODULES for path in LIBRARY if dotted(path) != "__init__"}
    order = graphlib.TopologicalSorter(graph)
    order.prepare()  # raises CycleError, which names the modules


def test_nobody_guesses_what_an_engine_has():
    """Everything that may be asked of an engine is declared in its base class."""
    for path in LIBRARY:
        if path != ROOT / "rfho2" / "hypergradients" / "adapter.py":
            guesses = re.findall(r"\b(?:getattr|hasattr)\((?:self\.)?_?engine\b", path.read_text())
            assert not guesses, f"{path}: {guesses}"


def test_files_are_short():
    experiments = (ROOT / "experiments").rglob("*.py")
    sizes = {path: len(path.read_text().splitlines()) for path in [*LIBRARY, *experiments]}
    assert {path: size for path, size in sizes.items() if size > LARGEST} == {}


def test_no_test_imports_from_a_test():
    for path in (ROOT / "tests").rglob("*.py"):
        imports = re.findall(
            r"^\s*from (tests\.\S*\btest_\w+) import|^\s*import (tests\.\S*\btest_\w+)", path.read_text(), re.M
        )
        assert not imports, f"{path}: move what is shared to tests/support"


def test_the_library_imports_neither_experiments_nor_data():
    for path in LIBRARY:
        roots = {
            n.module.split(".")[0]
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.ImportFrom) and n.module
        }
        assert not roots & {"experiments", "data", "tests"}, path


def test_all_is_a_sorted_literal_of_what_is_there():
    tree = ast.parse((ROOT / "rfho2" / "__init__.py").read_text())
    (value,) = [n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__"]
    names = ast.literal_eval(value)
    assert names == sorted(names)
    modules = {path.stem for path in LIBRARY} | {path.parent.name for path in LIBRARY}
    public = {name for name in vars(rf) if not name.startswith("_")}
    typing = {"TYPE_CHECKING", "Any"}
    assert public - modules - typing <= set(names)
    assert all(hasattr(rf, name) for name in names)  # those of the Keras bridge come when they are asked for


@pytest.mark.parametrize("name", [n for n in rf.__all__ if n not in ("batches", "distribute")])
def test_public_things_have_docstrings(name):
    assert (getattr(rf, name).__doc__ or "").strip()


def test_while_loops_and_tensor_arrays_are_in_one_place():
    for path in LIBRARY:
        if path.name not in (
            "loops.py",
            "batches.py",
        ):  # batches: the cycle walk of a permutation, which is not differentiated
            assert not re.search(r"tf\.(while_loop|TensorArray)\b", path.read_text()), path


def test_the_readme_example_runs(capsys):
    text = (ROOT / "README.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    assert len([line for line in code.splitlines() if line.strip()]) <= 22
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["result"].best.state.params.shape == 50, "as the text below the example says"
    before, after = re.search(r"validation error ([\d.]+) -> ([\d.]+)", capsys.readouterr().out).groups()
    assert float(after) < 0.6 * float(before)
    stated = re.search(r"# ([\d.]+) -> ([\d.]+)", code).groups()
    assert (before, after) == stated, "the README shows other numbers than its example prints"

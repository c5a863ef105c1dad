"""The house: layers, public names, docstrings, and the README's example."""

import ast
import re
from pathlib import Path

import pytest

import rfho2 as rf

ROOT = Path(__file__).parents[1]
LIBRARY = sorted((ROOT / "rfho2").rglob("*.py"))
LAYERS = [
    ["types", "projections", "memory", "histories", "locks", "preemption"],
    ["nest", "progress"],
    ["errors"],
    ["constraints", "batches", "loops", "checkpoints"],
    ["dynamics"],
    ["problem"],
    ["hypergradients"],
    ["projected_adam", "timing"],
    ["planner", "setbacks"],
    ["hyper_optimizer"],
    ["monitor", "keras_bridge"],
    ["distribute"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imported(path):
    """The modules of the library that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "rfho2":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rfho2."):
            yield node.module.split(".")[1]


@pytest.mark.parametrize(
    "path", [p for p in LIBRARY if p.parent != ROOT / "rfho2" or p.name != "__init__.py"], ids=lambda p: p.stem
)
def test_a_module_imports_from_lower_layers_only(path):
    own = path.relative_to(ROOT / "rfho2").parts[0].removesuffix(".py")
    assert own in LEVEL, f"{own} has no layer"
    for other in imported(path):
        assert other == own or LEVEL[other] < LEVEL[own], f"{own} imports {other}"


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
    here = {name for name in vars(rf) if not name.startswith("_")}
    typing = {"TYPE_CHECKING", "Any"}
    assert here - modules - typing <= set(names)
    assert all(hasattr(rf, name) for name in names)  # those of the Keras bridge come when they are asked for


@pytest.mark.parametrize("name", [n for n in rf.__all__ if n not in ("batches", "distribute")])
def test_public_things_have_docstrings(name):
    assert (getattr(rf, name).__doc__ or "").strip()


def test_while_loops_and_tensor_arrays_are_in_one_place():
    for path in LIBRARY:
        if path.name not in ("loops.py", "batches.py"):  # batches: the cycle walk of a permutation, which no tape sees
            assert not re.search(r"tf\.(while_loop|TensorArray)\b", path.read_text()), path


def test_the_readme_example_runs(capsys):
    text = (ROOT / "README.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    assert len([line for line in code.splitlines() if line.strip()]) <= 22
    exec(compile(code, "README.md", "exec"), {})
    before, after = re.search(r"validation error ([\d.]+) -> ([\d.]+)", capsys.readouterr().out).groups()
    assert float(after) < 0.6 * float(before)
    stated = re.search(r"# ([\d.]+) -> ([\d.]+)", code).groups()
    assert (before, after) == stated, "the README shows other numbers than its example prints"

"""Do the tests notice a mistake? Makes mistakes in the library, one at a time: `make mutants`.

The mistakes are drawn at random, with a seed, from the syntax trees of each folder: another operator or constant, a
condition that is negated, branches or arguments that are swapped. What the user is told (messages, docstrings) and types are
left alone. A mutant is caught if a quick test fails: first those are run that reach its line, then all of its folder.

    python -m tests.mutants --jobs=2
    python -m tests.mutants --folders driver monitor --number=12
    python -m tests.mutants --list                 # what would be tried

A run that was stopped goes on, as long as the commit is the same. `mutants.json` has those mutants that no test can notice,
with the reason, and those that only a slow test notices, with its name.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.reached import Reached, recorded

ROOT = Path(__file__).parents[1]
TOP = "rfho2"  # the files beside the folders
FOLDERS = {  # the number of mutants, and further tests, after those that mirror the folder
    TOP: (12, ["tests/test_batches.py", "tests/hypergradients"]),
    "core": (18, ["tests/test_batches.py", "tests/hypergradients", "tests/dynamics"]),
    "dynamics": (12, ["tests/test_public_api.py", "tests/hypergradients"]),
    "hypergradients": (24, ["tests/planning", "tests/core"]),
    "constraints": (12, ["tests/driver/test_projected_adam.py"]),
    "driver": (24, []),
    "planning": (12, []),
    "monitor": (12, []),
    "keras_bridge": (30, []),
    "distribute": (12, []),
}
WANTED = 0.95  # share that has to be caught, in each folder
TIMEOUT = 900  # seconds; a mutant that makes a loop endless counts as caught
SEED = 1

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
SYMMETRIC = ("dot", "maximum", "minimum", "add", "multiply", "logical_and", "logical_or", "max", "min", "isclose")


class Mutant(NamedTuple):
    """A mistake: the text from `start` to `end` of a file, and what stands there instead."""

    folder: str
    file: str
    start: int
    end: int
    old: str
    new: str
    line: str

    @property
    def name(self) -> str:
        """What identifies it, also after other lines have changed."""
        return f"{self.file}: {self.line}: {self.old} -> {self.new}"


def files_of(folder: str) -> list[Path]:
    """The modules of a folder, with those of its rooms."""
    paths = (ROOT / "rfho2").glob("*.py") if folder == TOP else (ROOT / "rfho2" / folder).rglob("*.py")
    return sorted(path for path in paths if path.name != "__init__.py")


def possible(folder: str, path: Path) -> Iterator[Mutant]:
    """Every mistake that can be made in a file."""
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line.encode()))
    raw = text.encode()
    for node in _code(ast.parse(text)):
        for changed in _changes(node):
            start = begins[node.lineno - 1] + node.col_offset
            end = begins[node.end_lineno - 1] + node.end_col_offset
            new = ast.unparse(ast.fix_missing_locations(changed))
            if isinstance(node, ast.BinOp | ast.Compare | ast.BoolOp | ast.UnaryOp | ast.IfExp):
                new = f"({new})"
            old = raw[start:end].decode()
            if new in (old, f"({old})"):
                continue
            yield Mutant(folder, str(path.relative_to(ROOT)), start, end, old, new, lines[node.lineno - 1].strip())


def _code(tree: ast.AST) -> Iterator[Any]:
    """The expressions that compute something."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_told(child):
                continue
            if isinstance(child, ast.expr):
                yield child
            yield from _code(child)


def _is_told(node: ast.AST) -> bool:
    """Whether it is only for readers (a docstring, a message, a type), or nothing that can be wrong."""
    if isinstance(node, ast.Raise | ast.JoinedStr) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return True
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
        return True  # a number that was measured or chosen: another one is no mistake
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return True
    return isinstance(node, ast.Call) and _name(node) in ("warn", "cast", "isinstance")


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _changes(node: ast.expr) -> Iterator[ast.expr]:
    """The expression with one mistake."""
    changed: Any = copy.deepcopy(node)
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OPERATORS:
        changed.op = OPERATORS[type(node.op)]()
        yield changed
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        changed.ops[0] = OPERATORS[type(node.ops[0])]()
        yield changed
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield changed.operand
    elif isinstance(node, ast.IfExp):
        changed.body, changed.orelse = changed.orelse, changed.body
        yield changed
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        changed.value = not node.value
        yield changed
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        changed.value = node.value + 1 if isinstance(node.value, int) else 2 * node.value or 1.0
        yield changed
    elif isinstance(node, ast.Call) and len(node.args) == 2 and _name(node) not in SYMMETRIC:
        changed.args.reverse()
        yield changed


def drawn(folder: str, number: int, seed: int) -> list[Mutant]:
    """So many of the mistakes that can be made in a folder, at most one in a line; the same ones for the same code."""
    everything = [mutant for path in files_of(folder) for mutant in possible(folder, path)]
    random.Random(f"{seed} {folder}").shuffle(everything)
    chosen: dict[tuple[str, str], Mutant] = {}
    for mutant in everything:
        if len(chosen) < number:
            chosen.setdefault((mutant.file, mutant.line), mutant)
    return list(chosen.values())


def tests_of(mutant: Mutant) -> list[str]:
    """Where a test may notice it, the likeliest first: doctests, the tests of the same module, of the folder, and others."""
    folder = "tests" if mutant.folder == TOP else f"tests/{mutant.folder}"
    mirror = f"{folder}/test_{Path(mutant.file).stem}.py"
    places = [mutant.file, mirror, *([] if mutant.folder == TOP else [folder]), *FOLDERS[mutant.folder][1]]
    return [place for place in dict.fromkeys(places) if (ROOT / place).exists()]


def statement(mutant: Mutant) -> range:
    """The lines of the statement with the mutant; of a function whose arguments have it, those of its body."""
    text = (ROOT / mutant.file).read_bytes()
    line = text[: mutant.start].count(b"\n") + 1
    inner: Any = None
    for node in ast.walk(ast.parse(text)):  # from the outside to the inside
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or line):
            inner = node
    if isinstance(inner, ast.FunctionDef) or not hasattr(inner, "body"):
        return range(inner.lineno + isinstance(inner, ast.FunctionDef), inner.end_lineno + 1)
    return range(inner.lineno, inner.body[0].lineno)


def reaching(mutant: Mutant, reached: Reached) -> list[str]:
    """The quick tests that reach the mutant, the quickest first."""
    lines = reached.lines.get(mutant.file, {})
    tests = {test for line in statement(mutant) for test in lines.get(str(line), [])}
    return sorted(tests, key=reached.seconds.__getitem__)


def caught(mutant: Mutant, place: Path, likely: list[str], slow_test: str = "") -> str:
    """The first test that fails with the mutant in a copy of the project; empty if none does.

    Args:
      likely: the tests that reach it, which are run before the others: with a mutant in what tests share, another may fail.
      slow_test: a slow test that is run instead of the quick ones.
    """
    for tests in [[slow_test]] if slow_test else [likely, tests_of(mutant)]:
        by = failing(mutant, place, tests if slow_test else ["-m", "not slow", *tests]) if tests else ""
        if by:
            return by
    return ""


def failing(mutant: Mutant, place: Path, tests: list[str]) -> str:
    """The first of these tests that fails."""
    file = place / mutant.file
    original = file.read_bytes()
    file.write_bytes(original[: mutant.start] + mutant.new.encode() + original[mutant.end :])
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(place), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command += tests
    try:
        run = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return "timeout"
    finally:
        file.write_bytes(original)
    if run.returncode == 0:
        return ""
    unimportable = run.returncode == 4 and "conftest" in run.stdout + run.stderr
    if run.returncode not in (1, 2) and not unimportable:  # failed tests, or a module that cannot be imported
        raise RuntimeError(f"pytest ended with exit code {run.returncode}:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0][:150] if failed else f"exit code {run.returncode}"


def copies(number: int, directory: Path) -> queue.Queue[Path]:
    """Copies of the project's tracked files, for tests that run at the same time."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    free: queue.Queue[Path] = queue.Queue()
    for i in range(number):
        for name in filter(None, tracked.split("\0")):
            target = directory / str(i) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        free.put(directory / str(i))
    return free


def table(rows: list[dict[str, str]]) -> str:
    """Per folder: drawn, equivalent, caught, survived."""
    lines = ["| folder | drawn | equivalent | caught | survived |", "|---|---|---|---|---|"]
    for folder in dict.fromkeys(row["folder"] for row in rows):
        verdicts = [row["verdict"] for row in rows if row["folder"] == folder]
        counts = [len(verdicts), *(verdicts.count(one) for one in ("equivalent", "caught", "survived"))]
        lines.append(f"| {folder} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def main() -> None:
    """Tries the mutants and prints what caught each; exit code 1 if too few were caught in a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="mutants tried at the same time")
    parser.add_argument("--folders", nargs="+", choices=FOLDERS, default=list(FOLDERS))
    parser.add_argument("--number", type=int, help="of mutants in each folder")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    parser.add_argument("--output_dir", type=Path, default=ROOT / "results" / "mutants")
    flags = parser.parse_args()
    mutants = [m for f in flags.folders for m in drawn(f, flags.number or FOLDERS[f][0], flags.seed)]
    if flags.list:
        return print("\n".join(mutant.name for mutant in mutants))
    known = json.loads(Path(__file__).with_suffix(".json").read_text())
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    flags.output_dir.mkdir(parents=True, exist_ok=True)
    record = flags.output_dir / f"{commit}.jsonl"
    before = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    done = {row["name"]: row for row in before}
    with tempfile.TemporaryDirectory() as directory:
        free = copies(flags.jobs, Path(directory))
        reached = recorded(Path(directory) / "0", record.with_suffix(".reached.json"), flags.jobs)

        def run(mutant: Mutant) -> dict[str, str]:
            if mutant.name in done:
                return done[mutant.name]
            place, began, about = free.get(), time.perf_counter(), known.get(mutant.name, {})
            try:
                equivalent, slow_test = "equivalent" in about, about.get("slow test", "")
                by = "" if equivalent else caught(mutant, place, reaching(mutant, reached), slow_test)
            finally:
                free.put(place)
            verdict = "equivalent" if equivalent else "caught" if by else "survived"
            row = {"folder": mutant.folder, "name": mutant.name, "verdict": verdict, "by": by}
            print(f"{time.perf_counter() - began:4.0f} s  {mutant.name}\n        {verdict} {by}", flush=True)
            with record.open("a") as file:
                file.write(json.dumps(row) + "\n")
            return row

        with ThreadPoolExecutor(flags.jobs) as pool:
            rows = list(pool.map(run, mutants))
    print(table(rows))
    for folder in flags.folders:
        counted = [row["verdict"] == "caught" for row in rows if row["folder"] == folder and row["verdict"] != "equivalent"]
        if sum(counted) < WANTED * len(counted):
            sys.exit(f"{folder}: {sum(counted)} of {len(counted)} caught; {WANTED:.0%} are wanted.")


if __name__ == "__main__":
    main()

"""The examples and notebooks of docs/ run, on small settings."""

import importlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLES = sorted(path.stem for path in (DOCS / "examples").glob("*.py"))


def example(name):
    return importlib.import_module(f"docs.examples.{name}")


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_short(name):
    lines = (DOCS / "examples" / f"{name}.py").read_text().splitlines()
    assert len(lines) < 60
    assert f"python -m docs.examples.{name}" in lines[2]


def test_learning_rate_in_real_time():
    history = example("learning_rate_in_real_time").main(epochs=3, train=1_000)
    assert history.trajectories["learning_rate"][-1] > 1e-4


def test_clean_labels():
    assert example("clean_labels").main(train=200, iterations=3, hidden=5) >= 0


def test_weight_decay_per_layer():
    found = example("weight_decay_per_layer").main(train=200, steps=20, iterations=3)
    assert found.result.best.value < found.result.history[0]["value"]


def test_schedule():
    result = example("schedule").main(steps=10, iterations=4)
    assert result.best.value < result.history[0]["value"]
    assert np.ptp(result.best.hypers["schedule"]) > 0


def test_own_dynamics(capsys):
    result = example("own_dynamics").main(steps=10, iterations=5)
    assert result.best.value < result.history[0]["value"]
    assert "WRONG" not in capsys.readouterr().out


def test_own_constraint():
    shares = example("own_constraint").main(iterations=30).hypers["shares"].numpy()
    assert shares.sum() == pytest.approx(1.0)
    assert shares.min() >= 0.05
    assert shares[:2].sum() > 0.6  # the good sources


def test_every_example_is_run_by_a_test():
    assert {f"test_{name}" for name in EXAMPLES} <= set(globals())


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((DOCS / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    text = path.read_text()
    small = {
        "TRAIN, EPOCHS = 10_000, 5": "TRAIN, EPOCHS = 500, 1",
        "TRAIN, ITERATIONS = 5_000, 20": "TRAIN, ITERATIONS = 300, 3",
    }
    for setting, smaller in small.items():
        text = text.replace(setting, smaller)
    assert text != path.read_text(), "the notebook has no settings that the test can make small"
    notebook = nbformat.reads(text, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    ).execute(env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})


@pytest.mark.parametrize("path", sorted((DOCS / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_kept_without_output(path):
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)

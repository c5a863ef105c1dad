"""The examples and notebooks in docs/ run, on small settings."""

import importlib
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from rfho2.core.compiled import Compiled

DOCS = Path(__file__).parents[1] / "docs"
SHARED = ("cross_validation",)
EXAMPLES = sorted(path.stem for path in (DOCS / "examples").glob("*.py") if path.stem not in SHARED)
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
SMALL = {  # settings of the notebooks, and those that the test puts in their place
    "TRAIN, EPOCHS = 10_000, 5": "TRAIN, EPOCHS = 500, 1",
    "TRAIN, ITERATIONS = 5_000, 20": "TRAIN, ITERATIONS = 300, 3",
}


@pytest.fixture(autouse=True)
def plain_graphs(monkeypatch):
    """On these settings, XLA would compile for longer than the examples run."""
    init = Compiled.__init__
    monkeypatch.setattr(Compiled, "__init__", lambda self, function, *_, **__: init(self, function, False))


def example(name):
    return importlib.import_module(f"docs.examples.{name}")


def test_examples_are_short_and_give_their_command():
    for name in EXAMPLES:
        lines = (DOCS / "examples" / f"{name}.py").read_text().splitlines()
        assert len(lines) <= 60, name
        assert f"python -m docs.examples.{name}" in lines[2], name


@pytest.mark.slow
def test_learning_rate_in_real_time():
    history = example("learning_rate_in_real_time").main(epochs=3, train=250)
    assert history.trajectories["learning_rate"][-1] > 1e-4


@pytest.mark.slow
def test_keras_schedule():
    tuned, history = example("keras_schedule").main(steps=20, iterations=2, epochs=1)
    assert len(tuned.hypers["learning_rate"]) == 6
    assert len(history.history["val_accuracy"]) == 1


AS_KERAS_IO = {
    "keras_text": 320,
    "keras_segmentation": 128,
    "keras_vae": 320,
    "keras_structured": 320,
    "keras_fine_tuning": 320,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("error:.*could not be checked")
@pytest.mark.parametrize(("name", "train"), AS_KERAS_IO.items())
def test_programs_as_keras_io_writes_them(name, train, capsys):
    history = example(name).main(epochs=2, train=train).history
    assert history["val_loss"][-1] < 1.05 * history["val_loss"][0]
    assert "Trying" in capsys.readouterr().out


@pytest.mark.slow
def test_clean_labels(tmp_path):
    picture = tmp_path / "suspects.png"
    assert example("clean_labels").main(train=200, iterations=3, hidden=5, picture=str(picture)) >= 0
    assert picture.stat().st_size > 1000


@pytest.mark.slow
def test_weight_decay_per_layer():
    tuned = example("weight_decay_per_layer").main(train=200, steps=20, iterations=3)
    assert tuned.result.best.value < tuned.result.history[0]["value"]


def test_schedule():
    result = example("schedule").main(steps=10, iterations=4)
    assert result.best.value < result.history[0]["value"]
    assert np.ptp(result.best.hypers["schedule"]) > 0


@pytest.mark.slow
def test_own_dynamics(capsys):
    result = example("own_dynamics").main(steps=10, iterations=5)
    assert result.best.value < result.history[0]["value"]
    assert "WRONG" not in capsys.readouterr().out


def test_own_constraint():
    shares = example("own_constraint").main(iterations=30).hypers["shares"].numpy()
    assert shares.sum() == pytest.approx(1.0)
    assert shares.min() >= 0.05
    assert shares[:2].sum() > 0.6  # the clean sources


@pytest.mark.slow
def test_data_mixture(capsys):
    result = example("data_mixture").main(steps=8, window=4, trials=2, count=16, scarce=4)
    assert result.hypers["mixture"].numpy().sum() == pytest.approx(1.0)
    assert "best of 2 random mixtures" in capsys.readouterr().out


@pytest.mark.slow
def test_penalty_per_feature(capsys):
    example("penalty_per_feature").main(iterations=30, splits=1)
    scores = dict(re.findall(r"5 of 100 features matter, (.*): test r2 ([\d.]+)", capsys.readouterr().out))
    assert float(scores["a penalty for each"]) > float(scores["one penalty"])


@pytest.mark.slow
def test_logistic_per_feature(capsys):
    example("logistic_per_feature").main(iterations=30, splits=1)
    scores = dict(re.findall(r"5 of 100 features matter, (.*): test neg_log_loss ([-\d.]+)", capsys.readouterr().out))
    assert float(scores["a penalty for each"]) > float(scores["L2"])


@pytest.mark.slow
def test_with_mlflow(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    result = example("with_mlflow").main(3, str(tmp_path))
    (run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    assert run.data.metrics["best"] == pytest.approx(result.best.value)
    assert run.data.params["engine.method"] == "reverse"


@pytest.mark.slow
def test_with_wandb(tmp_path):
    pytest.importorskip("wandb")
    example("with_wandb").main(3, str(tmp_path))
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


@pytest.mark.slow
def test_with_optuna():
    pytest.importorskip("optuna")
    alone, inside = example("with_optuna").main(seconds=1)
    assert inside.best_value < alone.trials[0].value


@pytest.mark.slow
def test_with_keras_tuner(tmp_path):
    pytest.importorskip("keras_tuner")
    tuner, best = example("with_keras_tuner").main(2, 50, 3, str(tmp_path))
    assert tuner.oracle.get_best_trials(1)[0].score == best["val_loss"]
    rates = [trial.metrics.get_best_value("learning_rate") for trial in tuner.oracle.trials.values()]
    assert rates[0] != rates[1], "each candidate has hypers of its own"


def test_every_example_is_run_by_a_test():
    assert {f"test_{name}" for name in set(EXAMPLES) - set(AS_KERAS_IO)} <= set(globals())


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    text = path.read_text()
    for setting, smaller in SMALL.items():
        text = text.replace(setting, smaller)
    assert text != path.read_text(), "the notebook has none of the settings that this test replaces by smaller ones"
    notebook = nbformat.reads(text, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    ).execute(env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})


def test_notebooks_are_stored_without_output():
    for path in NOTEBOOKS:
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        assert cells, path
        assert not any(cell["outputs"] or cell["execution_count"] for cell in cells), path

"""The task-interaction experiment: the regulariser, the methods on a few examples, the report, and the binary resumed."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from data import cifar_features
from data.errors import DataError
from experiments.common import binary as common
from experiments.task_interactions import experiment as interactions
from experiments.task_interactions import models as multitask
from experiments.task_interactions import report

ROOT = Path(__file__).parents[2]
SMALL = interactions.Config(methods=("STL", "HMTL", "HMTL-S"), seeds=(0,), steps=30, hyper_iterations=8, totals=(1e-3,))


def few(seed, per_class=5):
    features = cifar_features.load()
    split = cifar_features.split(features._replace(features=features.features[:, :20]), seed, per_class)
    return split._replace(test=cifar_features.Part(*(part[:500] for part in split.test)))


@pytest.fixture(scope="module")
def outcome():
    return interactions.run(SMALL, few)


def direct(w, c, rho):
    pairs = sum(c[j, k] * np.sum((w[:, j] - w[:, k]) ** 2) for j in range(w.shape[1]) for k in range(w.shape[1]))
    return pairs + np.sum(rho * np.sum(w**2, axis=0))


def test_the_regulariser_is_the_papers():
    rng = np.random.default_rng(0)
    w, c, rho = rng.normal(size=(7, 4)), rng.uniform(size=(4, 4)), rng.uniform(size=4)
    tensors = {"C": tf.constant(c), "rho": tf.constant(rho)}
    np.testing.assert_allclose(multitask.regulariser(tf.constant(w), tensors), direct(w, c, rho), rtol=1e-12)
    equal = {"a": tf.constant(0.3, tf.float64), "rho": tf.constant(0.2, tf.float64)}
    np.testing.assert_allclose(
        multitask.regulariser(tf.constant(w), equal), direct(w, np.full((4, 4), 0.3), 0.2), rtol=1e-12
    )


def test_the_regulariser_never_holds_all_differences():
    """100 tasks of 256 numbers: no tensor of its graph is larger than K^2 + K d."""
    spec = tf.TensorSpec([256, 100]), {"C": tf.TensorSpec([100, 100]), "rho": tf.TensorSpec([])}
    graph = tf.function(multitask.regulariser).get_concrete_function(*spec).graph
    largest = max(out.shape.num_elements() for op in graph.get_operations() for out in op.outputs)
    assert largest <= 100 * 256


@pytest.mark.parametrize("name", multitask.METHODS)
def test_the_hypergradients_are_right(name):
    rng = np.random.default_rng(1)
    parts = [cifar_features.Part(rng.normal(size=(12, 5)), rng.permutation(np.arange(12) % 3)) for _ in range(2)]
    problem = multitask.problem(multitask.Training(8, 0.1, 0.9), *parts, ())
    hypers = {k: np.abs(rng.normal(size=v.shape)) * 0.01 for k, v in multitask.method(name, 3, 1e-3, 1.0).hypers.items()}
    params = {"w": tf.constant(rng.normal(size=(5, 3))), "b": tf.constant(rng.normal(size=3))}
    check = rf.check_hypergradient(problem, params, hypers)
    assert check.ok, check


def test_an_unknown_method():
    with pytest.raises(ValueError, match="'MTL'; choose one of STL"):
        multitask.method("MTL", 10, 1e-3, 1e-3)


def test_there_is_a_row_for_each_method_and_split(outcome):
    assert [row["method"] for row in outcome.results] == list(SMALL.methods)
    for row in outcome.results:
        assert all(0 <= row[key] <= 1 for key in ("validation_accuracy", "accuracy", "accuracy_refit"))
        assert 0 <= row["kept"] < SMALL.hyper_iterations
    assert json.loads(json.dumps(outcome.results)) == outcome.results
    assert set(outcome.interactions) == {("HMTL", 0), ("HMTL-S", 0)}


@pytest.mark.parametrize("total", [None, 1e-3, 1e-5])
def test_c_stays_symmetric_non_negative_and_bounded_at_every_hyper_iteration(total):
    method = multitask.method("HMTL" if total is None else "HMTL-S", 10, 1e-3, total or 1.0)
    seen = []

    class Watch(rf.Callback):
        def on_hyper_iteration(self, k, hypers, hypergradient, extra):
            seen.append(hypers["C"].numpy())

    result = interactions.tune(dataclasses.replace(SMALL, hyper_iterations=15), method, few(1), [Watch()])
    assert len(seen) == 15
    assert np.any(seen[-1] > 0)
    for c in [*seen, result.hypers["C"].numpy()]:
        np.testing.assert_array_equal(c, c.T)
        assert np.all(c >= 0)
        assert total is None or c.sum(dtype=np.float64) <= total * (1 + 4 * np.finfo(np.float32).eps)


def test_the_validation_error_falls_and_the_first_of_the_best_is_kept():
    result = interactions.tune(
        dataclasses.replace(SMALL, hyper_iterations=20), multitask.method("STL", 10, 1e-3, 1.0), few(2)
    )
    assert result.history[-1]["value"] < result.history[0]["value"]
    errors = [row["validation errors"] for row in result.history]
    assert result.best.iteration == int(np.argmin(errors))


def test_learning_rate_and_momentum_can_be_tuned_on_the_training_error():
    config = dataclasses.replace(SMALL, tune_optimizer=True, hyper_iterations=5)
    result = interactions.tune(config, multitask.method("HMTL-S", 10, 1e-3, 1e-3), few(0))
    assert {"value/validation", "value/training"} <= set(result.history[0])
    assert result.hypers["eta"] != config.learning_rate
    assert result.hypers["mu"] != np.float32(config.momentum)
    assert np.isfinite(multitask.accuracy(multitask.refit(config.training, few(0), result.hypers), few(0).test))


def test_a_sweep_has_a_run_for_each_total():
    config = dataclasses.replace(SMALL, methods=("HMTL-S",), totals=(1e-4, 1e-2), hyper_iterations=2, steps=3)
    assert [row["method"] for row in interactions.run(config, few).results] == ["HMTL-S R=0.0001", "HMTL-S R=0.01"]


def rows(**accuracies):
    return [
        {"data": "cifar10, 5 per class", "method": m, "seed": s, "accuracy": a, "accuracy_refit": a + 0.1}
        for m, values in accuracies.items()
        for s, a in enumerate(values)
    ]


def test_differences_are_paired():
    results = rows(STL=[0.5, 0.6, 0.7], NMTL=[0.52, 0.61, 0.72])
    found = report.difference(results[::-1], "NMTL", "STL", "accuracy")
    assert found.mean == pytest.approx(100 * (0.02 + 0.01 + 0.02) / 3)
    half = 4.302653 * np.std([2, 1, 2], ddof=1) / np.sqrt(3)
    assert found.half == pytest.approx(half, rel=1e-5)
    table = report.table(results, ["STL", "NMTL"]).splitlines()
    assert table[2] == "| STL | 60.00 ± 10.00 | 70.00 ± 10.00 | - | - | 67.47 ± 2.78 |"
    assert table[3].endswith("| +1.67 ± 1.43 | +1.67 ± 1.43 | 69.41 ± 1.90 |")


def test_figures_of_several_totals_have_files_of_their_own(tmp_path):
    c = {(f"HMTL-S R={total:g}", 0): np.full((10, 10), total) for total in (1e-4, 1e-3, 0.1)}
    results = [row | {"method": m} for m, _ in c for row in rows(STL=[0.5])]
    report.write(tmp_path, results, c, tuple(map(str, range(10))))
    assert len(list(tmp_path.glob("heat_map_*.png"))) == 3


def test_a_hyper_iteration_takes_the_median_of_its_seconds(outcome):
    assert set(outcome.pace) == {f"{method} seed 0" for method in SMALL.methods}
    assert all(outcome.pace[name] < outcome.timing[name] / 2 for name in outcome.pace), "compiling does not count"
    assert report.speed({"STL seed 0": 1.0, "STL seed 1": 3.0}) == "Seconds per hyper-iteration: STL 2.000."


def test_edges_inside_and_across():
    names = cifar_features.load().class_names
    vehicle = np.isin(names, cifar_features.VEHICLES)
    c = np.where(vehicle[:, None] == vehicle[None], 2.0, 1.0) + 9 * np.eye(10)
    assert report.edges(c, names) == (2.0, 2.0, 1.0)
    text = report.edge_table("HMTL-S", {("HMTL-S", 0): c, ("HMTL-S", 1): np.ones((10, 10))}, names)
    assert "| inside animals | 1.5 | 1 of 2 |" in text


def test_the_report_is_written_with_and_without_names(tmp_path, outcome):
    for names in (cifar_features.load().class_names, tuple(map(str, range(10)))):
        place = tmp_path / names[0]
        place.mkdir()
        report.write(place, outcome.results, outcome.interactions, names)
        assert (place / "table_2.md").read_text().count("\n") == 2 + len(SMALL.methods)
        assert (place / "heat_map_HMTL-S.png").stat().st_size > 1000
        assert (place / "figure_3.png").exists() == (names[0] == "airplane")


FAST = ["--hyper_iterations=4", "--steps=5", "--seeds=0", "--methods=HMTL-S", "--methods=Dinuzzo"]


def run_binary(output, *flags):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "experiments.task_interactions", f"--output_dir={output}", *flags]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def test_the_binary_writes_everything_and_goes_on_from_what_is_there(tmp_path):
    first = run_binary(tmp_path, *FAST)
    assert first.returncode == 0, first.stderr[-2000:]
    place = tmp_path / "cifar10_5_per_class"
    for name in ("table_2.md", "table_4.md", "figure_3.png", "heat_map_HMTL-S.png", "results.json"):
        assert (place / name).stat().st_size > 100, name
    assert "Seconds per hyper-iteration: HMTL-S" in first.stdout
    assert list((place / "runs" / "HMTL-S-split-0" / "tensorboard").iterdir())
    results = json.loads((place / "results.json").read_text())["results"]
    again = run_binary(tmp_path, *FAST)
    assert json.loads((place / "results.json").read_text())["results"] == results
    assert again.stdout.split("Seconds")[0] == first.stdout.split("Seconds")[0]
    lines = (place / "runs" / "HMTL-S-split-0" / "history.csv").read_text().splitlines()
    assert len(lines) == 5


def test_runs_with_other_settings_are_not_taken_for_the_same(tmp_path):
    path = tmp_path / "settings.json"
    common.keep_settings(path, SMALL.settings, resume=True)
    more = dataclasses.replace(SMALL, seeds=(0, 1, 2), methods=("STL",), hyper_iterations=99)
    common.keep_settings(path, more.settings, resume=True)
    other = dataclasses.replace(SMALL, learning_rate=0.05)
    with pytest.raises(DataError, match=r"learning_rate was 0.1 and is 0.05.*another --output_dir, or --noresume"):
        common.keep_settings(path, other.settings, resume=True)
    common.keep_settings(path, other.settings, resume=False)
    assert json.loads(path.read_text())["learning_rate"] == 0.05


def test_cifar_100_without_its_file_is_one_sentence(tmp_path):
    missing = run_binary(tmp_path, "--dataset=cifar100", *FAST)
    assert missing.returncode == 1
    assert "not distributed" in missing.stderr
    assert "--dataset=cifar10" in missing.stderr
    assert "Traceback" not in missing.stderr


def test_cifar_100_where_it_is(tmp_path):
    path = os.environ.get("RFHO2_CIFAR100_FEATURES")
    if not path:
        pytest.skip("RFHO2_CIFAR100_FEATURES is not set")
    config = interactions.Config("cifar100", ("HMTL-S",), (0,), 3, steps=3, hyper_iterations=2, source="file")
    features = cifar_features.find("cifar100", "file")
    found = interactions.run(config, lambda seed: cifar_features.split(features, seed, 3))
    assert found.interactions["HMTL-S", 0].shape == (100, 100)
    assert found.results[0]["accuracy"] > 0.1

"""The phone classification experiment: in this process on random frames, and the binary on a few synthetic sentences."""

import dataclasses
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from data.speech import timit
from experiments.phone_classification import experiment as phones
from experiments.phone_classification import network as phone_network
from experiments.phone_classification import report as phone_report
from experiments.phone_classification.methods import Bench, Training
from tests.support.corpora import tiny_corpus

ROOT = Path(__file__).parents[2]
SMALL = phones.Config(
    width=8, layers=1, batch_size=50, hyper_batch=5, hyper_rate=0.02, validation_size=60, steps=30, plain_factor=2,
    methods=phones.ALL, folds=(0, 1), seeds=(0,),
)  # fmt: skip


def speech(fold):
    corpus = tiny_corpus()
    return phone_network.speech(corpus, timit.split(corpus.utterances, fold), dimension=5)


@pytest.fixture(scope="module", autouse=True)
def _plain_graphs():
    """Compiling with XLA would take longer than all the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phones, "Bench", functools.partial(Bench, jit_compile=False))
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("phones")


@pytest.fixture(scope="module")
def records(place):
    return phones.run(SMALL, speech, lambda title, directory: (), place)


def test_a_record_for_each_method_on_each_fold(records):
    assert [(r["method"], r["fold"], r["seed"]) for r in records] == [(m, f, 0) for f in (0, 1) for m in phones.ALL]
    for record in records:
        assert 0 <= record["accuracy"] <= 1
        assert 0 <= record["last_accuracy"] <= 1
        assert record["validation_accuracy"] == max(row["validation accuracy"] for row in record["curve"])
        assert record["steps"] == record["curve"][-1]["steps"]


def test_finished_methods_are_read_back(records, place, monkeypatch):
    monkeypatch.setattr(phones, "run_method", lambda *args: pytest.fail("it is finished"))
    assert phones.run(SMALL, speech, lambda title, directory: (), place) == records


def test_no_method_looks_at_the_test_speakers(records, tmp_path):
    """With every test frame and label replaced, everything but the test accuracies is the same."""

    def other(fold):
        data = speech(fold)
        features, states, test = data.features.numpy(), data.states.numpy(), data.test.numpy()
        features[test] = -features[test] + 3.0
        states[test] = (states[test] + 7) % 183
        return data._replace(features=tf.constant(features), states=tf.constant(states))

    config = dataclasses.replace(SMALL, folds=(1,))
    changed = []
    for record in phones.run(config, other, lambda title, directory: (), tmp_path):
        (before,) = [r for r in records if (r["method"], r["fold"]) == (record["method"], 1)]
        for name in ("validation_accuracy", "last_validation_accuracy", "steps", "eta", "mu", "rho"):
            assert record[name] == before[name]
        changed.append(record["accuracy"] != before["accuracy"])
    assert len(changed) == len(phones.ALL)
    assert any(changed)


def test_the_tables_have_the_papers_columns(records):
    lines = phone_report.table_3(records).splitlines()
    assert lines[0].startswith("| method | runs | best state % | last state % |")
    assert lines[2].startswith("| Vanilla | 2 |")
    assert lines[2].endswith("| 59.81 | 12 |")
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == list(phones.ALL)
    on_the_way = phone_report.table_5(records, SMALL).splitlines()
    assert on_the_way[-1].endswith("| 56.51 | 60.91 | 62.11 |")
    compared = phone_report.comparisons(records).splitlines()
    assert len(compared) == 2 + len(phone_report.COMPARISONS)


def test_what_was_found_within_a_part_of_the_budget():
    curve = [{"steps": 10 * i, "seconds": float(i), "validation accuracy": a} for i, a in ((1, 0.1), (2, 0.4), (3, 0.3))]
    assert phone_report.best_until(curve, "steps", 10) == 0.1
    assert phone_report.best_until(curve, "seconds", 3.0) == 0.4
    assert phone_report.best_until(curve, "steps", 5) == 0.0


def test_compiling_does_not_count_as_time():
    curve = [{"seconds": seconds} for seconds in (30.0, 36.0, 42.0, 54.0)]
    assert phone_report.minutes(curve) == pytest.approx((6 + 6 + 12 + 6) / 60)
    assert phone_report.minutes([]) == 0.0


def test_differences_are_paired_and_folds_count_once():
    def row(method, fold, seed, accuracy):
        return {"method": method, "fold": fold, "seed": seed, "accuracy": accuracy, "last_accuracy": accuracy - 0.1}

    more = np.array([[0.01, 0.03], [0.00, 0.08]])  # of RTHO, by fold and seed: folds have means of 2 and 4 points
    records = [row("Vanilla", f, s, 0.3 + 0.1 * f + 0.02 * s) for f in range(2) for s in range(3)]
    records += [row("RTHO", f, s, 0.3 + 0.1 * f + 0.02 * s + more[f, s]) for f in range(2) for s in range(2)]
    pairs = phone_report._pairs(records, "RTHO", "Vanilla")
    assert len(pairs) == 4
    found = phone_report.difference(pairs, "accuracy", "accuracy")
    assert found.mean == pytest.approx(3.0)
    assert found.half == pytest.approx(12.706 * np.sqrt(2) / np.sqrt(2), rel=1e-4)
    assert phone_report.difference(pairs, "last_accuracy", "accuracy").mean == pytest.approx(-7.0)
    assert "| RTHO, last | Vanilla, best | -7.00" in phone_report.comparisons(records)


def binary(output: Path, *arguments: str) -> subprocess.CompletedProcess:
    small = [f"--{name}={value}" for name, value in dataclasses.asdict(SMALL).items() if name in vars(Training())]
    where = [f"--output_dir={output / 'out'}", f"--cache_dir={output / 'speech'}"]
    command = [sys.executable, "-m", "experiments.phone_classification", *small, *where, *arguments]
    return subprocess.run(
        [a for a in command if not a.endswith("=None")], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )  # fmt: skip


def test_the_binary_from_synthetic_speech_to_tables(tmp_path):
    done = binary(tmp_path, "--speakers=4", "--sentences=2", "--methods=Vanilla", "--methods=RTHO-NT")
    assert done.returncode == 0, done.stderr[-2000:]
    output = tmp_path / "out"
    content = json.loads((output / "results.json").read_text())
    assert [row["method"] for row in content["results"]] == ["Vanilla", "RTHO-NT"]
    assert not any("seconds" in row for row in content["results"])
    assert "whole run" in content["timing"]
    for name in ("table_3.md", "table_5.md", "figure_4.png", "figure_4.pdf"):
        assert (output / name).stat().st_size > 100
    assert len((output / "runs" / "RTHO-NT_fold_0_seed_0" / "history.csv").read_text().splitlines()) == 1 + 6
    assert list(output.glob("runs/*/tensorboard/*"))


@pytest.mark.parametrize(
    ("flag", "said"), [("--corpus=nowhere", "nowhere is not a folder"), ("--seeds=0,one", "--seeds is '0,one'")]
)
def test_what_cannot_be_used_is_one_sentence(tmp_path, flag, said):
    done = binary(tmp_path, flag)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr

"""Every method on random frames: records, resuming, and that no method sees the test speakers."""

import dataclasses
import functools

import pytest
import tensorflow as tf

from experiments.phone_classification import experiment
from experiments.phone_classification.config import METHODS, Config
from experiments.phone_classification.methods import Trainer
from tests.support.devices import same_bits
from tests.support.phones import tiny_speech

ALL = Config(
    width=8, layers=1, batch_size=50, hyper_batch=5, hyper_rate=0.02, validation_size=60, steps=15, plain_factor=2,
    methods=METHODS, folds=(1,), seeds=(0,),
)  # fmt: skip
TWO_FOLDS = dataclasses.replace(ALL, methods=("Vanilla",), folds=(0, 1))


def watch(title, directory):
    return ()


@pytest.fixture(scope="module", autouse=True)
def _plain_graphs():
    """Compiling with XLA would take longer than all the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "Trainer", functools.partial(Trainer, jit_compile=False))
        yield


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("phones")


@pytest.fixture(scope="module")
def records(output):
    return experiment.run(ALL, tiny_speech, watch, output)


@pytest.mark.slow
def test_each_method_has_a_record(records):
    assert [(r["method"], r["fold"], r["seed"]) for r in records] == [(method, 1, 0) for method in METHODS]
    for record in records:
        assert 0 <= record["accuracy"] <= 1
        assert 0 <= record["last_accuracy"] <= 1
        assert record["validation_accuracy"] == max(row["validation accuracy"] for row in record["curve"])
        assert record["steps"] == record["curve"][-1]["steps"]


@pytest.mark.slow
def test_only_what_is_missing_is_run(records, output, monkeypatch):
    made, run_method = [], experiment.run_method
    monkeypatch.setattr(experiment, "run_method", lambda *args: made.append(args[3]) or run_method(*args))
    assert experiment.run(ALL, tiny_speech, watch, output) == records
    assert made == []
    other, first = experiment.run(TWO_FOLDS, tiny_speech, watch, output)
    assert made == ["Vanilla, fold 0, seed 0"]
    assert first == records[0]
    assert (other["method"], other["fold"]) == ("Vanilla", 0)


@pytest.mark.slow
@same_bits
def test_no_method_looks_at_the_test_speakers(records, tmp_path):
    """With every test frame and label replaced, everything but the test accuracies is the same."""

    def changed_speech(fold):
        data = tiny_speech(fold)
        features, states, test = data.features.numpy(), data.states.numpy(), data.test.numpy()
        features[test] = -features[test] + 3.0
        states[test] = (states[test] + 7) % 183
        return data._replace(features=tf.constant(features), states=tf.constant(states))

    changed = experiment.run(ALL, changed_speech, watch, tmp_path)
    for before, after in zip(records, changed, strict=True):
        for name in ("method", "validation_accuracy", "last_validation_accuracy", "steps", "eta", "mu", "rho"):
            assert after[name] == before[name], (before["method"], name)
    assert any(after["accuracy"] != before["accuracy"] for before, after in zip(records, changed, strict=True))

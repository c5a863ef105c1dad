"""Weights learned online on few digits: the loss, the protocol, the rows and the report."""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from experiments.common import networks, study
from experiments.data_hyper_cleaning import experiment as cleaning
from experiments.online_weights import experiment
from experiments.online_weights.experiment import ONLINE, Config, detection
from experiments.online_weights.report import STUDY
from tests.support.digits import few_digits

TINY = Config(hidden=8, batch_size=32, epochs=10, learning_rates=(0.1,), hyper_batches=(8,), hyper_rates=(0.2,), seeds=(0,))


def test_each_weight_multiplies_the_loss_of_its_own_digit():
    p = networks.layers((784, 4, 10), np.random.default_rng(0))
    images, labels = (part[:6] for part in few_digits().train)
    numbers = tf.constant([5, 0, 3, 1, 2, 9])
    each = experiment.cross_entropies(p, images, labels).numpy()
    for place, number in enumerate(numbers.numpy()):
        loss = experiment.loss(p, {"weights": tf.one_hot(number, 10)}, (images, labels, numbers))
        assert float(loss) == pytest.approx(each[place] / 6)


def test_detection_counts_wrong_labels_among_the_low_weights():
    noisy = np.array([True, True, True, False, False])
    f1, of_zeros = pytest.approx(2 * 2 / (3 + 3)), pytest.approx(2 / (2 + 3))
    expected = {"F1": f1, "F1 of zeros": of_zeros, "doubted": 3, "zeros": 2}
    assert detection(np.array([0.0, 0.4, 0.5, 0.0, 1.0]), noisy) == expected


def test_calibration_takes_the_lowest_validation_errors_and_does_not_look_for_wrong_labels(tmp_path, monkeypatch):
    """The learning rate by the best state of plain training, the hypers by the last one of training online."""

    class Fake:
        def __init__(self, config, data, rate, seed):
            assert seed in (0, 7)
            self.data, self.rate = data, rate

        def held(self, weights, name, directory):
            assert np.all(weights == 1)
            return types.SimpleNamespace(best=types.SimpleNamespace(value=abs(self.rate - 0.3)))

        def online(self, unit, name, directory, detect):
            assert not detect
            assert self.rate == 0.3
            value = abs(unit.hyper_batch - 5) + abs(unit.hyper_rate - 0.2)
            return types.SimpleNamespace(history=[{"value": 0.0}, {"value": value}])

    monkeypatch.setattr(experiment, "Trainer", Fake)
    monkeypatch.setattr(experiment, "compare", lambda unit, *rest: [{"method": ONLINE, "seed": unit.seed}])
    monkeypatch.setattr(cleaning, "load", lambda source, seed: few_digits())
    config = Config(
        learning_rates=(0.1, 0.3, 1.0), hyper_batches=(2, 5), hyper_rates=(0.1, 0.2), calibration_seed=7, seeds=(0,)
    )
    *tried, last = study.rows_of(STUDY, config, tmp_path)
    assert (last["learning rate"], last["hyper-batch"], last["hyper-rate"]) == (0.3, 5, 0.2)
    assert [row["step"] for row in tried] == [1] * 3 + [2] * 4
    text = STUDY.tables(config, [*tried, last], tmp_path)["calibration.md"]
    assert "| 2 | hyper-batch 5, hyper-rate 0.2, chosen | 0.000 |" in text
    assert text.count("chosen") == 2


def test_fits_add_the_digits_that_were_kept_to_the_validation_digits(tmp_path, monkeypatch):
    data, trained = few_digits(), {}

    class Fake:
        problem = types.SimpleNamespace(dynamics=types.SimpleNamespace(params=lambda state: state))

        def __init__(self, split):
            self.split = split

        def held(self, weights, name, directory):
            assert np.all(weights == 1)
            assert len(weights) == len(self.split.train.labels)
            trained[name] = self.split.train
            return types.SimpleNamespace(state=None)

    monkeypatch.setattr(experiment, "accuracy", lambda params, digits: 0.5)
    weights = np.where(np.arange(200) < 30, 0.5, 0.4)
    assert dict(experiment.fits(Fake, data, weights, tmp_path)) == dict.fromkeys(trained, 0.5)
    assert [len(digits.labels) for digits in trained.values()] == [400, 430, 500]
    np.testing.assert_array_equal(trained[experiment.KEPT].labels[:30], data.train.labels[:30])
    np.testing.assert_array_equal(trained[experiment.RIGHT].images[:100], data.train.images[~data.noisy])


@pytest.mark.slow
def test_wrong_labels_lose_their_weight_in_one_training(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "fits", lambda *args: ())
    digits = functools.partial(few_digits, train=256)  # 16 x 16, which keeps the graph of the permutation small
    monkeypatch.setattr(cleaning, "load", lambda source, seed: digits(seed))
    for module, name in ((rf, "real_time"), (experiment, "plain_training")):
        monkeypatch.setattr(module, name, functools.partial(getattr(module, name), jit_compile=False))
    results = study.rows_of(STUDY, TINY, tmp_path)
    rows = {row["method"]: row for row in results[0]["compared"]}
    assert list(rows) == [ONLINE, experiment.ONES, experiment.ORACLE, experiment.AGAIN]
    wrong, right = (rows[ONLINE]["history"][f"mean weight, {which}"] for which in ("wrong", "right"))
    assert wrong[0] == right[0] == 0.5
    assert wrong[-1] < 0.4 < 0.5 < right[-1]
    assert rows[ONLINE]["F1"] > 0.72, "to doubt every digit would give 0.67"
    assert rows[ONLINE]["validation error"] < rows[experiment.ONES]["validation error"]
    assert np.sum(rows[ONLINE]["weights"], 1).tolist() == [128, 128]
    assert study.write(STUDY, TINY, results, tmp_path).count("| learned online |") == 1
    assert (tmp_path / "online_weights.png").stat().st_size > 10_000

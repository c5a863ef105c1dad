"""Weights learned online on few digits: the loss, the protocol, the rows and the report."""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf

from experiments.common import networks
from experiments.online_weights import experiment, report
from experiments.online_weights.experiment import ONLINE, Choice, Config, calibrate, detection, run
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
    found = detection(np.array([0.0, 0.4, 0.5, 0.0, 1.0]), noisy)
    assert found == {
        "F1": pytest.approx(2 * 2 / (3 + 3)),
        "F1 of zeros": pytest.approx(2 / (2 + 3)),
        "doubted": 3,
        "zeros": 2,
    }


def test_calibration_takes_the_lowest_validation_errors_and_does_not_look_for_wrong_labels(monkeypatch):
    """The learning rate by the best state of plain training, the hypers by the last one of training online."""

    class Fake:
        def __init__(self, config, data, rate, seed, *rest):
            assert seed == 7
            self.rate = rate

        def held(self, weights, name):
            assert np.all(weights == 1)
            return types.SimpleNamespace(best=types.SimpleNamespace(value=abs(self.rate - 0.3)))

        def online(self, steps, rate, name, detect):
            assert not detect
            assert self.rate == 0.3
            return types.SimpleNamespace(history=[{"value": 0.0}, {"value": abs(steps - 5) + abs(rate - 0.2)}])

    monkeypatch.setattr(experiment, "Trainer", Fake)
    config = Config(learning_rates=(0.1, 0.3, 1.0), hyper_batches=(2, 5), hyper_rates=(0.1, 0.2), calibration_seed=7)
    choice, tried = calibrate(config, few_digits(), None, None)
    assert choice == Choice(0.3, 5, 0.2)
    assert len(tried) == 3 + 4
    outcome = experiment.Outcome(choice, tried, [], {}, {})
    assert "| 2 | hyper-batch 5, hyper-rate 0.2, chosen | 0.000 |" in report.calibration_table(outcome)


def test_fits_add_the_digits_that_were_kept_to_the_validation_digits(monkeypatch):
    data, trained = few_digits(), {}

    class Fake:
        problem = types.SimpleNamespace(dynamics=types.SimpleNamespace(params=lambda state: state))

        def __init__(self, split):
            self.split = split

        def held(self, weights, name):
            assert np.all(weights == 1)
            assert len(weights) == len(self.split.train.labels)
            trained[name] = self.split.train
            return types.SimpleNamespace(state=None)

    monkeypatch.setattr(experiment, "accuracy", lambda params, digits: 0.5)
    weights = np.where(np.arange(200) < 30, 0.5, 0.4)
    assert dict(experiment.fits(Fake, data, weights)) == dict.fromkeys(trained, 0.5)
    assert [len(digits.labels) for digits in trained.values()] == [400, 430, 500]
    np.testing.assert_array_equal(trained[experiment.KEPT].labels[:30], data.train.labels[:30])
    np.testing.assert_array_equal(trained[experiment.RIGHT].images[:100], data.train.images[~data.noisy])


@pytest.mark.slow
def test_wrong_labels_lose_their_weight_in_one_training(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "fits", lambda *args: ())
    digits = functools.partial(few_digits, train=256)  # 16 x 16, which keeps the graph of the permutation small
    outcome = run(TINY, digits, tmp_path, jit_compile=False)
    rows = {row["method"]: row for row in outcome.rows}
    assert list(rows) == [ONLINE, experiment.ONES, experiment.ORACLE, experiment.AGAIN]
    first, last = (outcome.histories[ONLINE, 0][i] for i in (0, -1))
    assert first["mean weight, wrong"] == first["mean weight, right"] == 0.5
    assert last["mean weight, wrong"] < 0.4 < 0.5 < last["mean weight, right"]
    assert rows[ONLINE]["F1"] > 0.72, "to doubt every digit would give 0.67"
    assert rows[ONLINE]["validation error"] < rows[experiment.ONES]["validation error"]
    assert outcome.weights[0].shape == (256,)
    table = report.write(tmp_path, TINY, outcome, digits(0))
    assert table.count("| learned online |") == 1
    assert (tmp_path / "online_weights.png").stat().st_size > 10_000

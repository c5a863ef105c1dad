"""The other binaries, on tiny settings."""

from data import mnist
from experiments.data_hyper_cleaning import experiment as cleaning
from experiments.data_hyper_cleaning import settings_study as settings
from experiments.real_time_digits import experiment as digits


def few(source="embedded", seed=0):
    split = mnist.noisy_split(mnist.load(), seed, train=200, validation=500)
    return split._replace(test=mnist.Digits(split.test.images[:100], split.test.labels[:100]))


def test_real_time_digits_leaves_the_null_teacher(tmp_path):
    config = digits.Config(hidden=5, hyper_batch=3, hyper_iterations=4)
    result = digits.run(config, few(), (), tmp_path / "checkpoints")
    first, last = result.history[0], result.history[-1]
    assert (first["lr"], first["mu"], first["l2"]) == (0.0, 0.0, 0.0)
    assert last["lr"] > 0
    assert last["value"] < first["value"]
    digits.draw(result.history, config, tmp_path / "curves")
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_the_settings_study_runs_each_setting_once(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "VARIED", {"steps": (2, 3), "hyper_rate": (0.02, 0.05)})
    monkeypatch.setattr(settings, "RADIUS", 40.0)
    monkeypatch.setattr(cleaning, "load", few)
    base = cleaning.Config(steps=3, hyper_iterations=3)
    curves, timing = settings.run(base, tmp_path, resume=True)
    assert set(curves) == {("steps", 2), ("steps", 3), ("hyper_rate", 0.02), ("hyper_rate", 0.05)}
    assert len(timing) == 3
    assert curves["steps", 3] == curves["hyper_rate", 0.02]
    settings.draw(curves, base, tmp_path / "settings")
    assert (tmp_path / "settings.png").stat().st_size > 1000

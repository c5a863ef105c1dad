"""The study of the settings of hyper-cleaning, with few settings and few digits."""

import functools

import pytest

import rfho2 as rf
from experiments.data_hyper_cleaning import experiment as cleaning
from experiments.data_hyper_cleaning import settings_study as study
from tests.support.digits import few_digits


@pytest.mark.slow
def test_each_setting_runs_once(tmp_path, monkeypatch):
    monkeypatch.setattr(rf, "reverse", functools.partial(rf.reverse, jit_compile=False))
    monkeypatch.setattr(study, "VARIED", {"steps": (2, 3), "hyper_rate": (0.02,)})
    monkeypatch.setattr(study, "RADIUS", 40.0)
    monkeypatch.setattr(cleaning, "load", lambda source, seed: few_digits(seed))
    base = cleaning.Config(steps=3, hyper_iterations=3)
    curves, timing = study.run(base, tmp_path, resume=True)
    assert set(curves) == {("steps", 2), ("steps", 3), ("hyper_rate", 0.02)}
    assert len(timing) == 2, "the default of both settings runs once"
    assert curves["steps", 3] == curves["hyper_rate", 0.02]
    study.draw(curves, base, tmp_path / "settings")
    assert (tmp_path / "settings.png").stat().st_size > 1000

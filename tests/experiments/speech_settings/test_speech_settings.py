"""Settings of real time on speech: what is run, what is chosen, and each way to train."""

import dataclasses
import json

import pytest

from experiments.common import study
from experiments.common.tables import distinct, where
from experiments.speech_settings import experiment, report, ways
from experiments.speech_settings.experiment import CHOSEN, Config
from experiments.speech_settings.ways import DEFAULT, PAPER, PLAIN, TUNED, RealTime
from tests.support.phones import TINY, tiny_speech


def fake(unit, output):
    settings = unit.settings and unit.settings._asdict()
    score = 0.3 + (0.01 if unit.settings == RealTime(50, True, 0.99, 0.02) else 0.001 * (len(unit.way) % 5))
    keys = ("accuracy", "last_accuracy", "validation_accuracy", "last_validation_accuracy")
    curve = {"steps": [20, 40], "eta": [0.1, 0.2], "validation accuracy": [0.1, 0.2]}
    about = {key: value for key, value in unit._asdict().items() if key not in ("cache_dir", "steps")}
    row = {
        "unit": unit.name,
        **about,
        "settings": settings,
        "steps": unit.steps,
        "budget": unit.steps,
        "seconds": 1.0,
        "frames": 100 * unit.speakers,
    }
    return row | dict.fromkeys(keys, score) | {"curve": curve}


def test_the_grid_chooses_by_validation_and_everything_is_reported(tmp_path):
    config = Config(corpus="sample")
    rows = study.rows_of(report.STUDY._replace(compute=fake), config, tmp_path)
    results = experiment.results(config, rows)
    assert len(where(results, part="grid")) == 2 * 2 * 3 * 4 * 3
    assert experiment.choose(where(results, part="grid"))[False] == RealTime(50, True, 0.99, 0.02)
    assert set(distinct(where(results, part="sample"), "way")) == {*PLAIN, *TUNED, *CHOSEN.values()}
    sizes = {(16, 1000), (64, 1000), (256, 1000), (256, 4000)}
    assert set(distinct(where(results, part="sizes"), "speakers", "steps")) == sizes
    (text,) = report.tables(config, results, tmp_path).values()
    assert "sample of TIMIT (about 1,600 training frames), 1,000 steps" in text
    assert "synthetic speech, 256 speakers (about 25,600 training frames), 4,000 steps" in text
    assert "| Delta 200, carry, discount 0.9 |" in text
    assert list(report.figures(config, results)) == ["grid", "sizes"]


def test_settings_in_words():
    assert str(PAPER) == "RTHO, Delta 200, carry, rate 0.005"
    assert str(TUNED["hypergradient descent"]) == "RTHO, Delta 20, one step, rate 0.01"
    assert str(RealTime(20, True, 0.9, 0.01, True)) == "RTHO-NT, Delta 20, carry, discount 0.9, rate 0.01"


@pytest.mark.slow
@pytest.mark.parametrize("way", [*PLAIN, "RTHO", "hypergradient descent", "RTHO, discount 0.9"])
def test_every_way_trains_with_its_budget(way):
    training = dataclasses.replace(TINY, plain_factor=3, patience=100)
    settings = TUNED.get(way)
    outcome = ways.train(training, tiny_speech(), 0, way, settings and settings._replace(delta=5))
    factor = 1 if settings and settings.discount else 3
    assert outcome.curve[-1]["steps"] == factor * TINY.steps
    assert outcome.curve[-1]["validation accuracy"] >= 0


@pytest.mark.slow
def test_cosine_decay_ends_at_zero():
    """The last steps move the params far less than the first ones."""
    training = dataclasses.replace(TINY, hyper_batch=1, steps=20, plain_factor=1)
    values = [row["value"] for row in ways.plain(training, tiny_speech(), 0, "cosine decay").curve]
    assert abs(values[-1] - values[-2]) < abs(values[1] - values[0])


def test_rows_can_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "_speech", lambda *_: tiny_speech())
    monkeypatch.setattr(experiment.phone_config, "PhoneTraining", lambda **_: dataclasses.replace(TINY, steps=10))
    (unit,) = experiment.grid(Config(grid_folds=(0,), deltas=(5,), rates=(0.01,)))[:1]
    row = json.loads(json.dumps(experiment.compute(unit, tmp_path)))
    assert RealTime(**row["settings"]) == DEFAULT._replace(delta=5)
    assert row["curve"]["steps"]

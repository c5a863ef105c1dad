"""The checks of `make soak`: on a short run, and on logs that are wrong on purpose."""

import shutil

import pytest
import tensorflow as tf

from experiments.benchmarks import soak

TINY = ["--hidden=2", "--batch_size=5", "--hyper_batch=1", "--deterministic"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that was killed twice, and one that was not."""
    place = tmp_path_factory.mktemp("soak")
    whole = soak.start(place / "whole", 8, TINY)
    kills = soak.killed_run(place / "killed", 8, 2, TINY, seed=0)
    soak.finish(whole, place / "whole")
    assert kills == 2
    return place


def test_a_killed_run_loses_nothing(runs):
    assert soak.lost(runs / "killed", runs / "whole", 8) == []


def test_what_is_lost_or_twice_is_seen(runs, tmp_path):
    spoiled = tmp_path / "spoiled"
    shutil.copytree(runs / "killed", spoiled)
    table = (spoiled / "history.csv").read_text().splitlines(keepends=True)
    (spoiled / "history.csv").write_text("".join([*table, table[-1]]))
    writer = tf.summary.create_file_writer(str(spoiled / "tensorboard"))
    with writer.as_default(step=3):
        tf.summary.scalar("value", 17.0)
    writer.close()
    (spoiled / "results.json").write_text((spoiled / "results.json").read_text().replace('"iteration": 3', '"iteration": 2'))
    (newest,) = (p for p in (spoiled / "checkpoints").glob("ckpt-*") if p.name == "ckpt-00000008")
    shutil.copytree(spoiled / "checkpoints" / "ckpt-00000007", newest, dirs_exist_ok=True)
    wrong = soak.lost(spoiled, runs / "whole", 9)
    assert [what.split(" ")[0] for what in wrong] == [
        "results.json",
        "the",
        "history.csv",
        "history.csv",
        "TensorBoard:",
        "TensorBoard",
    ]
    assert "TensorBoard: value at 3 has two values" in wrong
    assert "TensorBoard lacks [8]" in wrong


def test_the_moments_of_a_run(runs):
    moments = soak.moments(runs / "whole" / "tensorboard")
    assert len(moments) == 8
    assert moments == sorted(moments)


def test_a_run_does_not_grow(tmp_path):
    found = soak.long_run(tmp_path / "long", 120, TINY)
    assert found[soak.FILES].ratio == 1.0
    assert found[soak.MEMORY].ratio < soak.MOST[soak.MEMORY]  # it shrinks while what compiling took is given back
    assert found[soak.TIME].last > 0


def test_growth_is_the_last_quarter_against_the_second():
    numbers = [(k, 10.0 if k < 60 else 11.0) for k in range(80)]
    assert soak.growth(numbers, 80) == (10.0, 11.0)
    assert soak.growth(numbers, 80).ratio == pytest.approx(1.1)

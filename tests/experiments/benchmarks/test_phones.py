"""The benchmark of phone classification, at a tiny size."""

import re

import pytest

from experiments.benchmarks import phones
from rfho2.planning import memory


@pytest.mark.slow
@pytest.mark.skipif(not memory.CLEAR_REFS.exists(), reason="Linux only")
def test_what_it_prints(capsys):
    phones.pace_of_features(seconds=2)
    phones.peak_of_frames(6000, memory.now())
    phones.peak_of_real_time(8, 2, memory.now())
    phones.times(8, 2, rounds=1)
    printed = capsys.readouterr().out
    assert re.search(r"features: \d+ x real time", printed)
    assert re.search(r"6,000 frames from the cache: [\d.]+ s", printed)
    assert re.search(r"6,000 frames: peak memory [\d.]+ GB; [\d.]+ ms for a minibatch", printed)
    assert re.search(r"real time, width 8: peak memory [\d.]+ GB", printed)
    assert re.search(
        r"width 8, 15,\d\d\d weights: plain [\d.]+ s a step, real time [\d.]+; [\d.]+ x; calls of 2 steps", printed
    )

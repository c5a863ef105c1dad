"""A compiled training is used for the next split, and gives what one of its own would."""

import numpy as np
import pytest

from data.cifar_features import load, split
from experiments.task_difficulty import reuse, units
from experiments.task_difficulty.units import Unit
from experiments.task_interactions import experiment, models

UNIT = Unit("cifar10", "components", 4.0, 2, 0, "HMTL", iterations=3)


@pytest.mark.slow
def test_each_split_gets_its_own_result():
    reuse._engine.cache_clear()  # of engines of other tests
    for seed in (0, 1):
        data = split(load(), seed, 2)
        found = units._tuned(UNIT.config, "HMTL", reuse.compact(data), 1e-3)
        alone = experiment.tune(UNIT.config, models.method("HMTL", 10, UNIT.config.rate, 1e-3), data)
        for name, value in alone.hypers.items():
            np.testing.assert_allclose(found.hypers[name], value, atol=1e-7)
        refitted, expected = (fit(UNIT.config.training, data, alone.hypers) for fit in (reuse.refit, models.refit))
        np.testing.assert_allclose(refitted["w"], expected["w"], atol=1e-5)
    assert reuse._engine.cache_info().currsize == 1


def test_a_compact_split_is_the_same_problem():
    data = split(load(), 0, 2)
    small = reuse.compact(data)
    assert small.train.features.shape == (20, 20)
    for part, other in zip(data, small, strict=True):
        grams = [p.features @ t.features.T for p, t in ((part, data.train), (other, small.train))]
        np.testing.assert_allclose(*grams, rtol=1e-4, atol=1e-2)
    assert reuse.compact(small) is small


def test_methods_with_other_hypers_have_engines_of_their_own():
    data = split(load(), 0, 2)
    engines = [
        reuse.engine(UNIT.config.training, data, models.method(name, 10, 1e-3, 1e-3).hypers) for name in models.METHODS
    ]
    assert len(set(map(id, engines))) == len(models.METHODS) - 1  # HMTL and HMTL-S tune the same

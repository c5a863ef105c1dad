"""Weaker features: what they keep, and that labels play no part."""

import numpy as np
import pytest

from data.cifar_features import Features
from experiments.task_difficulty.weaker import KINDS, components, levels, noise, weaker


def features(n=60, d=12):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d)) * np.linspace(3.0, 0.1, d) + 1.0
    return Features(x.astype(np.float32), np.arange(n, dtype=np.int32) % 3, ("a", "b", "c"))


@pytest.mark.parametrize(("kind", "strength"), [("components", 4), ("projection", 4), ("noise", 0.5), ("original", 0)])
def test_the_size_stays_and_labels_play_no_part(kind, strength):
    given = features()
    made = weaker(given, kind, strength)
    np.testing.assert_allclose(np.sum(made.features**2), np.sum(given.features**2), rtol=1e-5)
    assert made.features.dtype == np.float32
    assert made.features.shape[1] == (4 if kind in ("components", "projection") else 12)
    other = given._replace(labels=given.labels[::-1].copy())
    np.testing.assert_array_equal(weaker(other, kind, strength).features, made.features)


def test_components_are_the_directions_of_the_largest_variance():
    x = features().features.astype(float)
    values = np.linalg.eigvalsh(np.cov(x.T))[::-1]
    np.testing.assert_allclose(np.var(components(x, 3), axis=0, ddof=1), values[:3], rtol=1e-10)


def test_noise_has_the_deviation_asked_for():
    x = features(4000).features.astype(float)
    assert np.std(noise(x, 0.7) - x) == pytest.approx(0.7 * x.std(), rel=0.02)


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_the_grid_has_every_kind(dataset):
    assert {kind for kind, _ in levels(dataset)} == set(KINDS)

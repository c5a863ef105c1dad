"""Groups of classes, and the permutation test."""

import numpy as np
import pytest

from data.cifar_features import load
from experiments.task_difficulty import groups


def test_superclasses_are_twenty_groups_of_five():
    of_class = groups.superclasses()
    assert np.bincount(of_class).tolist() == [5] * 20
    assert of_class[0] == of_class[57]  # apple and pear
    assert of_class[8] == of_class[13]  # bicycle and bus


@pytest.mark.parametrize("name", groups.CIFAR10)
def test_every_class_of_cifar_10_is_in_one_group(name):
    listed = [c for group in groups.CIFAR10[name] for c in group]
    assert sorted(listed) == sorted(load().class_names)
    assert len(groups.members(load().class_names, groups.CIFAR10[name])) == 10


def test_planted_groups_are_found_and_others_are_not():
    rng, group = np.random.default_rng(0), np.repeat(np.arange(4), 4)
    c = rng.random((16, 16)) + 2.0 * (group[:, None] == group[None, :]) + 100 * np.eye(16)
    found = groups.permutation_test(c, group, 500)
    assert found.inside == pytest.approx(2.5, abs=0.1)
    assert found.across == pytest.approx(0.5, abs=0.1)
    assert found.p == pytest.approx(1 / 501)
    ps = [groups.permutation_test(rng.random((16, 16)), group, 99, seed).p for seed in range(40)]
    assert 0.3 < np.mean(ps) < 0.7

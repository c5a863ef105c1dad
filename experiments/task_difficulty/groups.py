"""Groups of classes that are known, and whether learned interactions are stronger inside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

CIFAR10 = {
    "animals and vehicles": (
        ("airplane", "automobile", "ship", "truck"),
        ("bird", "cat", "deer", "dog", "frog", "horse"),
    ),
    "kinds": (("automobile", "truck"), ("airplane", "ship"), ("cat", "dog"), ("deer", "horse"), ("bird",), ("frog",)),
}
CIFAR100 = """
beaver dolphin otter seal whale | aquarium_fish flatfish ray shark trout | orchid poppy rose sunflower tulip
bottle bowl can cup plate | apple mushroom orange pear sweet_pepper | clock keyboard lamp telephone television
bed chair couch table wardrobe | bee beetle butterfly caterpillar cockroach | bear leopard lion tiger wolf
bridge castle house road skyscraper | cloud forest mountain plain sea | camel cattle chimpanzee elephant kangaroo
fox porcupine possum raccoon skunk | crab lobster snail spider worm | baby boy girl man woman
crocodile dinosaur lizard snake turtle | hamster mouse rabbit shrew squirrel
maple_tree oak_tree palm_tree pine_tree willow_tree | bicycle bus motorcycle pickup_truck train
lawn_mower rocket streetcar tank tractor
"""


class Grouped(NamedTuple):
    """Mean interaction inside groups and across them, and how often a random grouping has as large a difference."""

    inside: float
    across: float
    p: float


def superclasses() -> np.ndarray:
    """The superclass, 0..19, of each of the 100 classes of CIFAR-100, which are in alphabetical order."""
    groups = [group.split() for line in CIFAR100.split("\n") for group in line.split("|") if group.split()]
    of_class = {name: number for number, group in enumerate(groups) for name in group}
    return np.array([of_class[name] for name in sorted(of_class)])


def members(names: Sequence[str], groups: Sequence[Sequence[str]]) -> np.ndarray:
    """The number of the group of each class."""
    return np.array([next(i for i, group in enumerate(groups) if name in group) for name in names])


def means(c: np.ndarray, group: np.ndarray) -> tuple[float, float]:
    """The mean entry of C inside groups, C_jj left out, and across them."""
    same = group[:, None] == group[None, :]
    return float(c[same & ~np.eye(len(c), dtype=bool)].mean()), float(c[~same].mean())


def permutation_test(c: np.ndarray, group: np.ndarray, permutations: int = 10_000, seed: int = 0) -> Grouped:
    """A permutation test of the mean entry of C inside groups minus that across them; C_jj is left out.

    Args:
      c: interactions [K, K].
      group: the group of each class.
      permutations: random assignments of the classes to groups of the same sizes.
    """
    rng = np.random.default_rng(seed)
    inside, across = means(c, group)
    random = [np.subtract(*means(c, rng.permutation(group))) for _ in range(permutations)]
    return Grouped(inside, across, (1 + int(np.sum(np.array(random) >= inside - across))) / (1 + permutations))

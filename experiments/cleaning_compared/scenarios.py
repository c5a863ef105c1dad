"""Digits with wrong labels, and trusted ones that may be few, of another distribution, or unbalanced."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from data import mnist
from data.errors import DataError
from data.mnist import CLASSES, Digits, NoisySplit

SHIFT = 1  # pixel; with three, a linear model of the trusted digits is worse than guessing
UNBALANCED = tuple(0.7**c for c in range(CLASSES))
FIRST_HALF = tuple(9.0 if c < CLASSES // 2 else 1.0 for c in range(CLASSES))
EQUAL = (1.0,) * CLASSES


class Scenario(NamedTuple):
    """A variant of the paper's problem.

    Attributes:
      share: of wrong labels, each drawn from the nine other classes.
      train, trusted: relative frequencies of the classes.
      shift: pixels by which the trusted digits are moved to the right and down.
    """

    share: float = 0.5
    train: tuple[float, ...] = EQUAL
    trusted: tuple[float, ...] = EQUAL
    shift: int = 0


SCENARIOS = {
    "half wrong": Scenario(),
    "90 % wrong": Scenario(0.9),
    "trusted shifted": Scenario(shift=SHIFT),
    "trusted of other frequencies": Scenario(trusted=FIRST_HALF),
    "classes unbalanced": Scenario(train=UNBALANCED, trusted=UNBALANCED),
}


def left(scenario: Scenario, train: int, trusted: int) -> int:
    """How many digits of each class are left for testing; 0 or less if there are not enough."""
    used = zip(counts(scenario.train, train), counts(scenario.trusted, trusted), strict=True)
    return min(mnist.PER_CLASS - a - b for a, b in used)


def split(scenario: Scenario, train: int, trusted: int, seed: int) -> NoisySplit:
    """Training and trusted digits, and equally many of each class for testing."""
    digits = mnist.load()
    rng = np.random.default_rng(seed)
    of_class = [rng.permutation(np.flatnonzero(digits.labels == c)) for c in range(CLASSES)]
    first, second = counts(scenario.train, train), counts(scenario.trusted, trusted)
    held_out = left(scenario, train, trusted)
    if held_out <= 0:
        raise DataError(f"there are not enough digits to train on {train} and to trust {trusted}; choose fewer.")
    rows = [rng.permutation(np.concatenate([indices[:n] for indices, n in zip(of_class, first, strict=True)]))]
    rows.append(np.concatenate([indices[a : a + b] for indices, a, b in zip(of_class, first, second, strict=True)]))
    rows.append(np.concatenate([indices[-held_out:] for indices in of_class]))
    clean, held, test = (Digits(digits.images[chosen], digits.labels[chosen]) for chosen in rows)
    noisy = np.zeros(train, bool)
    noisy[rng.permutation(train)[: round(scenario.share * train)]] = True
    wrong = (clean.labels + rng.integers(1, CLASSES, train)) % CLASSES
    labels = np.where(noisy, wrong, clean.labels).astype(np.int32)
    return NoisySplit(Digits(clean.images, labels), clean.labels, noisy, shifted(held, scenario.shift), test)


def counts(frequencies: tuple[float, ...], total: int) -> list[int]:
    """How many of each class: `total` in all, as proportional as whole numbers can be, and at least one of each."""
    ends = np.rint(np.cumsum(frequencies) / np.sum(frequencies) * (total - len(frequencies))).astype(int)
    return [1 + int(n) for n in np.diff(ends, prepend=0)]


def shifted(digits: Digits, pixels: int) -> Digits:
    """The digits moved to the right and down; what leaves the image is lost."""
    if not pixels:
        return digits
    images = digits.images.reshape(-1, 28, 28)
    moved = np.zeros_like(images)
    moved[:, pixels:, pixels:] = images[:, :-pixels, :-pixels]
    return Digits(moved.reshape(digits.images.shape), digits.labels)

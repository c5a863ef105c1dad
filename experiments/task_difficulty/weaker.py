"""Weaker features from good ones: principal components, random projections, or noise. Labels are never used."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from data.cifar_features import Features

SEED = 20170306  # of projections and noise, which are the same in every split


def components(x: np.ndarray, number: float) -> np.ndarray:
    """The leading principal components of all examples of the file."""
    centred = x - x.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    return centred @ directions[: int(number)].T


def projection(x: np.ndarray, number: float) -> np.ndarray:
    """A Gaussian random projection to `number` dimensions."""
    return x @ np.random.default_rng(SEED).normal(size=(x.shape[1], int(number)))


def noise(x: np.ndarray, deviations: float) -> np.ndarray:
    """Adds Gaussian noise to each number, in units of the standard deviation of all numbers."""
    return x + deviations * x.std() * np.random.default_rng(SEED).normal(size=x.shape)


KINDS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "original": lambda x, _: x,
    "components": components,
    "projection": projection,
    "noise": noise,
}


def weaker(features: Features, kind: str, strength: float) -> Features:
    """The features, made weaker, and scaled to the same mean square norm: a learning rate then means the same."""
    x = features.features.astype(np.float64)
    made = KINDS[kind](x, strength)
    made *= np.sqrt(np.sum(x**2) / np.sum(made**2))
    return features._replace(features=made.astype(np.float32))


def levels(dataset: str) -> tuple[tuple[str, float], ...]:
    """The (kind, strength) that are calibrated."""
    grids: dict[str, dict[str, tuple[float, ...]]] = {
        "cifar10": {
            "original": (0.0,),
            "components": (4, 6, 8, 10, 12, 16, 32, 64),
            "projection": (8, 16, 32, 64, 128),
            "noise": (0.25, 0.5, 0.75, 1.0, 1.5, 2.0),
        },
        "cifar100": {
            "original": (0.0,),
            "components": (3, 4, 5, 6, 8, 12, 16, 32),
            "projection": (8, 16, 32, 64, 128),
            "noise": (0.5, 1.0, 1.5, 2.0, 3.0),
        },
    }
    return tuple((kind, float(strength)) for kind, strengths in grids[dataset].items() for strength in strengths)

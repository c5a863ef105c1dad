"""A few examples with 20 of their features."""

import functools

from data import cifar_features


@functools.cache
def few_features(seed: int, per_class: int = 5) -> cifar_features.Split:
    """The split of a seed, with 500 test examples."""
    features = cifar_features.load()
    split = cifar_features.split(features._replace(features=features.features[:, :20]), seed, per_class)
    return split._replace(test=cifar_features.Part(*(part[:500] for part in split.test)))

"""A few of the embedded digits."""

import functools

from data import mnist


@functools.cache
def few_digits(seed: int = 0, train: int = 200, validation: int = 400, test: int = 500) -> mnist.NoisySplit:
    """A split of the seed, half of whose training labels are wrong."""
    split = mnist.noisy_split(mnist.load(), seed, train=train, validation=validation)
    return split._replace(test=mnist.Digits(split.test.images[:test], split.test.labels[:test]))

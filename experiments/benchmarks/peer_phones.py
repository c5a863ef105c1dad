"""The phone network in real time at the paper's size: a partial hypergradient after some steps, three hypers.

In JAX: `jax.linearize` for each step and a product per column of the sensitivity Z, or `jax.jvp` with all columns at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.benchmarks import phones
from experiments.benchmarks.peer_case import Case, Hypergradient, InJax
from experiments.phone_classification.methods import TAUGHT

HYPERS = ("eta", "mu", "rho")  # in the order of the argument
WIDTH = 2000


class Phones:
    """The contestants, and what they share."""

    STEPS = 20
    entry_tolerance: float | None = 1e-3
    memory = True
    width = WIDTH

    def __init__(self, steps: int):
        self.data = phones.speech(phones.FRAMES)
        self.steps, self.params = steps, phones.initial_params(self.data, self.width)
        self.argument = np.array([TAUGHT[name] for name in HYPERS], np.float32)
        kept = self.data._asdict()
        shared = {
            name: kept[name] for name in ("features", "first", "last", "mean", "deviation", "states", "targets", "table")
        }
        train, held_out = (
            tf.function(rf.batches.shuffled(frames, phones.BATCH_SIZE, seed), autograph=False)
            for seed, frames in enumerate((self.data.train, self.data.validation))
        )
        shared["rows"] = tf.stack([train(tf.constant(t)) for t in range(steps)])
        shared["validation"] = held_out(tf.constant(0))
        everything = shared | {f"p/{name}": w for name, w in self.params.items()}
        self.arrays = {name: np.asarray(array) for name, array in everything.items()}

    def stand_in(self) -> Case:
        """A smaller network, for fewer steps."""
        return SmallPhones(SmallPhones.STEPS)

    def rfho2(self) -> Hypergradient:
        """Builds ours."""
        engine = rf.real_time(phones.problem(self.data), self.steps)

        def hypergradient(hypers: np.ndarray) -> np.ndarray:
            grads = engine(self.params, dict(zip(HYPERS, hypers, strict=True))).grads
            return np.array([grads[name] for name in HYPERS])

        return hypergradient

    def jax(self) -> dict[str, InJax]:
        """The contestants in JAX, by name."""
        return {
            "JAX, columns in turn": InJax("phones", {"columns_in_turn": True}),
            "JAX, columns together": InJax("phones", {"columns_in_turn": False}),
        }

    def torch(self) -> dict[str, Callable[[], Hypergradient]]:
        """None in PyTorch."""
        return {}


class SmallPhones(Phones):
    """The same computation at a size where all contestants have to agree.

    At the full size they cannot: frames and classes are random, the contributions of a million (frame, unit) pairs almost
    cancel, and a single unit that switches, by rounding, changes the hypergradient by a thousandth.
    """

    STEPS = 5
    width = 50

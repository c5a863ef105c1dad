"""Ways to train the phone network: fixed hypers, schedules, Adam, and hypergradients in real time with any settings."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import rfho2 as rf
from experiments.common.plain_training import fixed
from experiments.phone_classification import methods, network
from experiments.phone_classification.config import PhoneTraining
from experiments.phone_classification.methods import Outcome, Trainer
from experiments.phone_classification.network import Speech
from rfho2.core.types import Hypers

ADAM_RATE, ADAM_EPSILON = 1e-3, 1e-7  # Keras's defaults


class RealTime(NamedTuple):
    """Settings of real time.

    Attributes:
      delta: training steps between two updates of the hypers.
      carry, discount: see `rf.real_time`; discount 0 is hypergradient descent.
      rate: learning rate of projected Adam.
      null_teacher: whether all hypers start at 0.
    """

    delta: int = 20
    carry: bool = False
    discount: float = 1.0
    rate: float = 0.01
    null_teacher: bool = False

    def __str__(self) -> str:
        back = "one step" if self.discount == 0 else "carry" if self.carry else "no carry"
        back += f", discount {self.discount:g}" if 0 < self.discount < 1 else ""
        return f"{'RTHO-NT' if self.null_teacher else 'RTHO'}, Delta {self.delta}, {back}, rate {self.rate:g}"


DEFAULT = RealTime()
PAPER = RealTime(200, True, 1.0, 0.005)
PLAIN = ("Vanilla", "Vanilla, no stopping", "cosine decay", "Keras's Adam")
TUNED = {
    "RTHO": DEFAULT,
    "RTHO-NT": DEFAULT._replace(null_teacher=True),
    "RTHO, the paper's settings": PAPER,
    "RTHO-NT, the paper's settings": PAPER._replace(null_teacher=True),
    "RTHO, discount 0.9": DEFAULT._replace(carry=True, discount=0.9),
    "RTHO, discount 0.99": DEFAULT._replace(carry=True, discount=0.99),
    "hypergradient descent": DEFAULT._replace(discount=0.0),
}


def train(training: PhoneTraining, data: Speech, seed: int, way: str, settings: RealTime | None) -> Outcome:
    """One training, as a graph: it is short, and compilation would take longer.

    Args:
      training: sizes and budget.
      way: one of PLAIN, or anything else with `settings`.
    """
    if settings is None:
        return plain(training, data, seed, way)
    changed = dataclasses.replace(training, hyper_batch=settings.delta, carry=settings.carry, hyper_rate=settings.rate)
    if settings.discount == 0:  # a step costs about as much as a plain one
        changed = dataclasses.replace(changed, steps=training.steps * training.plain_factor)
    trainer = Trainer(changed, data, seed, jit_compile=False, discount=settings.discount)
    return methods.real_time(trainer, methods.NULL_TEACHER if settings.null_teacher else methods.TAUGHT)


def plain(training: PhoneTraining, data: Speech, seed: int, way: str) -> Outcome:
    """Training without hypergradients; all but "Vanilla" use the whole budget."""
    steps = training.steps * training.plain_factor

    def rate(hypers: Hypers, t: tf.Tensor) -> tf.Tensor:
        return hypers["eta"] * (0.5 + 0.5 * tf.cos(np.pi * tf.cast(t, tf.float32) / steps))

    dynamics_of = {
        "cosine decay": lambda: rf.momentum(network.loss, rate, "mu"),
        "Keras's Adam": lambda: rf.adam(network.loss, ADAM_RATE, epsilon=ADAM_EPSILON),
    }
    trainer = Trainer(training, data, seed, jit_compile=False, dynamics=dynamics_of[way]() if way in dynamics_of else None)
    if way in dynamics_of:
        hypers = {"rho": 0.0} if way == "Keras's Adam" else methods.ALONE
        return trainer.outcome(trainer.run(trainer.plain, fixed, hypers, None, trainer.iterations(training.plain_factor)))
    return methods.fixed_hypers(trainer, methods.ALONE, early=way == "Vanilla")

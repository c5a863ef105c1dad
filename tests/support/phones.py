"""Phone classification on random frames: a tiny network that trains in a moment, without XLA."""

from __future__ import annotations

import functools

from data.speech import timit
from experiments.phone_classification import network
from experiments.phone_classification.config import PhoneTraining
from experiments.phone_classification.methods import Trainer
from tests.support.corpora import tiny_corpus

TINY = PhoneTraining(
    width=8, layers=1, batch_size=50, hyper_batch=5, hyper_rate=0.02, validation_size=60, steps=60, plain_factor=3
)


@functools.cache
def tiny_speech(fold: int = 0) -> network.Speech:
    """One split of the tiny corpus."""
    corpus = tiny_corpus()
    return network.speech(corpus, timit.split(corpus.utterances, fold), dimension=5)


@functools.cache
def tiny_trainer() -> Trainer:
    """A trainer that the tests share, because tracing its engines takes longer than using them."""
    return Trainer(TINY, tiny_speech(), seed=0, jit_compile=False)


def validation_accuracy(trainer: Trainer, params: network.Params) -> float:
    """What the trainer measures for these params."""
    return trainer.metrics(trainer.problem.dynamics.init(params, {}), {}, 0)["validation accuracy"]

"""Training with fixed hypers: when it ends, and what it keeps."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import rfho2 as rf
from experiments.phone_classification import methods, network
from experiments.phone_classification.methods import Trainer
from tests.support.phones import TINY, tiny_speech, tiny_trainer, validation_accuracy


@pytest.mark.slow
def test_fixed_hypers_train_to_the_end_and_keep_the_best():
    trainer = tiny_trainer()
    outcome = methods.fixed_hypers(trainer, methods.ALONE, early=False)
    assert outcome.curve[-1]["steps"] == TINY.steps * TINY.plain_factor
    assert outcome.curve[-1]["value"] < outcome.curve[0]["value"]
    assert outcome.hypers == pytest.approx(methods.ALONE)
    accuracies = [row["validation accuracy"] for row in outcome.curve]
    assert validation_accuracy(trainer, outcome.kept) == pytest.approx(max(accuracies))
    assert validation_accuracy(trainer, outcome.last) == pytest.approx(accuracies[-1])


def test_fixed_hypers_stop_early(monkeypatch):
    trainer = tiny_trainer()
    monkeypatch.setattr(trainer, "training", dataclasses.replace(TINY, patience=1, improvement=1e3))
    assert len(methods.fixed_hypers(trainer, methods.ALONE).curve) == 2


def test_a_training_that_diverges_keeps_its_best_params():
    dynamics = rf.momentum(
        network.loss, lambda hypers, t: hypers["eta"] * tf.where(t < 2 * TINY.hyper_batch, 1.0, np.nan), "mu"
    )
    trainer = Trainer(TINY, tiny_speech(), seed=0, jit_compile=False, dynamics=dynamics)
    outcome = methods.fixed_hypers(trainer, methods.ALONE, early=False)
    assert len(outcome.curve) == 2
    assert all(np.isfinite(w).all() for w in outcome.kept.values())


def test_the_budget_is_in_steps_or_in_minutes():
    trainer = Trainer(dataclasses.replace(TINY, steps=61), tiny_speech(), seed=0, jit_compile=False)
    assert trainer.iterations(1) == 13, "a hyper-batch that has begun is finished"
    assert trainer.iterations(3) == 37
    trainer.training = dataclasses.replace(TINY, minutes=1.0)
    assert trainer.iterations(3) == methods.UNLIMITED

"""Fixtures for the tests of the driver."""

import os

import pytest

from rfho2.driver import history


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Flushing checkpoints to disk would take most of the time of these short runs; `test_checkpoint_store.py` counts it."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def small_pieces(monkeypatch):
    """So that a run of six hyper-iterations writes, links and reads pieces of its history."""
    monkeypatch.setattr(history, "ROWS", 2)

"""Fixtures for the tests of the driver."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Flushing checkpoints to disk would take most of the time of these short runs; `test_checkpoint_store.py` counts it."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)

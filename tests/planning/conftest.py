"""Fixtures for the tests of planning."""

import pytest

from rfho2.core.compiled import Compiled
from rfho2.planning import memory, timing


@pytest.fixture
def quick(monkeypatch):
    """Timed runs are as short as possible, and plain graphs: XLA takes seconds to compile each, garbage collection 0.2 s."""
    monkeypatch.setattr(timing, "SECONDS", 1e-3)
    monkeypatch.setattr(timing, "ROUNDS", 1)
    monkeypatch.setattr(memory, "_return_freed", lambda: None)
    monkeypatch.setattr(Compiled, "jit_compiled", False)

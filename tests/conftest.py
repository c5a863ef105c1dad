"""Corpora of noise that several files of tests read."""

import pytest

from tests.speech_helpers import flat


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A flat corpus that no test changes."""
    return flat(tmp_path_factory.mktemp("flat"))


@pytest.fixture
def own(tmp_path):
    """A smaller one that a test may break."""
    return flat(tmp_path / "own", 3, ("sx1", "sx2"))

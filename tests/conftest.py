"""Fixtures for all tests."""

import sys

import pytest

from tests.support.corpora import write_flat_corpus


@pytest.fixture
def own(tmp_path):
    """A corpus of noise, three speakers with two sentences each, which a test may change."""
    return write_flat_corpus(tmp_path / "own", 3, ("sx1", "sx2"))


@pytest.fixture(autouse=True)
def no_global_seed():
    """Tests build models with `keras.utils.set_random_seed`, which would also seed the shuffles of all later tests."""
    yield
    if "tensorflow" in sys.modules:  # the tests of the readers do without
        sys.modules["tensorflow"].random.set_seed(None)

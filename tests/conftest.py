"""What several files of tests share: corpora of noise, and no seed that one test leaves to the next."""

import pytest
import tensorflow as tf

from tests.support.corpora import flat


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A flat corpus that no test changes."""
    return flat(tmp_path_factory.mktemp("flat"))


@pytest.fixture
def own(tmp_path):
    """A smaller one that a test may break."""
    return flat(tmp_path / "own", 3, ("sx1", "sx2"))


@pytest.fixture(autouse=True)
def no_global_seed():
    """Models are built with `keras.utils.set_random_seed`, which would seed the shuffles of every later test too."""
    yield
    tf.random.set_seed(None)

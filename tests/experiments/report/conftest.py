"""Results to make pages of."""

import pytest

from tests.support.pages import write_everything


@pytest.fixture
def results(tmp_path):
    """A directory with results of every experiment, which a test may change."""
    root = tmp_path / "results"
    write_everything(root)
    return root

"""Corpora of noise, a machine without a connection, and real data where an environment variable names them."""

import os
from pathlib import Path

import pytest

from data import downloads
from tests.support.corpora import write_flat_corpus


@pytest.fixture(scope="session")
def noise_corpus(tmp_path_factory):
    """16 speakers with 4 sentences each; tests only read it."""
    return write_flat_corpus(tmp_path_factory.mktemp("flat"))


@pytest.fixture
def breakable_corpus(tmp_path):
    """Three speakers with two sentences each, which a test may change."""
    return write_flat_corpus(tmp_path / "breakable", 3, ("sx1", "sx2"))


@pytest.fixture
def no_connection(monkeypatch):
    """No host can be reached."""

    def refuse(*args):
        raise OSError("no route to host")

    monkeypatch.setattr(downloads.socket, "create_connection", refuse)


def _path_from_environment(variable):
    if not (path := os.environ.get(variable)):
        pytest.skip(f"{variable} is not set; these data are not distributed with this project")
    return Path(path).expanduser()


@pytest.fixture(scope="session")
def real_timit():
    return _path_from_environment("RFHO2_TIMIT_DIR")


@pytest.fixture(scope="session")
def real_cifar100():
    return _path_from_environment("RFHO2_CIFAR100_FEATURES")

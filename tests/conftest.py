"""Fixtures for all tests."""

import gc
import importlib
import os
import shutil
import sys

import pytest


def pytest_configure() -> None:
    """On a GPU: memory as it is needed, for several processes, and products as exact as NumPy's."""
    if shutil.which("nvidia-smi"):
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        importlib.import_module("tensorflow").config.experimental.enable_tensor_float_32_execution(False)


@pytest.fixture(autouse=True)
def no_global_seed():
    """Tests build models with `keras.utils.set_random_seed`, which would also seed the shuffles of all later tests."""
    yield
    if "tensorflow" in sys.modules:  # the tests of the readers do without
        sys.modules["tensorflow"].random.set_seed(None)


@pytest.fixture(autouse=True, scope="module")
def no_repeated_garbage_collection():
    """Keeps garbage collection cheap: the graphs and compiled functions of earlier modules are not examined again."""
    yield
    gc.collect()
    gc.freeze()

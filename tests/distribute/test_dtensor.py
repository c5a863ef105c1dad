"""Engines consist of ordinary ops: inputs sharded over two logical devices give the same hypergradients."""

import pytest

from tests.distribute.dtensor_child import ENGINES
from tests.support.processes import launch


@pytest.mark.parametrize(
    ("mode", "methods"),
    [
        ("graph", ["forward"]),
        pytest.param("graph", list(ENGINES), marks=pytest.mark.slow),
        pytest.param("jit", list(ENGINES), marks=pytest.mark.slow),
    ],
    ids=["graph-forward", "graph-all", "jit-all"],
)
def test_sharded_inputs_give_the_same_hypergradients(mode, methods):
    """In a fresh process, because logical devices cannot be added to a running one."""
    (child,) = launch(1, mode, *methods, module="tests.distribute.dtensor_child", timeout=600.0)
    assert child.code == 0, child.err[-3000:]
    assert child.out.splitlines() == [f"{method} agrees" for method in methods]

"""Every single file operation of a run fails once. A file of its own, because several processes divide the tests by file."""

import shutil

import pytest

from tests.support.faulted_runs import FAULTS, operations, survived

pytestmark = pytest.mark.usefixtures("small_pieces")


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_every_operation_of_a_run(fault, tmp_path, monkeypatch):
    numbers = operations(monkeypatch, tmp_path / "counted", fault)
    for number in numbers:
        assert survived(monkeypatch, tmp_path / str(number), number, fault).hit
        shutil.rmtree(tmp_path / str(number))
    print(f"{fault}: {len(numbers)} faults injected")

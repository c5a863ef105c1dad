"""What holds for every callback."""

import pytest

import rfho2 as rf
from tests.support.monitored import run


def test_a_custom_callback_overrides_only_what_it_needs():
    class Values(rf.Callback):
        def __init__(self):
            self.seen = []

        def on_hyper_iteration(self, k, hypers, hypergradient, extra):
            self.seen.append((k, float(hypergradient.value)))

    values = Values()
    result = run([values])
    assert values.seen == [(row["iteration"], row["value"]) for row in result.history]


@pytest.mark.parametrize("make", [rf.ProgressBar, lambda: rf.TensorBoard("never"), lambda: rf.CSVLogger("never")])
def test_ending_a_run_that_never_started_is_not_an_error(make, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    make().on_end(rf.Result({}, None, [], None))
    assert list(tmp_path.iterdir()) == []


def test_an_error_at_the_start_of_a_later_run_is_raised(tmp_path, capsys):
    class FailingStart:
        def on_start(self, run):
            raise RuntimeError("no place to write to")

    watching = [rf.TensorBoard(tmp_path / "logs"), rf.ProgressBar(), rf.CSVLogger(tmp_path / "log.csv")]
    run(watching, 1)
    with pytest.raises(RuntimeError, match="no place to write to"):
        run([FailingStart(), *watching], 1)

"""The progress bar: what it shows, and when."""

import io
import sys
import threading

import pytest
from tqdm import tqdm

import rfho2 as rf
from tests.support.monitored import Interrupt, metrics, play, run, two_objectives


def last_line(capsys):
    return capsys.readouterr().err.strip().splitlines()[-1].split("\r")[-1]


def test_it_shows_hyper_iterations_value_and_scalar_hypers(capsys):
    result = run([rf.ProgressBar()])
    line = last_line(capsys)
    assert "hyper-iterations" in line
    assert "3/3" in line
    assert f"value={result.history[-1]['value']:.4g}" in line
    assert f"lr={result.history[-1]['lr']:.4g}" in line
    assert "weights" not in line


def test_it_starts_where_a_run_resumes(capsys, tmp_path):
    run([rf.ProgressBar()], 2, tmp_path)
    assert "2/2" in last_line(capsys)
    run([rf.ProgressBar()], 5, tmp_path)
    output = capsys.readouterr().err
    assert "2/5" in output
    assert "0/5" not in output
    assert "5/5" in output


def test_one_bar_serves_several_runs(capsys):
    bar = rf.ProgressBar(description="tuning")
    for iterations in (2, 3):
        run([bar], iterations)
        line = last_line(capsys)
        assert "tuning" in line
        assert f"{iterations}/{iterations}" in line


def test_it_shows_the_requested_names(capsys):
    run([rf.ProgressBar(show=("accuracy", "lr"))], metrics=metrics)
    line = last_line(capsys)
    assert "accuracy=2.5" in line
    assert "lr=" in line
    assert "value=" not in line


@pytest.mark.parametrize("name", ["unknown", "weights", "mixing", "errors", "phase"])
def test_a_name_that_is_not_a_number_does_not_end_the_run(name, capsys):
    run([rf.ProgressBar(show=("accuracy", name))], metrics=metrics)
    assert "accuracy=2.5" in last_line(capsys)


def test_it_shows_several_objectives(capsys):
    play(rf.ProgressBar(), reported=two_objectives(1.5, 2.5))
    line = last_line(capsys)
    assert "value/train=1.5" in line
    assert "value/test=2.5" in line


def test_it_stays_on_the_screen_after_an_interruption(capsys):
    with pytest.raises(KeyboardInterrupt):
        run([rf.ProgressBar(), Interrupt(1)], 4)
    assert "2/4" in last_line(capsys)


def test_a_bar_that_cannot_be_written_does_not_end_the_run(monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    assert len(run([rf.ProgressBar()]).history) == 3

    def show():
        with tqdm.get_lock():
            pass

    other = threading.Thread(target=show, daemon=True)
    other.start()
    other.join(10)
    assert not other.is_alive(), "another thread with a bar would wait forever"

"""The phone classification binary on a few synthetic sentences."""

import functools
import json

import pytest

from experiments.phone_classification import experiment
from experiments.phone_classification.methods import Trainer
from tests.support.binaries import run_binary

NAME = "phone_classification"
SMALL = [
    "--width=8", "--layers=1", "--batch_size=50", "--hyper_batch=5", "--hyper_rate=0.02", "--validation_size=60",
    "--steps=15", "--plain_factor=2", "--speakers=4", "--sentences=1",
]  # fmt: skip


def run(place, *flags):
    return run_binary(NAME, f"--output_dir={place / 'out'}", f"--cache_dir={place / 'speech'}", *SMALL, *flags)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Where the binary wrote its results, and what it printed. It ran without XLA, whose compilation takes longest."""
    place = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "Trainer", functools.partial(Trainer, jit_compile=False))
        ended = run(place, "--methods=Vanilla", "--methods=RTHO-NT")
    assert ended.code == 0, ended.err[-2000:]
    return place, ended.out


@pytest.mark.slow
def test_synthetic_speech_becomes_tables_and_figures(finished):
    place, printed = finished
    output = place / "out"
    content = json.loads((output / "results.json").read_text())
    assert [row["method"] for row in content["results"]] == ["Vanilla", "RTHO-NT"]
    assert not any("seconds" in row for row in content["results"])
    assert "whole run" in content["timing"]
    for name in ("table_3.md", "table_5.md", "figure_4.png", "figure_4.pdf"):
        assert (output / name).stat().st_size > 100
    assert (output / "table_3.md").read_text() in printed
    assert len((output / "runs" / "RTHO-NT_fold_0_seed_0" / "history.csv").read_text().splitlines()) == 1 + 3
    assert list(output.glob("runs/*/tensorboard/*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--corpus=nowhere"], "nowhere is not a folder"),
        (["--seeds=0,one"], "--seeds is '0,one'"),
        (["--preset=sample"], "--preset=sample needs a corpus"),
        (["--minutes=0"], "--minutes is 0; give a budget above 0"),
        (["--batch_size=99999"], "--batch_size is 99999, but fold 0 has"),
        (["--width=9"], "has runs with other settings (width was 8 and is 9)"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(finished, flags, message):
    ended = run(finished[0], *flags)
    assert ended.code == 1
    assert message in ended.err
    assert "Traceback" not in ended.err

"""The task-interaction binary: what it writes, and that it resumes."""

import json

import pytest

from tests.support.binaries import run_binary

NAME = "task_interactions"
FAST = ["--hyper_iterations=4", "--steps=5", "--seeds=0", "--methods=HMTL-S", "--methods=Dinuzzo"]


@pytest.mark.slow
def test_it_writes_everything_and_resumes_from_what_is_there(tmp_path, monkeypatch):
    first = run_binary(NAME, f"--output_dir={tmp_path}", *FAST)
    assert first.code == 0, first.err[-2000:]
    output = tmp_path / "cifar10_5_per_class"
    for name in ("table_2.md", "table_4.md", "figure_3.png", "heat_map_HMTL-S.png", "results.json"):
        assert (output / name).stat().st_size > 100, name
    assert "Seconds per hyper-iteration: HMTL-S" in first.out
    assert list((output / "runs" / "HMTL-S-split-0" / "tensorboard").iterdir())
    results = json.loads((output / "results.json").read_text())["results"]
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *args, **options: None)  # once is enough
    again = run_binary(NAME, f"--output_dir={tmp_path}", *FAST)
    assert json.loads((output / "results.json").read_text())["results"] == results
    assert again.out.split("Seconds")[0] == first.out.split("Seconds")[0]
    lines = (output / "runs" / "HMTL-S-split-0" / "history.csv").read_text().splitlines()
    assert len(lines) == 5


def test_cifar_100_without_its_file_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.delenv("RFHO2_CIFAR100_FEATURES", raising=False)
    missing = run_binary(NAME, f"--output_dir={tmp_path}", "--dataset=cifar100", *FAST)
    assert missing.code == 1
    assert "not distributed" in missing.err
    assert "--dataset=cifar10" in missing.err
    assert "Traceback" not in missing.err

"""Results files, and settings that a resumed run must agree with."""

import dataclasses
import json

import pytest

from data.errors import DataError
from experiments.common.results import keep_settings, write_results, write_text
from experiments.task_interactions.experiment import Config


def test_runs_with_other_settings_are_not_resumed(tmp_path):
    path, config = tmp_path / "settings.json", Config()
    keep_settings(path, config.settings, resume=True)
    more = dataclasses.replace(config, seeds=(0, 1, 2), methods=("STL",), hyper_iterations=99)
    keep_settings(path, more.settings, resume=True)
    other = dataclasses.replace(config, learning_rate=0.05)
    with pytest.raises(DataError, match=r"learning_rate was 0.1 and is 0.05.*another --output_dir, or --noresume"):
        keep_settings(path, other.settings, resume=True)
    keep_settings(path, other.settings, resume=False)
    assert json.loads(path.read_text())["learning_rate"] == 0.05


def test_results_and_times_are_kept_apart_from_the_command_and_the_date(tmp_path):
    path = tmp_path / "a" / "results.json"
    write_results(path, "example", Config(), [{"accuracy": 0.5}], {"whole run": 1.5})
    content = json.loads(path.read_text())
    assert list(content) == ["experiment", "config", "environment", "results", "timing"]
    assert content["config"] == json.loads(json.dumps(dataclasses.asdict(Config())))
    assert (content["results"], content["timing"]) == ([{"accuracy": 0.5}], {"whole run": 1.5})
    assert set(json.loads(path.with_suffix(".run.json").read_text())) == {"command", "finished"}


def test_a_file_is_replaced_whole_and_no_draft_is_left(tmp_path):
    path = tmp_path / "new" / "text.md"
    for text in ("first\n", "second\n"):
        write_text(path, text)
        assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]

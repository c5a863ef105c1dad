"""What all binaries do alike: they explain their flags, refuse what they do not understand, and end in one sentence."""

import dataclasses
import re

import pytest

from experiments.common import binary
from experiments.common.binary import command, environment
from experiments.data_hyper_cleaning.experiment import Config as CleaningConfig
from experiments.data_hyper_cleaning.settings_study import Config as StudyConfig
from experiments.keras_real_time.experiment import Config as KerasConfig
from experiments.real_time_digits.experiment import Config as DigitsConfig
from experiments.task_interactions.experiment import Config as InteractionsConfig
from tests.support.binaries import run_binary

SHARED = {"preset", "output_dir", "resume", "tensorboard", "mesh", "deterministic"}
BINARIES = {
    "data_hyper_cleaning": (CleaningConfig, SHARED),
    "task_interactions": (InteractionsConfig, SHARED | {"full"}),
    "keras_real_time": (KerasConfig, SHARED - {"tensorboard", "mesh"}),
    "real_time_digits": (DigitsConfig, SHARED - {"preset", "resume", "mesh"}),
    "hyper_cleaning_settings": (StudyConfig, SHARED - {"preset", "tensorboard", "mesh"}),
}


@pytest.mark.parametrize("name", BINARIES)
def test_help_shows_the_command_and_lists_every_flag(name):
    config, others = BINARIES[name]
    ended = run_binary(name, "--help")
    assert ended.code == 1  # as in every program with absl's flags
    assert f"python -m experiments.{name}" in ended.out
    listed = set(re.findall(r"^  --(?:\[no\])?(\w+):", ended.out, re.MULTILINE))
    assert listed == {field.name for field in dataclasses.fields(config)} | others


def test_a_stray_argument_is_refused_without_a_traceback(tmp_path):
    ended = run_binary("data_hyper_cleaning", f"--output_dir={tmp_path}", "quick")
    assert ended.code == 1
    assert "flags look like --name=value" in ended.out + ended.err
    assert "Traceback" not in ended.err


def test_a_list_that_holds_no_numbers_is_one_sentence(tmp_path):
    ended = run_binary("data_hyper_cleaning", f"--output_dir={tmp_path}", "--seeds=1,two")
    assert (ended.code, ended.err) == (1, "--seeds is '1,two', not a comma-separated list of whole numbers.\n")


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ("--radius=-5", "--radius is '-5'; each has to be at least 1e-06."),
        ("--output_dir=/proc/nope", "/proc/nope cannot be used: No such file or directory. Choose another directory, "),
    ],
)
def test_a_value_that_cannot_be_used_is_one_sentence(flag, told, tmp_path):
    ended = run_binary("data_hyper_cleaning", f"--output_dir={tmp_path}", flag)
    assert ended.code == 1
    assert ended.err.startswith(told)
    assert ended.err.count("\n") == 1


def test_a_mesh_starts_afresh_only_in_another_directory(tmp_path):
    ended = run_binary("data_hyper_cleaning", f"--output_dir={tmp_path}", "--mesh", "--noresume")
    assert ended.code == 1
    assert "--mesh does not go with --noresume" in ended.out + ended.err


def test_the_command_names_a_package_or_a_module(monkeypatch):
    for program in ("/x/experiments/report/__main__.py", "/x/experiments/report.py"):
        monkeypatch.setattr("sys.argv", [program])
        assert command(["--output=a b"]) == "python -m experiments.report '--output=a b'"


def test_the_environment_names_versions_and_the_device():
    recorded = environment()
    assert list(recorded) == ["rfho2", "tensorflow", "numpy", "python", "device"]
    assert recorded["device"].startswith("CPU")


def test_a_gpu_is_recorded_with_its_precision(monkeypatch):
    config = binary.tf.config
    monkeypatch.setattr(config, "list_physical_devices", lambda kind=None: ["first", "second"] if kind == "GPU" else [])
    names = {"first": {"device_name": "Some GPU"}, "second": {}}
    monkeypatch.setattr(config.experimental, "get_device_details", names.get)
    monkeypatch.setattr(config.experimental, "tensor_float_32_execution_enabled", lambda: True)
    assert environment()["device"].endswith(", Some GPU (TF32 products), GPU (TF32 products)")
    monkeypatch.setattr(config.experimental, "tensor_float_32_execution_enabled", lambda: False)
    assert "Some GPU (float32 products)" in environment()["device"]

"""Flags generated from a config: their defaults, bounds and choices, and the config they give back."""

from __future__ import annotations

import dataclasses

import pytest
from absl import flags

from data.errors import DataError
from experiments.common.config import define_flags, from_flags, given_settings, setting


@dataclasses.dataclass(frozen=True)
class Base:
    """One field of each type that is a single value."""

    steps: int = setting(50, "T.", at_least=1)
    rate: float = setting(0.5, "Learning rate.", at_least=0.0, at_most=1.0)
    name: str = setting("a", "A name.")
    source: str = setting("file", "Where from.", choices=("file", "web"))
    carry: bool = setting(True, "Keep it.")
    minutes: float | None = setting(None, "A budget.", at_least=0.0)


@dataclasses.dataclass(frozen=True)
class Config(Base):
    """Inherited fields are flags too; these are tuples."""

    seeds: tuple[int, ...] = setting((0, 1), "Seeds.")
    radii: tuple[float, ...] | None = setting(None, "Radii.")
    words: tuple[str, ...] = setting(("x",), "Words.")
    methods: tuple[str, ...] = setting(("A, fast",), "Methods.", choices=("A, fast", "B"))


PRESETS = {"quick": Config(), "paper": Config(steps=1000, seeds=(0, 1, 2), carry=False, minutes=300.0)}


def parsed(*arguments: str, presets: dict[str, Config] | None = None, **shared: bool | str | int) -> flags.FlagValues:
    values = flags.FlagValues()
    define_flags(Config, presets, flag_values=values, **shared)
    values(["program", *arguments])
    return values


def test_without_flags_the_config_has_its_defaults() -> None:
    assert from_flags(Config, flag_values=parsed()) == Config()


def test_every_type_of_field_is_read_from_its_flag() -> None:
    given = ["--steps=3", "--rate=1", "--name=b", "--source=web", "--nocarry", "--minutes=2.5"]
    lists = ["--seeds=4,5", "--radii=1e-3,2", "--words=y,z", "--methods=B", "--methods=A, fast"]
    expected = Config(3, 1.0, "b", "web", False, 2.5, (4, 5), (0.001, 2.0), ("y", "z"), ("B", "A, fast"))
    config = from_flags(Config, flag_values=parsed(*given, *lists))
    assert config == expected
    assert [type(value) for value in config.seeds + config.radii] == [int, int, float, float]


def test_flags_replace_single_values_of_the_preset() -> None:
    assert from_flags(Config, PRESETS, parsed(presets=PRESETS)) == PRESETS["quick"]
    values = parsed("--preset=paper", "--steps=7", "--carry", presets=PRESETS)
    assert from_flags(Config, PRESETS, values) == dataclasses.replace(PRESETS["paper"], steps=7, carry=True)
    assert given_settings(Config, values) == {"steps": 7, "carry": True}


@pytest.mark.parametrize(
    "argument", ["--steps=0", "--rate=-0.1", "--rate=1.1", "--source=air", "--methods=C", "--preset=slow", "--minutes=-1"]
)
def test_what_a_setting_does_not_allow_is_refused(argument: str) -> None:
    with pytest.raises(flags.IllegalFlagValueError, match=argument.split("=")[0].lstrip("-")):
        parsed(argument, presets=PRESETS)


@pytest.mark.parametrize("argument", ["--seeds=1,two", "--seeds=1.5", "--radii=,"])
def test_a_list_that_holds_no_numbers_is_one_sentence(argument: str) -> None:
    name, text = argument.split("=")
    kind = "numbers" if name == "--radii" else "whole numbers"
    with pytest.raises(DataError, match=rf"^{name} is '{text}', not a comma-separated list of {kind}\.$"):
        from_flags(Config, flag_values=parsed(argument))


def test_shared_flags_are_defined_where_they_are_asked_for() -> None:
    shared = ("output_dir", "resume", "tensorboard", "mesh")
    assert not any(name in parsed() for name in shared)
    values = parsed(output_dir="results/x", resume=True, tensorboard=True, mesh=True)
    assert [values[name].value for name in shared] == ["results/x", True, True, False]
    assert "preset" not in values


def test_help_texts_and_bounds_are_those_of_the_fields() -> None:
    text = parsed(presets=PRESETS).get_help()
    for expected in ("T.", "(a positive integer)", "Learning rate.", "(a number in the range [0.0, 1.0])", "<file|web>"):
        assert expected in text, expected


def test_workers_are_a_flag_with_a_default_of_the_binary() -> None:
    assert parsed(workers=3).workers == 3
    assert parsed("--workers=2", workers=3).workers == 2
    assert "workers" not in parsed()
    with pytest.raises(flags.IllegalFlagValueError):
        parsed("--workers=0", workers=3)

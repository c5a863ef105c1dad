"""Command-line flags generated from config dataclasses: every setting has one default, one bound and one help text.

@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = setting(50, "T: inner steps.", at_least=1)
    seeds: tuple[int, ...] = setting((0,), "Seeds of the splits, one run for each.")

define_flags(Config, output_dir="results/example")  # --steps, --seeds, --output_dir
...
config = from_flags(Config)
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from absl import flags

from data.errors import DataError

FLAGS = flags.FLAGS
T = TypeVar("T")


def setting(
    default: T,
    help: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: Sequence[str] | None = None,
) -> T:
    """A field of a config, with everything that its flag needs.

    Args:
      default: the value of the field if it is not given.
      help: what `--help` prints.
      at_least, at_most: bounds of a number; both values are allowed.
      choices: the strings that are allowed. A tuple field with choices is given by repeating its flag, because a choice may
        contain a comma; any other tuple is given as a comma-separated list.
    """
    return dataclasses.field(
        default=default, metadata={"help": help, "at_least": at_least, "at_most": at_most, "choices": choices}
    )


def define_flags(
    config: type,
    presets: Mapping[str, Any] | None = None,
    *,
    preset_help: str = "The settings to start from; other flags change single ones.",
    output_dir: str | None = None,
    resume: bool = False,
    tensorboard: bool = False,
    mesh: bool = False,
    workers: int | None = None,
    flag_values: flags.FlagValues = FLAGS,
) -> None:
    """Defines one flag per field of a config, and the flags that several binaries share.

    Args:
      config: a dataclass whose fields are made by `setting`.
      presets: settings by name. `--preset` chooses one, by default the first; flags that are not given keep its values.
      preset_help: what `--help` prints about them.
      output_dir: the default of `--output_dir`; without it there is no such flag.
      resume, tensorboard, mesh: whether there are flags of these names.
      workers: the default of `--workers`; without it there is no such flag.
      flag_values: where to define the flags.
    """
    if presets:
        flags.DEFINE_enum("preset", next(iter(presets)), sorted(presets), preset_help, flag_values)
    if output_dir is not None:
        flags.DEFINE_string(
            "output_dir", output_dir, "Where results go; a stopped run resumes from here.", flag_values=flag_values
        )
    shared = {
        "resume": (resume, True, "Resume a stopped run in output_dir; --noresume starts afresh."),
        "tensorboard": (tensorboard, True, "Write TensorBoard logs under output_dir."),
        "mesh": (mesh, False, "Divide the examples over the processes that DTENSOR_JOBS lists: docs/distribute.md."),
    }
    for name, (defined, default, text) in shared.items():
        if defined:
            flags.DEFINE_bool(name, default, text, flag_values)
    if workers is not None:
        text = "Processes that train side by side, with one thread each."
        flags.DEFINE_integer("workers", workers, text, lower_bound=1, flag_values=flag_values)
    for field, kind in _fields(config):
        _define(field, kind, None if presets else field.default, flag_values)


def from_flags(config: type[T], presets: Mapping[str, T] | None = None, flag_values: flags.FlagValues = FLAGS) -> T:
    """The chosen preset, or without presets the defaults, with the values of all flags that were given."""
    base: Any = presets[flag_values.preset] if presets else config()
    return dataclasses.replace(base, **given_settings(config, flag_values))


def given_settings(config: type, flag_values: flags.FlagValues = FLAGS) -> dict[str, Any]:
    """The values of a config's flags that are not None, by field."""
    values = [(field, flag_values[field.name].value, kind) for field, kind in _fields(config)]
    return {field.name: _converted(field, value, kind) for field, value, kind in values if value is not None}


def described(config: Any, *omitted: str) -> str:
    """All settings of a config but these, and but those that are None, for the name of a unit.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Config:
    ...     steps: int = 50
    ...     seeds: tuple[int, ...] = (0, 1)
    >>> described(Config(), "seeds")
    'steps 50'
    """
    kept = {name: value for name, value in dataclasses.asdict(config).items() if name not in omitted and value is not None}
    return ", ".join(f"{name} {value}" for name, value in kept.items())


class _Kind(NamedTuple):
    """The type of a field: that of one value, and whether the field is a tuple of them."""

    scalar: type
    several: bool


def _fields(config: type) -> list[tuple[dataclasses.Field, _Kind]]:
    hints = typing.get_type_hints(config)
    return [(field, _kind(hints[field.name])) for field in dataclasses.fields(config)]


def _kind(hint: Any) -> _Kind:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):  # of a type and None
        (hint,) = (member for member in typing.get_args(hint) if member is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        return _Kind(typing.get_args(hint)[0], True)
    return _Kind(hint, False)


def _define(field: dataclasses.Field, kind: _Kind, default: Any, flag_values: flags.FlagValues) -> None:
    name, text, choices = field.name, field.metadata["help"], field.metadata["choices"]
    if kind.several:
        items = None if default is None else [str(value) for value in default]
        if choices:
            flags.DEFINE_multi_enum(name, items, choices, text, flag_values)
        else:
            flags.DEFINE_list(name, items, text, flag_values)
    elif kind.scalar is bool:
        flags.DEFINE_bool(name, default, text, flag_values)
    elif kind.scalar is str:
        if choices:
            flags.DEFINE_enum(name, default, choices, text, flag_values)
        else:
            flags.DEFINE_string(name, default, text, flag_values)
    else:
        define = {int: flags.DEFINE_integer, float: flags.DEFINE_float}[kind.scalar]
        define(name, default, text, field.metadata["at_least"], field.metadata["at_most"], flag_values)


def _converted(field: dataclasses.Field, value: Any, kind: _Kind) -> Any:
    """The value of a flag in the form of its field; absl checks the bounds of single numbers, but not those of lists."""
    if not kind.several:
        return value
    flag = f"--{field.name} is {','.join(map(str, value))!r}"
    try:
        items = tuple(kind.scalar(item) for item in value)
    except ValueError:
        numbers = "whole numbers" if kind.scalar is int else "numbers"
        raise DataError(f"{flag}, not a comma-separated list of {numbers}.") from None
    low, high = field.metadata["at_least"], field.metadata["at_most"]
    if any((low is not None and not item >= low) or (high is not None and not item <= high) for item in items):
        bounds = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
        raise DataError(f"{flag}; each has to be {' and '.join(bounds)}.")
    return items

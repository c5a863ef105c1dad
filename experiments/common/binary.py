"""What the binaries share: how they start and stop, what they write, how figures look."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from absl import app, flags
from scipy import stats

import rfho2
from data.errors import DataError
from experiments.common import meshes
from rfho2.driver import locks, preemption

FLAGS = flags.FLAGS
flags.DEFINE_bool("deterministic", False, "The same bits in every run on the same machine, where TensorFlow can.")


def run_main(main: Callable[[], None]) -> None:
    """Runs a binary, alone in its `--output_dir`.

    Bad data, a directory in use and a disk that cannot be written are one sentence and exit code 1. Ctrl-C and SIGTERM say
    how to go on and exit with 130 and 143.
    """

    def guarded(argv: list[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f"not understood: {' '.join(argv[1:])}; flags look like --name=value.")
        if FLAGS.deterministic:
            tf.config.experimental.enable_op_determinism()
        if meshes.asked():
            if not FLAGS.resume:
                raise app.UsageError("--mesh does not go with --noresume; remove the directory, or choose another one.")
            try:
                rfho2.distribute.initialize()
            except ValueError as error:  # of an environment variable
                raise app.UsageError(str(error)) from None
        locked = "output_dir" in FLAGS and meshes.writes()
        alone = locks.held(FLAGS.output_dir, "--output_dir") if locked else contextlib.nullcontext()
        try:
            with preemption.ending(), alone:
                main()
        except (DataError, locks.InUseError, OSError) as error:
            print(error, file=sys.stderr)
            sys.exit(1)
        except (KeyboardInterrupt, preemption.Terminated) as stopped:
            again = [argument for argument in sys.argv[1:] if argument.lstrip("-") not in ("noresume", "resume=false")]
            print(f"\nStopped; everything finished is kept. To go on, run again: {command(again)}", file=sys.stderr)
            sys.exit(130 if isinstance(stopped, KeyboardInterrupt) else stopped.code)

    app.run(guarded)


def command(arguments: Sequence[str]) -> str:
    """What to type to run this binary with the arguments."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.stem == "__main__" else program.stem
    return shlex.join(["python", "-m", f"experiments.{name}", *arguments])


def given(config: type) -> dict[str, Any]:
    """The fields of a config whose flags were given; lists become tuples of what the field holds."""
    found = {}
    for field in dataclasses.fields(config):
        value = FLAGS[field.name].value
        several = re.fullmatch(r"tuple\[(\w+), \.\.\.\]", str(field.type))
        if value is not None:
            found[field.name] = _converted(field.name, value, several[1]) if several else value
    return found


def _converted(name: str, values: list[Any], kind: str) -> tuple[Any, ...]:
    try:
        return tuple({"int": int, "float": float, "str": str}[kind](value) for value in values)
    except ValueError:
        raise DataError(
            f"--{name} is {','.join(map(str, values))!r}; numbers with commas between them are needed."
        ) from None


def environment() -> dict[str, str]:
    """Versions and machine, as a results file records them."""
    devices = ", ".join(sorted({d.device_type for d in tf.config.list_physical_devices()}))
    return {
        "rfho2": rfho2.__version__,
        "tensorflow": tf.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": f"{devices} ({os.cpu_count()} cores, {platform.machine()})",
    }


def write_results(path: Path, config: Any, results: list[dict[str, Any]], timing: dict[str, Any]) -> None:
    """`results.json`: all that two runs with one seed share, and the times apart; `results.run.json`: command and date."""
    content = {"config": dataclasses.asdict(config), "environment": environment(), "results": results, "timing": timing}
    write_text(path, json.dumps(content, indent=2, default=str) + "\n")
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    run = {"command": command(sys.argv[1:]), "finished": now}
    write_text(path.with_suffix(".run.json"), json.dumps(run, indent=2) + "\n")


def keep_settings(path: Path, settings: dict[str, Any], resume: bool) -> None:
    """Notes what the runs beside the file depend on; refuses to go on with runs that were made with other settings."""
    text = json.dumps(settings, indent=2, default=str) + "\n"
    if not meshes.writes():  # who does compares for all
        return
    if resume and path.exists() and path.read_text() != text:
        before = json.loads(path.read_text())
        now = json.loads(text)
        changed = [f"{k} was {before.get(k)!r} and is {now.get(k)!r}" for k in before | now if before.get(k) != now.get(k)]
        raise DataError(
            f"{path.parent} has runs with other settings ({'; '.join(changed)}); choose another --output_dir, or --noresume."
        )
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text)
    draft.replace(path)


def save_figure(figure: plt.Figure, path: Path) -> None:
    """As `.png` and `.pdf`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_name(path.name + ".png"), dpi=150, bbox_inches="tight")  # with_suffix would cut R=0.001 short
    figure.savefig(path.with_name(path.name + ".pdf"), bbox_inches="tight")
    plt.close(figure)


class Difference(NamedTuple):
    """A mean of paired differences, in points, and half its 95 % interval (NaN for one pair)."""

    mean: float
    half: float

    def __str__(self) -> str:
        return f"{self.mean:+.2f}" + ("" if np.isnan(self.half) else f" ± {self.half:.2f}")


def difference(accuracies: np.ndarray, others: np.ndarray) -> Difference:
    """The mean of what the accuracies exceed the others by, pair by pair, with Student's 95 % interval."""
    points = 100 * (accuracies - others)
    n = len(points)
    half = float(stats.t.ppf(0.975, n - 1) * points.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return Difference(float(points.mean()), half)


def slug(name: str) -> str:
    """As part of a file's name."""
    return re.sub(r"[^\w.=-]+", "_", name)

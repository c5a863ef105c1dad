"""How a binary starts and stops, and what it runs on."""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from absl import app, flags

import rfho2
from data.errors import DataError
from experiments.common import meshes
from rfho2.driver import locks, preemption

FLAGS = flags.FLAGS
flags.DEFINE_bool("deterministic", False, "Bit-identical results in every run on the same machine, where TensorFlow can.")


def run_main(main: Callable[[], None], help_text: str | None = None) -> None:
    """Parses the flags and runs a binary, which has its `--output_dir` to itself.

    `--help` prints the text, by default the docstring of the module of `main`, and the flags of `experiments`.

    Bad data, a directory in use and a disk that cannot be written to end it with one sentence and exit code 1. Ctrl-C and
    SIGTERM end it with exit codes 130 and 143, and a sentence that tells how to resume.
    """

    def start(argv: list[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f"not understood: {' '.join(argv[1:])}; flags look like --name=value.")
        with contextlib.suppress(RuntimeError):  # in a test, the process may be using its devices already
            for gpu in tf.config.list_physical_devices("GPU"):
                tf.config.experimental.set_memory_growth(gpu, True)  # by default TensorFlow takes the whole GPU for itself
        if FLAGS.deterministic:
            tf.config.experimental.enable_op_determinism()
        if meshes.enabled():
            _join_mesh()
        with _ending_in_one_sentence(), preemption.ending(), _output_locked():
            main()

    _prepare_help(help_text or sys.modules[main.__module__].__doc__)
    app.run(start)


def _prepare_help(text: str | None) -> None:
    sys.modules["__main__"].__doc__ = text
    for module, defined in FLAGS.flags_by_module_dict().items():
        for flag in defined if module.startswith("experiments.") else ():
            FLAGS.register_key_flag_for_module(sys.argv[0], flag)


def _join_mesh() -> None:
    if not FLAGS.resume:
        raise app.UsageError("--mesh does not go with --noresume; remove the directory, or choose another one.")
    try:
        rfho2.distribute.initialize()
    except ValueError as error:  # from an environment variable
        raise app.UsageError(str(error)) from None


def _output_locked() -> contextlib.AbstractContextManager[None]:
    if "output_dir" in FLAGS and meshes.writes():
        return locks.held(FLAGS.output_dir, "--output_dir")
    return contextlib.nullcontext()


@contextlib.contextmanager
def _ending_in_one_sentence() -> Iterator[None]:
    try:
        yield
    except (DataError, locks.InUseError, OSError) as error:
        print(_sentence(error), file=sys.stderr)
        sys.exit(1)
    except (KeyboardInterrupt, preemption.Terminated) as stopped:
        arguments = [argument for argument in sys.argv[1:] if argument.lstrip("-") not in ("noresume", "resume=false")]
        print(f"\nStopped; everything finished is kept. To go on, run again: {command(arguments)}", file=sys.stderr)
        sys.exit(130 if isinstance(stopped, KeyboardInterrupt) else stopped.code)


def _sentence(error: Exception) -> str:
    """The message of an error; one of the operating system says only a number, a reason and a file."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return (
            f"{error.filename} cannot be used: {error.strerror}. Choose another directory, such as --output_dir=results/new."
        )
    return str(error)


def command(arguments: Sequence[str]) -> str:
    """What to type to run this binary with the arguments."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.stem == "__main__" else program.stem
    return shlex.join(["python", "-m", f"experiments.{name}", *arguments])


def environment() -> dict[str, str]:
    """Versions and machine, as a results file records them."""
    return {
        "rfho2": rfho2.__version__,
        "tensorflow": tf.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": ", ".join([f"CPU ({os.cpu_count()} cores, {platform.machine()})", *_gpus()]),
    }


def _gpus() -> list[str]:
    """The names of the GPUs, with the precision of their float32 products."""
    precision = "TF32" if tf.config.experimental.tensor_float_32_execution_enabled() else "float32"
    details = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    return [f"{one.get('device_name', 'GPU')} ({precision} products)" for one in details]
